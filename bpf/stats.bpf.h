/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The per-CPU counters: one `struct op_stats` per op. */
#ifndef __STATS_BPF_H__
#define __STATS_BPF_H__

/* Restart and queue codes are the kernel's own; include/linux/errno.h. */
#define EIOCBQUEUED 529
#define MAX_ERRNO 4095

/*
 * A part per CPU, with an element per op; sized by the loader. It is mapped into userspace, not looked up from there:
 * the system calls that read a map switch off all kprobe programs on their CPU (bpf_disable_instrumentation), which in a
 * kernel that preempts tasks lasts until the reader runs again.
 */
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
static __always_inline void add(__u64 *counter, __u64 n)
{
	if (config.atomic)
		__sync_fetch_and_add(counter, n);
	else
		*counter += n;
}

static __always_inline struct op_stats *stats_of(__u32 op)
{
	__u32 element = bpf_get_smp_processor_id() * config.ops + op;

	return bpf_map_lookup_elem(&stats, &element);
}

static __always_inline void count_lost(__u32 op, enum lost_reason why, __u64 n)
{
	struct op_stats *s = stats_of(op);

	if (s)
		add(&s->lost[why & (LOST_REASONS - 1)], n);
}

static __always_inline void count_excluded(__u32 op)
{
	struct op_stats *s = stats_of(op);

	if (s)
		add(&s->excluded, 1);
}

/* Position of the highest bit that is set, 0 for 0. By shifts: clang 14 and 16 crash on __builtin_clzll for BPF. */
static __always_inline __u32 top_bit(__u64 v)
{
	__u32 r = 0, s;

	s = (v > 0xffffffffull) << 5;
	v >>= s;
	r |= s;
	s = (v > 0xffff) << 4;
	v >>= s;
	r |= s;
	s = (v > 0xff) << 3;
	v >>= s;
	r |= s;
	s = (v > 0xf) << 2;
	v >>= s;
	r |= s;
	s = (v > 0x3) << 1;
	v >>= s;
	r |= s;
	return r | (v >> 1);
}

static __always_inline __u32 step_of(__u64 ns)
{
	__u32 bit;

	if (ns < 1 << STEP_BITS)
		return ns;
	bit = top_bit(ns);
	if (bit >= TOP_BIT)
		return STEPS - 1;
	return ((bit - STEP_BITS + 1) << STEP_BITS) + (ns >> (bit - STEP_BITS) & ((1 << STEP_BITS) - 1));
}

/* An errno that finds no place is in `errors` alone, and the report says so. */
static __always_inline void count_errno(struct op_stats *s, __u32 error)
{
#pragma unroll
	for (int i = 0; i < ERRNOS; i++) {
		struct errno_count *place = &s->errnos[i];

		if (!place->error)
			place->error = error;
		if (place->error == error) {
			add(&place->calls, 1);
			return;
		}
	}
}

/* One finished call. `value` is what it returned, sign-extended. */
static __always_inline void record(__u32 point, __u64 ns, long value)
{
	__u32 op = point_op(point);
	struct op_stats *s = stats_of(op);
	struct extremes *x;
	__u64 epoch;
	__u32 step;

	if (!s)
		return;
	if (value < 0 && value >= -MAX_ERRNO) {
		if (value == -EIOCBQUEUED) {
			add(&s->queued, 1);
			return;
		}
		add(&s->errors, 1);
		count_errno(s, -value);
	} else if (point_return(point) == RETURN_BYTES) {
		add(&s->bytes, value);
	}
	add(&s->total_ns, ns);

	epoch = control.epoch;
	x = &s->extremes[epoch & 1];
	if (x->epoch != epoch) {
		x->min_ns = ns;
		x->max_ns = ns;
		x->epoch = epoch;
	} else {
		if (ns < x->min_ns)
			x->min_ns = ns;
		if (ns > x->max_ns)
			x->max_ns = ns;
	}

	step = step_of(ns);
	/* The compiler can prove the bound, the verifier of older kernels cannot: keep the check. */
	barrier_var(step);
	if (step < STEPS)
		add(&s->steps[step], 1);
	if (config.unit_ns) {
		__u32 slot = top_bit(ns / config.unit_ns);

		barrier_var(slot);
		if (slot >= UNIT_SLOTS)
			slot = UNIT_SLOTS - 1;
		add(&s->unit_slots[slot], 1);
	}
}

#endif
