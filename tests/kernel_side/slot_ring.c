/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The rings of slots, compiled for the build machine: two CPUs with four slots each.
 *
 * slot_ring: reads `struct turn` from standard input and writes an `__u64` for each: the position that a record got, 0: none.
 */
#include <stdbool.h>
#include <stdio.h>
#include <linux/types.h>

#include "macros.h"
#include "../../bpf/abi.h"

static struct config config = { .ring_slots = 4, .ring_cpus = 2 };
/* A ring of a CPU with its slots, of which there are two in a row. */
static struct {
	struct slot_ring ring;
	struct record_slot slots[4];
} rings[2];
/* Another task of the CPU, or an interrupt, takes a slot before the next one does. */
static bool is_preempted;

#define __sync_val_compare_and_swap(at, known, new)                                                                    \
	(*(at) += is_preempted, is_preempted = false, __sync_val_compare_and_swap(at, known, new))

#define times(number, factor) ((number) * (factor))
/* Of the rings, which are elsewhere, or of the slots of one. */
#define at_distance(address, distance)                                                                                 \
	((void *)((char *)((void *)(address) == (void *)slot_rings ? (void *)rings : (void *)(address)) + (distance)))

#include "../../bpf/slot_ring.bpf.h"

enum {
	TAKE,
	PREEMPTED, /* the same, by what is preempted or interrupted */
	READ_ONE, /* the reader takes one out */
};

struct turn {
	__u64 what;
	__u64 cpu;
};

int main(void)
{
	struct turn turn;

	while (fread(&turn, sizeof(turn), 1, stdin) == 1) {
		struct record_slot *slot = NULL;
		__u64 at = 0;

		is_preempted = turn.what == PREEMPTED;
		if (turn.what == READ_ONE)
			rings[turn.cpu].ring.read++;
		else
			slot = take_slot(turn.cpu, &at);
		if (slot)
			complete_slot(slot, at);
		/* The slot of that position, and no other. */
		if (slot && (slot != &rings[turn.cpu].slots[(at - 1) % 4] || slot->turn != at))
			return 1;
		at = slot ? at : 0;
		if (fwrite(&at, sizeof(at), 1, stdout) != 1)
			return 1;
	}
	return 0;
}
