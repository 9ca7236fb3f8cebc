/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Which place of a histogram a time is counted in. Plain C on integers, so that a test can run these very lines on the
 * machine that it runs on; src/histogram.rs has what they mean.
 */
#ifndef __STEPS_BPF_H__
#define __STEPS_BPF_H__

/*
 * Position of the highest bit that is set, 0 for 0. By shifts: clang 14 and 16 crash on __builtin_clzll for BPF. Without branches:
 * the verifier would follow each way through them to the end of the program. The barriers keep the compiler from making some.
 */
static __always_inline __u32 top_bit(__u64 v)
{
	__u32 r, s;

	/* 1 << 5 where any of the upper bits is set. */
	r = ((v >> 32) + 0xffffffffull) >> 32 << 5;
	v >>= r;
	/* Now it has 32 bits at most: a difference that is negative has bit 63 set. */
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
 * By how much a time is shifted right so that its highest 1 + STEP_BITS bits are left; none where it has no more. What it is looked up by are
 * the upper 6 bits of a product: SPREAD was searched for so that numbers of all ones, which have a shift each, come to places of
 * their own. Those of TOP_BIT and more bits share one.
 */
#define SPREAD 0x64094e8d7316fdffull
const volatile __u8 step_shifts[64] = {
	0, 23, 37, 28, 15, 0, 37, 1, 0, 35, 20, 0, 8, 31, 13, 18,
	11, 0, 25, 0, 37, 27, 37, 0, 34, 0, 30, 17, 24, 0, 37, 0,
	29, 16, 37, 0, 37, 37, 37, 2, 3, 4, 0, 5, 36, 21, 0, 0,
	6, 9, 37, 32, 22, 14, 0, 0, 19, 7, 12, 10, 0, 37, 26, 33,
};

/*
 * The same of most times there are, by all of their bits but the last ones, which no shift depends on: a third of the instructions, and
 * times of one size are in one cache line.
 */
#define SHORT_BITS 16
const volatile __u8 short_shifts[1 << (SHORT_BITS - STEP_BITS - 1)] = {
	[0x1] = 1,
	[0x2 ... 0x3] = 2,
	[0x4 ... 0x7] = 3,
	[0x8 ... 0xf] = 4,
	[0x10 ... 0x1f] = 5,
	[0x20 ... 0x3f] = 6,
	[0x40 ... 0x7f] = 7,
	[0x80 ... 0xff] = 8,
	[0x100 ... 0x1ff] = 9,
	[0x200 ... 0x3ff] = 10,
	[0x400 ... 0x7ff] = 11,
	[0x800 ... 0xfff] = 12,
};

/* Beyond the last step for what is counted there. */
static __always_inline __u64 step_of(__u64 ns)
{
	__u64 ones = ns, shift, upper = ns >> (STEP_BITS + 1);

	/* This is what is compared, and no copy of it: the verifier does not always know that they are the same. */
	barrier_var(upper);
	if (upper < sizeof(short_shifts)) {
		shift = short_shifts[upper];
	} else {
		/* Without branches, for the verifier's sake; see top_bit(). */
		ones |= ones >> 1;
		ones |= ones >> 2;
		ones |= ones >> 4;
		ones |= ones >> 8;
		ones |= ones >> 16;
		ones |= ones >> 32;
		shift = step_shifts[ones * SPREAD >> 58];
	}
	return (shift << STEP_BITS) + (ns >> shift);
}

/* Likewise of the powers of two of a unit. */
static __always_inline __u32 unit_slot_of(__u64 ns, __u32 unit_ns)
{
	__u32 slot = top_bit(ns / unit_ns);

	return slot < UNIT_SLOTS ? slot : UNIT_SLOTS - 1;
}

#endif
