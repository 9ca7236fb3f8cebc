/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The calls of a thread in flight, compiled for the build machine; the kernel functions that they call are defined
 * here.
 *
 * frames: reads `struct turn` from standard input and writes a `struct answer` for each. The clock shows the number of
 * the turn. With an argument, only a sample of the calls is measured.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <linux/types.h>

#include "macros.h"
#include "../../bpf/abi.h"

#define WHOLE_STACK 0
static struct config config = { .counters = MAX_OPS, .counted_frames = 0xffff };
static struct control control;
static struct op_stats counters[MAX_OPS];
static struct thread_state thread;
static __u64 now;
/* References to the thread's state. */
static __u64 references;

static __u32 bpf_get_smp_processor_id(void)
{
	return 0;
}

/* What is drawn for the call that begins. */
static __u32 random_number;

static __u32 bpf_get_prandom_u32(void)
{
	return random_number;
}

static __u64 bpf_ktime_get_ns(void)
{
	return now;
}

static void *element_of_map(const __u32 *element)
{
	return &counters[*element];
}
#define bpf_map_lookup_elem(map, key) element_of_map(key)

static struct thread_state *find_thread(__u32 number)
{
	return number ? NULL : &thread;
}

static struct thread_state *find_or_make_thread(__u32 number, enum lost_reason *why)
{
	*why = LOST_STORAGE;
	return number ? NULL : &thread;
}

static void get_thread(struct thread_state *state)
{
	references += state == &thread;
}

static void put_thread(struct thread_state *state, __u32 number)
{
	references -= state == &thread && !number;
}

static void record_in_group(__u32 group, __u32 op, bool moves_bytes, __u64 ns, long value, __u64 queue_ns)
{
	if (group || op >= MAX_OPS || moves_bytes || !ns || value || queue_ns)
		abort();
}

#include "../../bpf/point.bpf.h"
#include "../../bpf/stats.bpf.h"
#include "../../bpf/frames.bpf.h"

struct turn {
	__u64 what; /* 0: a function is entered, 1: one returns, 2: the thread exits, 3: as 0, and not chosen */
	__u64 point;
	__u64 stack;
	__u64 function; /* its address */
};

struct answer {
	__u64 entered_ns; /* when the call that begins or has ended was entered; 0: none does or has */
	__u64 lost; /* so far */
	__u64 references;
};

int main(int arguments, char **words)
{
	struct turn turn;

	(void)words;
	config.sample = arguments > 1 ? 1u << 31 : 0;

	while (fread(&turn, sizeof(turn), 1, stdin) == 1) {
		struct answer answer = {};
		struct frame *frame;
		struct ended call;

		now++;
		if (turn.what == 2) {
			lose_frames_of_exiting_thread(&thread, 0);
			/* The state is deleted with the thread. */
			references = 0;
		} else if (turn.what == 1) {
			answer.entered_ns = end(&thread, turn.point, 0, &call) ? call.entered_ns : 0;
		} else {
			random_number = turn.what ? ~0u : 0;
			frame = begin(&thread, turn.point, turn.stack, turn.function);
			answer.entered_ns = frame ? frame->entered_ns : 0;
		}
		for (int op = 0; op < MAX_OPS; op++)
			answer.lost += counters[op].lost[LOST_RETURN];
		answer.references = references;
		if (fwrite(&answer, sizeof(answer), 1, stdout) != 1)
			return 1;
	}
	return 0;
}
