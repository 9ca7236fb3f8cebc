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
 * The counters: per CPU, one op_stats per counter; sized by the loader. They are mapped into user space: system calls
 * that read a map disable all kprobe programs on their CPU (bpf_disable_instrumentation), which in a kernel that
 * preempts tasks lasts until the reader runs again.
 *
 * Where the kernel allows a single value of that size the counters are in stats_by_cpu, whose offsets programs compute:
 * a third of the cost of a lookup, and it cannot fail. Elsewhere they are the elements of `stats`.
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
 * Not atomic where no program that shares this CPU's counters can run between the load and the store; atomic where one
 * can: a tracing program in a kernel that preempts tasks.
 */
static __always_inline void add_to(__u64 *counter, __u64 n, bool atomic)
{
	if (atomic || config.atomic) {
		/*
		 * If it knew that n is 0, the compiler would emit an atomic `or`, which kernels before 5.12 do not
		 * have.
		 */
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

/* number * factor. Older verifiers know the range of a product only if the second factor is a constant. */
static __always_inline __u64 times(__u64 number, __u64 factor)
{
#ifdef __bpf__
	asm volatile("%0 *= %1" : "+r"(number) : "r"(factor));
	return number;
#else
	return number * factor;
#endif
}

/*
 * address + distance, in the register of `distance`; constant offsets that are added later become part of the
 * instruction that accesses it. The compiler would copy the address, and add to the copy separately.
 */
static __always_inline void *at_distance(void *address, __u64 distance)
{
#ifdef __bpf__
	asm volatile("%0 += %1" : "+r"(distance) : "r"(address));
	return (void *)distance;
#else
	return (char *)address + distance;
#endif
}

/*
 * bpf_get_smp_processor_id(), helper 8, with its real 64-bit result: libbpf's header declares 32 bits, and the compiler
 * would add a truncation.
 */
#ifdef __bpf__
static __u64 (*const cpu_number)(void) = (void *)8;
#else
#define cpu_number bpf_get_smp_processor_id
#endif

/* number & mask, in the register of `number`; the compiler would use that of `mask`. */
static __always_inline __u64 masked(__u64 number, __u64 mask)
{
#ifdef __bpf__
	asm volatile("%0 &= %1" : "+r"(number) : "r"(mask));
	return number;
#else
	return number & mask;
#endif
}

/* `counter`: an op, or, after all ops, the completions of one. */
static __always_inline struct op_stats *stats_of(__u32 counter)
{
	__u64 cpu = cpu_number(), offset;
	__u32 element;
	char *address;

	if (!config.cpu_bytes) {
		element = cpu * config.counters + counter;
		return bpf_map_lookup_elem(&stats, &element);
	}
	if (counter >= config.counters)
		return NULL;
	/* Here: 6.1's verifier does not know that a counter that is loaded from the stack again is below the limit. */
	offset = (__u64)counter * sizeof(struct op_stats);
	barrier_var(offset);
	/* The address is loaded only here: a program must not refer to a map that was not created. */
	address = (char *)stats_by_cpu;
	barrier_var(address);
	address = at_distance(address, masked(cpu, config.cpu_mask) * config.cpu_bytes);
	address += offset;
	/* Never NULL: spares callers the check. */
	if (!address)
		__builtin_unreachable();
	return (struct op_stats *)address;
}

/*
 * Counts lost calls. Out of line (compat.bpf.h), as are all functions that are neither inline nor static: it is rare,
 * and the verifier checks it once, and not on each path that leads to it. Atomic: that only some callers need it would be
 * more code in each program.
 */
__noinline int count_lost(__u32 counter, __u32 why, __u64 n)
{
	struct op_stats *s = stats_of(counter);

	if (s)
		__sync_fetch_and_add(&s->lost[why & (LOST_REASONS - 1)], n);
	return 0;
}

/*
 * Counts an errno. One beyond ERRNOS different ones is only counted in `errors`, which the report states. Atomic as
 * count_lost().
 */
__noinline int count_errno(__u32 counter, __u32 error)
{
	struct op_stats *s = stats_of(counter);

	if (!s)
		return 0;
	/* Not unrolled: 7.3 takes longer to read a long program than to follow the rounds (docs/hot-path.md). */
#pragma clang loop unroll(disable)
	for (int i = 0; i < ERRNOS; i++) {
		struct errno_count *slot = &s->errnos[i];

		if (!slot->error)
			slot->error = error;
		if (slot->error == error) {
			__sync_fetch_and_add(&slot->calls, 1);
			break;
		}
	}
	return 0;
}

/* Updates the `extremes` member of a structure of counters. */
#define NOTE_EXTREMES(counters, ns) note_extremes(counters, (char *)&(counters)->extremes - (char *)(counters), ns)
static __always_inline void note_extremes(void *counters, __u64 offset, __u64 ns)
{
	__u64 epoch = EPOCH_STEP;
	struct extremes *x;

	if (config.one_epoch) {
		x = counters + offset + EPOCH_STEP;
		/* Before the first call both are 0, so no duration is below the maximum. */
		if (likely(ns < x->max_ns[0] && ns >= x->min_ns[0]))
			return;
		/* Keeps one address register; the compiler would compute several for the accesses below. */
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

/* The errno of a call that returned `value`, 0 if it did not fail. */
static __always_inline __u32 errno_of(long value)
{
	return unlikely((__u64)value >= (__u64)-MAX_ERRNO) ? -value : 0;
}

/*
 * Increments the step's counter in the `steps` member of a structure of counters. The step is bounded here again: the
 * verifier does not know the bound of a value that was spilled to the stack, or came from another function.
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
 * Counts a finished call, except its errno: slots of errnos are taken without atomic instructions, and several CPUs
 * share a cell (group.bpf.h). `step`: the histogram step of ns.
 */
static __always_inline void count_call(struct op_stats *s, bool moves_bytes, __u64 ns, __u64 step, long value,
				       bool atomic)
{
	/* The order that struct op_stats requires: extremes, step, total. */
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

/*
 * Counts a finished call in `s`, the counters of `counter`. `value`: its return value, sign-extended. `atomic`: even
 * where config.atomic is not set.
 */
static __always_inline void record_to(struct op_stats *s, __u32 counter, bool moves_bytes, __u64 ns, __u64 step,
				      long value, bool atomic)
{
	count_call(s, moves_bytes, ns, step, value, atomic);
	if (errno_of(value))
		count_errno(counter, errno_of(value));
}

static __always_inline void record_in(__u32 counter, bool moves_bytes, __u64 ns, long value, bool atomic)
{
	struct op_stats *s = stats_of(counter);

	if (s && value == -EIOCBQUEUED)
		add_to(&s->queued, 1, atomic);
	else if (s)
		record_to(s, counter, moves_bytes, ns, step_of(ns), value, atomic);
}

/* Flags in the `counter` argument; arguments of their own would be set on paths that do not need them. */
#define COUNTER_MOVES_BYTES (1u << 30)
#define COUNTER_ATOMIC (1u << 31)

/* record_in(), out of line, for callers that the verifier reaches on many paths. */
__noinline int record_out_of_line(__u32 counter, __u64 ns, long value)
{
	const __u32 flags = COUNTER_ATOMIC | COUNTER_MOVES_BYTES;

	record_in(counter & ~flags, counter & COUNTER_MOVES_BYTES, ns, value, counter & COUNTER_ATOMIC);
	return 0;
}

/* Counts a finished call that was entered at `point`. */
static __always_inline void record(__u32 point, __u64 ns, __u64 step, long value)
{
	struct op_stats *s = stats_of(point_op(point));

	if (!s)
		return;
	/* A function that takes a kiocb may queue the request, and then returns this. */
	if (point_shape(point) == SHAPE_KIOCB_0 && value == -EIOCBQUEUED)
		add(&s->queued, 1);
	else
		record_to(s, point_op(point), point_return(point) == RETURN_BYTES, ns, step, value, false);
}

#endif
