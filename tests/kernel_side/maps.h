/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The helpers on maps, for a part of the kernel side that keeps states by addresses. It defines these functions. */
#ifndef __MAPS_H__
#define __MAPS_H__

static void *find_in_map(const void *map, const void *key);
static int update_map(const void *map, const __u64 *address, const void *state);
static int delete_from_map(const void *map, const __u64 *address);
#define bpf_map_lookup_elem(map, key) find_in_map(map, key)
#define bpf_map_update_elem(map, key, state, flags) update_map(map, key, state)
#define bpf_map_delete_elem(map, key) delete_from_map(map, key)

#endif
