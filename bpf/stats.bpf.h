/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The per-CPU counters: one `struct op_stats` per op. */
#ifndef __STATS_BPF_H__
#define __STATS_BPF_H__

#include "steps.bpf.h"

/* Restart and queue codes are the kernel's own; include/linux/errno.h. */
#define EAGAIN 11
#define ENOMEM 12
#define EFAULT 14
#define EHWPOISON 133
#define EIOCBQUEUED 529
#define MAX_ERRNO 4095

/*
 * A part per CPU, with an element per op; sized by the loader. It is mapped into userspace, not looked up from there:
 * the system calls that read a map switch off all kprobe programs on their CPU (bpf_disable_instrumentation), which in a
 * kernel that preempts tasks lasts until the reader runs again.
 *
 * Where the kernel makes one value of that size, it is the first one, whose places programs compute: a third of what a look-up takes,
 * and there is always a place.
 */
struct op_stats stats_by_cpu[1] SEC(".bss.stats");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct op_stats);
} stats SEC(".maps");

/*
 * Plain where no program that shares this CPU's slots can come between the load and the store; atomic where one can:
 * a tracing program in a kernel that preempts tasks.
 */
static __always_inline void add_to(__u64 *counter, __u64 n, bool atomic)
{
	if (atomic || config.atomic) {
		/* Where it can tell that n is 0, the compiler makes it an atomic `or`, which there is not before 5.12. */
		barrier_var(n);
		__sync_fetch_and_add(counter, n);
	} else {
		*counter += n;
	}
}

static __always_inline void add(__u64 *counter, __u64 n)
{
	add_to(counter, n, false);
}

/*
 * A place in a structure, moved by so many bytes. The sum is where the distance was, and what is added to it later is part of the instruction
 * that accesses it: the compiler would copy the address, and add to the copy twice.
 */
static __always_inline void *at_distance(void *place, __u64 distance)
{
#ifdef __bpf__
	asm volatile("%0 += %1" : "+r"(distance) : "r"(place));
	return (void *)distance;
#else
	return (char *)place + distance;
#endif
}

/* bpf_get_smp_processor_id() in 64 bits, as the kernel answers: the compiler would cut it off first. */
#ifdef __bpf__
static __u64 (*const cpu_number)(void) = (void *)8;
#else
#define cpu_number bpf_get_smp_processor_id
#endif

/* In the place of the first, where the compiler would take that of the second. */
static __always_inline __u64 masked(__u64 number, __u64 mask)
{
#ifdef __bpf__
	asm volatile("%0 &= %1" : "+r"(number) : "r"(mask));
	return number;
#else
	return number & mask;
#endif
}

/* `row`: an op, or one behind them all, of an op's completions. */
static __always_inline struct op_stats *stats_of(__u32 row)
{
	__u64 cpu = cpu_number(), offset;
	__u32 element;
	char *place;

	if (!config.cpu_bytes) {
		element = cpu * config.rows + row;
		return bpf_map_lookup_elem(&stats, &element);
	}
	if (row >= config.rows)
		return NULL;
	/* Now: a row that is read from the stack again is not known to be below the limit to the verifier of 6.1. */
	offset = (__u64)row * sizeof(struct op_stats);
	barrier_var(offset);
	/* Here and not before: otherwise there is no such map. */
	place = (char *)stats_by_cpu;
	barrier_var(place);
	place = at_distance(place, masked(cpu, config.cpu_mask) * config.cpu_bytes);
	place += offset;
	/* Nobody has to ask. */
	if (!place)
		__builtin_unreachable();
	return (struct op_stats *)place;
}

#define COUNTER_ATOMIC (1u << 31) /* with a row: another argument would be there before it is known that it is needed */

/*
 * Calls of a row that are lost, which is rare. As is each function that is not in line and not static: few calls come here, and the
 * verifier looks at it by itself, once, and not for each way that leads to it.
 */
__noinline int count_lost(__u32 row, __u32 why, __u64 n)
{
	struct op_stats *s = stats_of(row & ~COUNTER_ATOMIC);

	if (s)
		add_to(&s->lost[why & (LOST_REASONS - 1)], n, row & COUNTER_ATOMIC);
	return 0;
}

/* An errno that finds no place is in `errors` alone, and the report says so. */
__noinline int count_errno(__u32 row, __u32 error)
{
	struct op_stats *s = stats_of(row & ~COUNTER_ATOMIC);
	bool atomic = row & COUNTER_ATOMIC;

	if (!s)
		return 0;
#pragma unroll
	for (int i = 0; i < ERRNOS; i++) {
		struct errno_count *place = &s->errnos[i];

		if (!place->error)
			place->error = error;
		if (place->error == error) {
			add_to(&place->calls, 1, atomic);
			break;
		}
	}
	return 0;
}

