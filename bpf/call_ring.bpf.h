/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Rings of the tool's own for the records of usual calls, one for each CPU: arrays of slots that are mapped into user space.
 * The kernel's ring costs three times as much. It has the records of all other kinds and lengths, and those of calls that find
 * no slot: of this CPU all are taken, it came after the start, or another of its tasks was preempted while it took one.
 *
 * A call ends in its task, and never in an interrupt.
 */
#ifndef __CALL_RING_BPF_H__
#define __CALL_RING_BPF_H__

/* By CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call_ring);
} call_rings SEC(".maps");

/* config.call_slots for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct call_slot);
} call_slots SEC(".maps");

/* Takes a slot of this CPU. NULL: there is none. `turn`: its position, for complete_call_slot(). */
static __always_inline struct call_slot *take_call_slot(__u32 cpu, __u64 *turn)
{
	struct call_ring *ring;
	__u32 element;
	__u64 taken;

	if (!config.call_slots || cpu >= config.call_cpus)
		return NULL;
	ring = bpf_map_lookup_elem(&call_rings, &cpu);
	if (!ring)
		return NULL;
	taken = ring->taken;
	if (taken - ring->read >= config.call_slots)
		return NULL;
	/* A task that was preempted between the two has the kernel's ring. */
	if (__sync_val_compare_and_swap(&ring->taken, taken, taken + 1) != taken)
		return NULL;
	*turn = taken + 1;
	element = cpu * config.call_slots + (lower_half(taken) & (config.call_slots - 1));
	return bpf_map_lookup_elem(&call_slots, &element);
}

/* The reader stops at the first slot whose turn has not come. */
static __always_inline void complete_call_slot(struct call_slot *slot, __u64 turn)
{
	order_for_all(&slot->turn);
	slot->turn = turn;
}

#endif
