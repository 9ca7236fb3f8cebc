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
struct elsewhere {
	__u64 requests;
	__u64 bios;
};
volatile struct elsewhere elsewhere;

/* Addresses that follow each other are spread: 2^32 divided by the golden ratio, and the highest bits of the product. */
static __always_inline __u32 place_by_address(__u64 address)
{
	return lower_half(address) * 0x9e3779b1 >> (32 - BLOCK_PLACES_BITS);
}

/*
 * A table: its maps, and
 *   find_NAME()    what is known of an address, or NULL
 *   keep_NAME()    `known` is what was found; 0, or an error number as of bpf_map_update_elem()
 *   forget_NAME()
 *   leave_NAME()     the same; `was_read`: whether anything was read of it
 * Maps are preallocated: most requests end in an interrupt.
 */
#define DEFINE_TABLE(NAME, TABLE)                                                                                      \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                      \
		__uint(max_entries, BLOCK_PLACES);                                                                     \
		__type(key, __u32);                                                                                    \
		__type(value, struct NAME##_place);                                                                    \
	} TABLE##_by_place SEC(".maps");                                                                               \
                                                                                                                       \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_HASH);                                                                       \
		__uint(max_entries, BLOCK_REQUESTS);                                                                   \
		__type(key, __u64);                                                                                    \
		__type(value, struct NAME##_state);                                                                    \
	} TABLE SEC(".maps");                                                                                          \
                                                                                                                       \
	static __always_inline struct NAME##_place *place_of_##NAME(__u64 address)                                     \
	{                                                                                                              \
		__u32 place = place_by_address(address);                                                               \
                                                                                                                       \
		return config.places ? bpf_map_lookup_elem(&TABLE##_by_place, &place) : NULL;                          \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline struct NAME##_state *find_##NAME(__u64 address)                                         \
	{                                                                                                              \
		struct NAME##_place *place = place_of_##NAME(address);                                                 \
                                                                                                                       \
		if (place && place->address == address)                                                                \
			return &place->state;                                                                          \
		if (config.places && !elsewhere.TABLE)                                                                 \
			return NULL;                                                                                   \
		return bpf_map_lookup_elem(&TABLE, &address);                                                          \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline int keep_##NAME(__u64 address, struct NAME##_state *known,                              \
					       const struct NAME##_state *state)                                       \
	{                                                                                                              \
		struct NAME##_place *place;                                                                            \
		int failed;                                                                                            \
                                                                                                                       \
		if (known) {                                                                                           \
			*known = *state;                                                                               \
			return 0;                                                                                      \
		}                                                                                                      \
		place = place_of_##NAME(address);                                                                      \
		if (place && !place->address && !__sync_val_compare_and_swap(&place->address, 0, address)) {           \
			place->state = *state;                                                                         \
			return 0;                                                                                      \
		}                                                                                                      \
		/* Before 6.4 (d7ba4cc900bf) only the lower half of the answer is one. */                              \
		failed = bpf_map_update_elem(&TABLE, &address, state, BPF_ANY);                                        \
		if (!failed && config.places)                                                                          \
			__sync_fetch_and_add(&elsewhere.TABLE, 1);                                                     \
		return failed;                                                                                         \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline void leave_##NAME(__u64 address, bool was_read)                                         \
	{                                                                                                              \
		struct NAME##_place *place = place_of_##NAME(address);                                                 \
                                                                                                                       \
		if (!place || place->address != address) {                                                             \
			if ((!config.places || elsewhere.TABLE) && !bpf_map_delete_elem(&TABLE, &address) && config.places) \
				__sync_fetch_and_add(&elsewhere.TABLE, -1);                                            \
		} else if (was_read) {                                                                                 \
			/* Before whoever comes next writes to it. */                                                  \
			__sync_lock_test_and_set(&place->address, 0);                                                  \
		} else {                                                                                               \
			place->address = 0;                                                                            \
		}                                                                                                      \
	}                                                                                                              \
                                                                                                                       \
	static __always_inline void forget_##NAME(__u64 address)                                                       \
	{                                                                                                              \
		leave_##NAME(address, true);                                                                           \
	}

DEFINE_TABLE(request, requests)
DEFINE_TABLE(bio, bios)

#endif