/* Of a structure, one of whose members they are. */
#define NOTE_EXTREMES(counters, ns) note_extremes(counters, (char *)&(counters)->extremes - (char *)(counters), ns)
static __always_inline void note_extremes(void *counters, __u64 offset, __u64 ns)
{
	__u64 epoch = EPOCH_STEP;
	struct extremes *x;

	if (config.one_epoch) {
		x = counters + offset + EPOCH_STEP;
		/* As long as there are none they are 0, which no time is below. */
		if (likely(ns < x->max_ns[0] && ns >= x->min_ns[0]))
			return;
		/* Or the compiler would keep addresses for what follows. */
		barrier_var(x);
	} else {
		epoch = control.epoch;
		x = at_distance(counters, epoch & EPOCH_STEP) + offset;
	}
	if (x->epoch[0] != epoch) {
		x->min_ns[0] = ns;
		x->max_ns[0] = ns;
		x->epoch[0] = epoch;
	} else {
		if (unlikely(ns < x->min_ns[0]))
			x->min_ns[0] = ns;
		if (unlikely(ns > x->max_ns[0]))
			x->max_ns[0] = ns;
	}
}

/* The errno of a call that has returned `value`, 0 when it did not fail. */
static __always_inline __u32 errno_of(long value)
{
	return unlikely((__u64)value >= (__u64)-MAX_ERRNO) ? -value : 0;
}

/*
 * Counts a time of this step, among the steps of a structure. It may have been on the stack or a number from another function, of which
 * the verifier knows no bound.
 */
#define COUNT_STEP(counters, step, atomic)                                                                             \
	count_step(counters, (char *)(counters)->steps - (char *)(counters), step, atomic)
static __always_inline void count_step(void *counters, __u64 offset, __u64 step, bool atomic)
{
	barrier_var(step);
	step = last_step_or(step);
	add_to(at_distance(counters, step * sizeof(__u64)) + offset, 1, atomic);
}

/*
 * All that is counted of one finished call but its errno, which takes a place that two CPUs may not take at once. `step`: that of
 * its time.
 */
static __always_inline void count_call(struct op_stats *s, bool moves_bytes, __u64 ns, __u64 step, long value,
				       bool atomic)
{
	/* struct op_stats says why the extremes are first, and the steps before what is a part of them. */
	NOTE_EXTREMES(s, ns);
	COUNT_STEP(s, step, atomic);
	add_to(&s->total_ns, ns, atomic);
	if (config.unit_ns) {
		__u32 slot = unit_slot_of(ns, config.unit_ns);

		barrier_var(slot);
		if (slot < UNIT_SLOTS)
			add_to(&s->unit_slots[slot], 1, atomic);
	}
	if (errno_of(value)) {
		add_to(&s->errors, 1, atomic);
	} else if (moves_bytes) {
		add_to(&s->bytes, value, atomic);
	}
}

/* One finished call of `row`, whose counters are `s`. `value` is what it returned, sign-extended. `atomic`: whatever this kernel's
 * programs need. */
static __always_inline void record_to(struct op_stats *s, __u32 row, bool moves_bytes, __u64 ns, __u64 step,
				      long value, bool atomic)
{
	count_call(s, moves_bytes, ns, step, value, atomic);
	if (errno_of(value))
		count_errno(atomic ? row | COUNTER_ATOMIC : row, errno_of(value));
}

static __always_inline void record_in(__u32 row, bool moves_bytes, __u64 ns, long value, bool atomic)
{
	struct op_stats *s = stats_of(row);

	if (s && value == -EIOCBQUEUED)
		add_to(&s->queued, 1, atomic);
	else if (s)
		record_to(s, row, moves_bytes, ns, step_of(ns), value, atomic);
}

#define COUNTER_MOVES_BYTES (1u << 30) /* with a row, as COUNTER_ATOMIC */
/* record_in() by itself, as count_errno() is: for where many ways lead to it. */
__noinline int record_out_of_line(__u32 row, __u64 ns, long value)
{
	const __u32 flags = COUNTER_ATOMIC | COUNTER_MOVES_BYTES;

	record_in(row & ~flags, row & COUNTER_MOVES_BYTES, ns, value, row & COUNTER_ATOMIC);
	return 0;
}

/* A call that came by a function of `point`. */
static __always_inline void record(__u32 point, __u64 ns, __u64 step, long value)
{
	struct op_stats *s = stats_of(point_op(point));

	if (!s)
		return;
	/* What takes a kiocb may return before the call is done, and says so. */
	if (point_shape(point) == SHAPE_KIOCB_0 && value == -EIOCBQUEUED)
		add(&s->queued, 1);
	else
		record_to(s, point_op(point), point_return(point) == RETURN_BYTES, ns, step, value, false);
}

#endif
