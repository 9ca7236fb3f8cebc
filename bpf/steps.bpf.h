/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which step of the histogram a duration belongs to. C on integers only, so that a test can run these very lines on the
 * build machine; src/model/histogram.rs has the meaning of the steps.
 */
#ifndef __STEPS_BPF_H__
#define __STEPS_BPF_H__

/*
 * Position of the highest bit that is set, 0 for 0. By shifts: clang 14 and 16 crash on __builtin_clzll for BPF.
 * Without branches: the verifier would follow each path through them to the end of the program. The barriers keep the
 * compiler from creating some.
 */
static __always_inline __u32 top_bit(__u64 v)
{
	__u32 r, s;

	/* 1 << 5 where any of the upper bits is set. */
	r = ((v >> 32) + 0xffffffffull) >> 32 << 5;
	v >>= r;
	/* Now v has 32 bits at most: bit 63 of a difference is set if it is negative. */
	barrier_var(v);
	s = (0xffff - v) >> 63 << 4;
	v >>= s;
	r |= s;
	barrier_var(v);
	s = (0xff - v) >> 63 << 3;
	v >>= s;
	r |= s;
	barrier_var(v);
	s = (0xf - v) >> 63 << 2;
	v >>= s;
	r |= s;
	barrier_var(v);
	s = (0x3 - v) >> 63 << 1;
	v >>= s;
	r |= s;
	return r | (v >> 1);
}

/*
 * How far a duration is shifted right to leave its highest 1 + STEP_BITS bits; 0 if it has no more. The index is the
 * upper 6 bits of ones * SPREAD, where ones is the duration with all bits below its highest one set: SPREAD was found
 * by search, so that each of these numbers has an index of its own. Durations of TOP_BIT bits and more share the last
 * shift.
 */
#define SPREAD 0x64094e8d7316fdffull
const volatile __u8 step_shifts[64] = {
	0, 23, 37, 28, 15, 0, 37, 1, 0, 35, 20, 0, 8, 31, 13, 18,
	11, 0, 25, 0, 37, 27, 37, 0, 34, 0, 30, 17, 24, 0, 37, 0,
	29, 16, 37, 0, 37, 37, 37, 2, 3, 4, 0, 5, 36, 21, 0, 0,
	6, 9, 37, 32, 22, 14, 0, 0, 19, 7, 12, 10, 0, 37, 26, 33,
};

/*
 * Steps of the most frequent durations, 128 to 65,535 ns, by duration >> SHORT_SHIFT: a third of the instructions of
 * long_step_of(). Durations of similar length share a cache line.
 */
#define SHORT_STEPS(shift)                                                                                             \
	SHORT_STEP(shift, 8), SHORT_STEP(shift, 9), SHORT_STEP(shift, 10), SHORT_STEP(shift, 11), SHORT_STEP(shift, 12),       \
		SHORT_STEP(shift, 13), SHORT_STEP(shift, 14), SHORT_STEP(shift, 15)
#define SHORT_STEP(shift, first)                                                                                       \
	[((first) << ((shift)-SHORT_SHIFT)) - SHORT_FIRST... (((first) + 1) << ((shift)-SHORT_SHIFT)) - SHORT_FIRST - 1] =     \
		((shift) << STEP_BITS) + (first)
#define SHORT_SHIFT (STEP_BITS + 1)
#define SHORT_FIRST 8
const volatile __u8 short_steps[] = {
	SHORT_STEPS(4), SHORT_STEPS(5),	 SHORT_STEPS(6),  SHORT_STEPS(7),  SHORT_STEPS(8),
	SHORT_STEPS(9), SHORT_STEPS(10), SHORT_STEPS(11), SHORT_STEPS(12),
};

/* Index of a duration in short_steps; out of bounds for durations that are not in the table. */
static __always_inline __u64 short_index_of(__u64 ns)
{
	__u64 index = (ns >> SHORT_SHIFT) - SHORT_FIRST;

	/* One register for the comparison and the access: the verifier does not always know that a copy is equal. */
	barrier_var(index);
	return index;
}

static __always_inline __u64 last_step_or(__u64 step)
{
	return step < STEPS ? step : STEPS - 1;
}

/* The step of any duration. */
static __always_inline __u64 long_step_of(__u64 ns)
{
	__u64 ones = ns, shift;

	/* Without branches, for the reason given at top_bit(). */
	ones |= ones >> 1;
	ones |= ones >> 2;
	ones |= ones >> 4;
	ones |= ones >> 8;
	ones |= ones >> 16;
	ones |= ones >> 32;
	shift = step_shifts[ones * SPREAD >> 58];
	return last_step_or((shift << STEP_BITS) + (ns >> shift));
}

static __always_inline __u64 step_of(__u64 ns)
{
	__u64 index = short_index_of(ns);

	return likely(index < sizeof(short_steps)) ? short_steps[index] : long_step_of(ns);
}

/* The slot of a duration in the histogram by powers of two of a unit. */
static __always_inline __u32 unit_slot_of(__u64 ns, __u32 unit_ns)
{
	__u32 slot = top_bit(ns / unit_ns);

	return slot < UNIT_SLOTS ? slot : UNIT_SLOTS - 1;
}

#endif
