/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The breakdown of a call in flight, compiled for the build machine; the kernel functions that it calls are defined
 * here.
 *
 * breakdown: reads `struct turn` from standard input and writes a `struct answer` for each. The clock shows the number
 * of the turn.
 */
#include <stdbool.h>
#include <stdio.h>
#include <linux/types.h>

#define WHOLE_STACK 1
#include "macros.h"
#include "../../bpf/abi.h"

static struct config config = { .counters = MAX_OPS, .stack_rows = 0xffff };
static struct control control;
static struct thread_state thread;
static struct family_stats family;

static __u32 bpf_get_smp_processor_id(void)
{
	return 0;
}

static __u64 bpf_get_current_pid_tgid(void)
{
	return 0;
}

/* No thread sleeps here. */
static void *element_of_map(const void *map);
#define bpf_map_lookup_elem(map, key) ((void)(key), element_of_map(map))
#define bpf_map_delete_elem(map, key) ((void)(map), (void)(key))

static struct thread_state *find_thread(__u32 number)
{
	return number ? NULL : &thread;
}

static void get_thread(struct thread_state *state)
{
	(void)state;
}

static void put_thread(struct thread_state *state, __u32 number)
{
	(void)state;
	(void)number;
}

static struct family_stats *group_family_of(__u32 group, __u32 number)
{
	(void)group;
	(void)number;
	return NULL;
}

#include "../../bpf/view.bpf.h"
#include "../../bpf/point.bpf.h"
#include "../../bpf/stats.bpf.h"
#include "../../bpf/breakdown.bpf.h"

static void *element_of_map(const void *map)
{
	return map == &families ? &family : NULL;
}

/* Nothing is recorded here. */
static void record_call_with_rows(__u32 number, const struct breakdown *breakdown, __u64 now, __s64 value, __u32 cpu,
				  __u32 class)
{
	(void)number;
	(void)breakdown;
	(void)now;
	(void)value;
	(void)cpu;
	(void)class;
}

/* The key of the system call, which no function has. */
#define SYSTEM_CALL 64

enum event {
	ENTERS,
	RETURNS,
	DOES_THE_REST, /* a function that does the rest of the call, and whose return is not seen */
};

struct turn {
	__u64 event;
	__u64 key;
	__u64 maybe_not_open;
};

struct answer {
	__u64 depth;
	__u64 key; /* of the function entered last */
	__u64 row; /* in which the thread runs now */
	__u64 entries; /* so far, entries without a return */
	__u64 returns; /* so far, returns without an entry */
	__u64 ns; /* in all rows */
};

int main(void)
{
	struct breakdown *breakdown = &thread.breakdown;
	struct turn turn;
	__u64 now = 0;

	breakdown->depth = 1;
	breakdown->open[0].key = SYSTEM_CALL;
	while (fread(&turn, sizeof(turn), 1, stdin) == 1) {
		struct answer answer = {};

		now++;
		if (turn.event == RETURNS)
			leave_function(&thread, 0, turn.key, turn.maybe_not_open, now);
		else if (turn.event == ENTERS)
			enter_function(&thread, turn.key, ROW_FS, false, false, now);
		else
			enter_rest(&thread, ROW_VFS, false, now);
		answer.depth = breakdown->depth;
		answer.key = breakdown->open[breakdown->depth - 1].key;
		answer.row = current_row(breakdown);
		answer.entries = family.unbalanced[UNBALANCED_ENTRY];
		answer.returns = family.unbalanced[UNBALANCED_RETURN];
		for (int row = 0; row < ROWS; row++)
			answer.ns += breakdown->rows[row];
		if (fwrite(&answer, sizeof(answer), 1, stdout) != 1)
			return 1;
	}
	return 0;
}
