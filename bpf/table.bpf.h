/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Tables of what is known of requests and bios, by their addresses.
 *
 * Most have a place of their own in an array, by their address: it is found, taken and left without a call into the kernel. One
 * whose place is another's has its state in a hash map. How many are there is counted, so that nobody looks there in vain.
 *
 * Whoever looks, keeps or forgets has the request or bio at that moment: nobody else does anything with the same address, which is
 * not 0.
 */
#ifndef __TABLE_BPF_H__
#define __TABLE_BPF_H__

/* Entries of the hash maps. Written only when a place is another's. */
struct overflow {
	__u64 requests;
	__u64 bios;
};
volatile struct overflow overflow;

/* Addresses that follow each other are spread: 2^32 divided by the golden ratio, and the highest bits of the product. */
static __always_inline __u32 slot_by_address(__u64 address)
{
	return lower_half(address) * 0x9e3779b1 >> (32 - BLOCK_SLOTS_BITS);
}

/*
 * A table: its maps, and
 *   find_NAME()    what is known of an address, and where
 *   keep_NAME()    `known` is what was found; 0, or an error number as of bpf_map_update_elem()
 *   forget_NAME()  likewise
 *   drop_NAME()    the same of what nobody has looked for
 * Maps are preallocated: most requests end in an interrupt.
 */
#define DEFINE_TABLE(NAME, TABLE)                                                                                      \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                      \
		__uint(max_entries, BLOCK_SLOTS);                                                                     \
		__type(key, __u32);                                                                                    \
		__type(value, struct NAME##_slot);                                                                    \
	} TABLE##_by_slot SEC(".maps");                                                                               \
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
		struct NAME##_slot *place; /* the address's, whoever has it; NULL where there are none */             \
		struct NAME##_slot *own; /* that, if the state is there */                                            \
	};                                                                                                             \
                                                                                                                       \
	static __always_inline struct NAME##_slot *slot_of_##NAME(__u64 address)                                     \
	{                                                                                                              \
		__u32 place = slot_by_address(address);                                                               \
                                                                                                                       \
		return config.slots ? bpf_map_lookup_elem(&TABLE##_by_slot, &place) : NULL;                          \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline struct found_##NAME find_##NAME(__u64 address)                                          \
	{                                                                                                              \
		struct found_##NAME found = { .place = slot_of_##NAME(address) };                                     \
                                                                                                                       \
		if (found.place && found.place->address == address) {                                                  \
			found.state = &found.place->state;                                                             \
			found.own = found.place;                                                                       \
		} else if (!config.slots || overflow.TABLE) {                                                        \
			found.state = bpf_map_lookup_elem(&TABLE, &address);                                           \
		}                                                                                                      \
		return found;                                                                                          \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline int keep_##NAME(__u64 address, const struct found_##NAME *known,                        \
					       const struct NAME##_state *state)                                       \
	{                                                                                                              \
		struct NAME##_slot *place = known->place;                                                             \
		int failed;                                                                                            \
                                                                                                                       \
		if (known->state) {                                                                                    \
			*known->state = *state;                                                                        \
			return 0;                                                                                      \
		}                                                                                                      \
		if (place && !__sync_val_compare_and_swap(&place->address, 0, address)) {                              \
			place->state = *state;                                                                         \
			return 0;                                                                                      \
		}                                                                                                      \
		/* Before 6.4 (d7ba4cc900bf) only the lower half of the answer is one. */                              \
		failed = bpf_map_update_elem(&TABLE, &address, state, BPF_ANY);                                        \
		if (!failed && config.slots)                                                                          \
			__sync_fetch_and_add(&overflow.TABLE, 1);                                                     \
		return failed;                                                                                         \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline void take_from_map_of_##NAME(__u64 address)                                             \
	{                                                                                                              \
		if (!bpf_map_delete_elem(&TABLE, &address) && config.slots)                                           \
			__sync_fetch_and_add(&overflow.TABLE, -1);                                                    \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline void forget_##NAME(__u64 address, const struct found_##NAME *known)                     \
	{                                                                                                              \
		/* What was read of it was, before whoever comes next writes to it. */                                 \
		if (known->own)                                                                                        \
			__sync_lock_test_and_set(&known->own->address, 0);                                             \
		else if (known->state)                                                                                 \
			take_from_map_of_##NAME(address);                                                              \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline void drop_##NAME(__u64 address)                                                         \
	{                                                                                                              \
		struct NAME##_slot *place = slot_of_##NAME(address);                                                 \
                                                                                                                       \
		if (place && place->address == address)                                                                \
			place->address = 0;                                                                            \
		else if (!config.slots || overflow.TABLE)                                                            \
			take_from_map_of_##NAME(address);                                                              \
	}

DEFINE_TABLE(request, requests)
DEFINE_TABLE(bio, bios)

#endif
