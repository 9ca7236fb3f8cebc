/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The tables of requests and bios, compiled for the build machine, with four slots in the array; the kernel functions
 * that they call are defined here.
 *
 * table ENTRIES SLOTS: with a hash map of this many entries, and with slots in the array if SLOTS is not 0. Reads
 * `struct turn` from standard input and writes a `struct answer` for each.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <linux/types.h>

#include "macros.h"
#include "../../bpf/abi.h"

#undef BLOCK_SLOTS_BITS
#define BLOCK_SLOTS_BITS 2

static struct config config;
/* Entries of the hash map; an address of 0 marks a free one. */
static struct bio_slot *entries;
static unsigned long room;

static __u32 lower_half(__u64 pointer)
{
	return pointer;
}

static struct bio_slot *entry_of(__u64 address)
{
	for (unsigned long i = 0; i < room; i++)
		if (entries[i].address == address)
			return &entries[i];
	return NULL;
}

#include "maps.h"

#include "../../bpf/table.bpf.h"

static void *find_in_map(const void *map, const void *key)
{
	struct bio_slot *entry = map == &bios ? entry_of(*(const __u64 *)key) : NULL;

	return entry ? &entry->state : NULL;
}

static int update_map(const void *map, const __u64 *address, const void *state)
{
	struct bio_slot *entry = entry_of(*address);

	entry = entry ? entry : entry_of(0);
	if (map != &bios || !entry)
		return -E2BIG;
	entry->address = *address;
	entry->state = *(const struct bio_state *)state;
	return 0;
}

static int delete_from_map(const void *map, const __u64 *address)
{
	struct bio_slot *entry = entry_of(*address);

	if (map != &bios || !entry)
		return -ENOENT;
	entry->address = 0;
	return 0;
}

enum { FIND, KEEP, FORGET, DROP };

struct turn {
	__u64 what;
	__u64 address;
	__u64 value; /* to keep */
};

struct answer {
	__u64 found; /* the value of the address before this turn; 0: none */
	__s64 failed;
	__u64 overflow;
	__u64 entries; /* in the hash map */
};

int main(int count, char **words)
{
	struct turn turn;

	room = count > 2 ? strtoul(words[1], NULL, 10) : 0;
	entries = calloc(room, sizeof(*entries));
	if (!room || !entries)
		return 1;
	config.slots = strtoul(words[2], NULL, 10) != 0;
	while (fread(&turn, sizeof(turn), 1, stdin) == 1) {
		struct found_bio known = find_bio(turn.address);
		struct answer answer = { .found = known.state ? known.state->queued_ns : 0 };
		struct bio_state state = { .queued_ns = turn.value };

		if (turn.what == KEEP)
			answer.failed = keep_bio(turn.address, &known, &state);
		else if (turn.what == FORGET)
			forget_bio(turn.address, &known);
		else if (turn.what == DROP)
			drop_bio(turn.address);
		answer.overflow = overflow.bios;
		for (unsigned long i = 0; i < room; i++)
			answer.entries += entries[i].address != 0;
		if (fwrite(&answer, sizeof(answer), 1, stdout) != 1)
			return 1;
	}
	return 0;
}
