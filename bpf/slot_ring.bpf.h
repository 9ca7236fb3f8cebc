/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Rings of the tool's own for the records of usual calls and of requests, one for each CPU: arrays of slots that are mapped
 * into user space. The kernel's ring costs many times as much. It has the records of all other kinds and lengths, and those
 * that find no slot: of this CPU all are taken, it came after the start, or another task or an interrupt took one meanwhile.
 */
#ifndef __SLOT_RING_BPF_H__
#define __SLOT_RING_BPF_H__

/* The ring of each CPU, with its slots; sized by the loader. No elements of an array, for the reason given at `stats`. */
struct slot_ring slot_rings[1] SEC(".bss.rings");

/* Takes a slot of this CPU. NULL: there is none. `turn`: its position, for complete_slot(). */
static __always_inline struct record_slot *take_slot(__u32 cpu, __u64 *turn)
{
	__u64 taken, found, of_cpu = cpu;
	struct slot_ring *ring;

	/* A value of its own, which has the bound that is checked: older kernels forget that of 32 bits on the stack. */
	barrier_var(of_cpu);
	if (!config.ring_slots || of_cpu >= config.ring_cpus)
		return NULL;
	ring = at_distance(slot_rings, times(of_cpu, sizeof(*ring) + config.ring_slots * sizeof(struct record_slot)));
	taken = ring->taken;
	if (taken - ring->read >= config.ring_slots)
		return NULL;
	found = __sync_val_compare_and_swap(&ring->taken, taken, taken + 1);
	/* Compared as numbers, which is shorter than the instruction's own verdict. */
	barrier_var(found);
	/* What was preempted or interrupted between the two has the kernel's ring. */
	if (found != taken)
		return NULL;
	*turn = taken + 1;
	return at_distance(ring + 1, (taken & (config.ring_slots - 1)) * sizeof(struct record_slot));
}

/* The reader stops at the first slot whose turn has not come. */
static __always_inline void complete_slot(struct record_slot *slot, __u64 turn)
{
	order_for_all(&slot->turn);
	slot->turn = turn;
}

#endif
