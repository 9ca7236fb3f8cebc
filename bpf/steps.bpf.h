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

/* Likewise of the powers of two of a unit. */
static __always_inline __u32 unit_slot_of(__u64 ns, __u32 unit_ns)
{
	__u32 slot = top_bit(ns / unit_ns);

	return slot < UNIT_SLOTS ? slot : UNIT_SLOTS - 1;
}

#endif
