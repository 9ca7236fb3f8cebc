/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Counters of calls whose start is in a cookie (session.bpf.h). A duration between the minimum and the maximum seen in
 * the current report, so that neither changes, and below BINS_BELOW is only counted in a bin of 16 ns; readers add bins
 * to the histogram steps that they are part of. All other durations are counted as everywhere else.
 *
 * The values are per CPU, at addresses that the kernel computes. They cannot be mapped, and the system calls that read
 * them keep kprobe programs of their CPU from running, so src/probe/binned.rs has a program copy them.
 */
#ifndef __BINS_BPF_H__
#define __BINS_BPF_H__

struct binned binned_by_cpu[BINNED_OPS] SEC(".bss.binned");

/* Per op: its index in binned_by_cpu. */
const volatile __u8 binned_indices[MAX_OPS];

static __always_inline struct binned *binned_of(__u32 op)
{
	struct binned *first;

	/* The address is loaded only here: a program must not refer to a map that was not created. */
	first = binned_by_cpu;
	barrier_var(first);
	first += binned_indices[op & (MAX_OPS - 1)] & (BINNED_OPS - 1);
	/* One address register, and not two. */
	barrier_var(first);
	return first;
}

/* Counts a call in its bin. Returns false if its duration has none, or if it failed. */
static __always_inline bool count_in_bin(struct binned *b, __u64 ns, long value)
{
	struct bin *bin;

	if (!config.one_epoch && unlikely(b->epoch != control.epoch))
		return false;
	if (unlikely(ns < b->from_ns) || unlikely(ns >= b->below_ns) || unlikely(errno_of(value)))
		return false;
	/* below_ns bounds ns; the mask bounds it for the verifier. */
	bin = at_distance(b, ns & (BINS - 1) * BIN_WIDTH) + offsetof(struct binned, bins);
	/* One test of config.atomic: with three, the compiler would keep an address for each. */
	if (config.atomic) {
		__sync_fetch_and_add(&bin->calls, 1);
		__sync_fetch_and_add(&bin->total_ns, ns);
		__sync_fetch_and_add(&b->bytes, value);
	} else {
		bin->calls += 1;
		bin->total_ns += ns;
		b->bytes += value;
	}
	return true;
}

/*
 * Counts a call that has no bin, and every call where there are no bins. Its duration then widens the range of
 * durations that have bins.
 */
__noinline int count_without_bin(__u32 op, __u64 ns, long value)
{
	/*
	 * Read first: if the next epoch begins meanwhile, b->epoch does not match it, and its first call gets no bin.
	 */
	__u64 epoch = config.one_epoch ? EPOCH_STEP : control.epoch;
	struct op_stats *s = stats_of(op);
	struct binned *b;

	if (!s)
		return 0;
	add(&s->under_way, -1);
	/* The clock went backwards. */
	if ((__s64)ns < 0) {
		add(&s->lost[LOST_CLOCK], 1);
		return 0;
	}
	record_to(s, op, true, ns, step_of(ns), value, false);
	if (config.bins) {
		__u64 generation = epoch / EPOCH_STEP & (GENERATIONS - 1);
		__u64 shortest = s->extremes.min_ns[generation], longest = s->extremes.max_ns[generation];

		b = binned_of(op);
		b->from_ns = shortest > BINS_FROM ? shortest : BINS_FROM;
		b->below_ns = longest < BINS_BELOW ? longest + 1 : BINS_BELOW;
		b->epoch = epoch;
	}
	return 0;
}

#endif
