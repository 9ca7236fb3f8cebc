/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Tables of requests and bios in flight, by their addresses.
 *
 * Most have a slot in an array, by a hash of their address. If the slot is taken by another address, the state goes to
 * a hash map; the number of its entries is counted, so that an empty map is not searched.
 *
 * Callers own the request or bio at that moment: no other CPU works on the same address. An address is never 0.
 */
#ifndef __TABLE_BPF_H__
#define __TABLE_BPF_H__

/* Entries in the hash maps. Only written when the slot of an address is taken by another one. */
struct overflow {
	__u64 requests;
	__u64 bios;
};
volatile struct overflow overflow;

/* Spreads addresses that follow each other: 2^32 divided by the golden ratio, and the highest bits of the product. */
static __always_inline __u32 slot_by_address(__u64 address)
{
	return lower_half(address) * 0x9e3779b1 >> (32 - BLOCK_SLOTS_BITS);
}

/*
 * A table: its maps, and
 *   find_NAME()    returns the state of an address, if there is one, and its slot
 *   keep_NAME()    stores a state; `known`: what find_NAME() returned. Returns 0, or an errno as bpf_map_update_elem()
 *   forget_NAME()  removes an address; `known`: as above
 *   drop_NAME()    removes an address without a preceding find_NAME()
 * Maps are preallocated: most requests end in an interrupt.
 */
#define DEFINE_TABLE(NAME, TABLE)                                                                                      \
	struct NAME##_slot TABLE##_by_slot[BLOCK_SLOTS] SEC(".bss." #TABLE);                                           \
                                                                                                                       \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_HASH);                                                                       \
		__uint(max_entries, BLOCK_REQUESTS);                                                                   \
		__type(key, __u64);                                                                                    \
		__type(value, struct NAME##_state);                                                                    \
	} TABLE SEC(".maps");                                                                                          \
                                                                                                                       \
	struct found_##NAME {                                                                                          \
		struct NAME##_state *state; /* or NULL */                                                              \
		struct NAME##_slot *slot; /* of the address, free or taken by any; NULL without slots */               \
		struct NAME##_slot *own; /* the slot, if it holds the state */                                         \
	};                                                                                                             \
                                                                                                                       \
	static __always_inline struct NAME##_slot *slot_of_##NAME(__u64 address)                                       \
	{                                                                                                              \
		return config.slots ? &TABLE##_by_slot[slot_by_address(address)] : NULL;                               \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline struct found_##NAME find_##NAME(__u64 address)                                          \
	{                                                                                                              \
		struct found_##NAME found = { .slot = slot_of_##NAME(address) };                                       \
                                                                                                                       \
		if (config.slots && found.slot->address == address) {                                                  \
			found.state = &found.slot->state;                                                              \
			found.own = found.slot;                                                                        \
		} else if (!config.slots || overflow.TABLE) {                                                          \
			found.state = bpf_map_lookup_elem(&TABLE, &address);                                           \
		}                                                                                                      \
		return found;                                                                                          \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline int keep_##NAME(__u64 address, const struct found_##NAME *known,                        \
					       const struct NAME##_state *state)                                       \
	{                                                                                                              \
		struct NAME##_state *kept = known->state;                                                              \
		int failed;                                                                                            \
                                                                                                                       \
		if (!kept && known->slot && !__sync_val_compare_and_swap(&known->slot->address, 0, address))           \
			kept = &known->slot->state;                                                                    \
		if (kept) {                                                                                            \
			*kept = *state;                                                                                \
			return 0;                                                                                      \
		}                                                                                                      \
		/* Before 6.4 (d7ba4cc900bf) only the lower 32 bits of the helper's result are valid. */               \
		failed = bpf_map_update_elem(&TABLE, &address, state, BPF_ANY);                                        \
		if (!failed && config.slots)                                                                           \
			__sync_fetch_and_add(&overflow.TABLE, 1);                                                      \
		return failed;                                                                                         \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline void take_from_map_of_##NAME(__u64 address)                                             \
	{                                                                                                              \
		if (!bpf_map_delete_elem(&TABLE, &address) && config.slots)                                            \
			__sync_fetch_and_add(&overflow.TABLE, -1);                                                     \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline void forget_##NAME(__u64 address, const struct found_##NAME *known)                     \
	{                                                                                                              \
		/* A full barrier: the state has been read before the next owner may write to the slot. */             \
		if (known->own)                                                                                        \
			__sync_lock_test_and_set(&known->own->address, 0);                                             \
		else if (known->state)                                                                                 \
			take_from_map_of_##NAME(address);                                                              \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline void drop_##NAME(__u64 address)                                                         \
	{                                                                                                              \
		struct NAME##_slot *slot = slot_of_##NAME(address);                                                    \
                                                                                                                       \
		if (slot && slot->address == address)                                                                  \
			slot->address = 0;                                                                             \
		else if (!config.slots || overflow.TABLE)                                                              \
			take_from_map_of_##NAME(address);                                                              \
	}

DEFINE_TABLE(request, requests)
DEFINE_TABLE(bio, bios)

#endif
