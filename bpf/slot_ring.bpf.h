/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Rings of the tool's own for the records of usual calls and of requests, one for each CPU: arrays of slots that are mapped
 * into user space. The kernel's ring costs three times as much. It has the records of all other kinds and lengths, and those
 * that find no slot: of this CPU all are taken, it came after the start, or another task or an interrupt took one meanwhile.
 */
#ifndef __SLOT_RING_BPF_H__
#define __SLOT_RING_BPF_H__

/* By CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot_ring);
} slot_rings SEC(".maps");

/* config.ring_slots for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct record_slot);
} record_slots SEC(".maps");

/* Takes a slot of this CPU. NULL: there is none. `turn`: its position, for complete_slot(). */
static __always_inline struct record_slot *take_slot(__u32 cpu, __u64 *turn)
{
	struct slot_ring *ring;
	__u32 element;
	__u64 taken;

	if (!config.ring_slots || cpu >= config.ring_cpus)
		return NULL;
	ring = bpf_map_lookup_elem(&slot_rings, &cpu);
	if (!ring)
		return NULL;
	taken = ring->taken;
	if (taken - ring->read >= config.ring_slots)
		return NULL;
	/* What was preempted or interrupted between the two has the kernel's ring. */
	if (__sync_val_compare_and_swap(&ring->taken, taken, taken + 1) != taken)
		return NULL;
	*turn = taken + 1;
	element = cpu * config.ring_slots + (lower_half(taken) & (config.ring_slots - 1));
	return bpf_map_lookup_elem(&record_slots, &element);
}

/* The reader stops at the first slot whose turn has not come. */
static __always_inline void complete_slot(struct record_slot *slot, __u64 turn)
{
	order_for_all(&slot->turn);
	slot->turn = turn;
}

#endif
