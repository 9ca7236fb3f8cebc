/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The counters of calls whose start is in a cookie, where each CPU's values are at an address that the kernel computes. Most times are
 * usual: between the shortest and the longest one of the report so far, and not long. These are counted in bins of one width, which whoever
 * reads puts into the steps that they are parts of. All other times are counted as everywhere else.
 *
 * Such values cannot be mapped, and the system calls that read them keep kprobe programs of their CPU from running: src/probe/binned.rs
 * has a program copy them.
 */
#ifndef __BINS_BPF_H__
#define __BINS_BPF_H__

struct binned binned_by_cpu[BINNED_OPS] SEC(".bss.binned");

/* By op: which of them is its. */
const volatile __u8 binned_indices[MAX_OPS];

static __always_inline struct binned *binned_of(__u32 op)
{
	struct binned *first;

	/* Here and not before: where there are no bins, there is no such map. */
	first = binned_by_cpu;
	barrier_var(first);
	first += binned_indices[op & (MAX_OPS - 1)] & (BINNED_OPS - 1);
	/* Or the compiler would keep both addresses. */
	barrier_var(first);
	return first;
}

/* Counts a call, if its time is a usual one and it has not failed. Says whether. */
static __always_inline bool count_in_bin(struct binned *b, __u64 ns, long value)
{
	struct bin *bin;

	if (!config.one_epoch && unlikely(b->epoch != control.epoch))
		return false;
	if (unlikely(ns < b->from_ns) || unlikely(ns >= b->below_ns) || unlikely(errno_of(value)))
		return false;
	/* There are no more, which the verifier cannot know. */
	bin = at_distance(b, ns & (BINS - 1) * BIN_WIDTH) + offsetof(struct binned, bins);
	/* One question for all, or the compiler would keep an address for each. */
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

/* Counts any other one. From then on its time is between the shortest and the longest. */
__noinline int count_without_bin(__u32 op, __u64 ns, long value)
{
	/* Should the next one begin meanwhile, its first call is no usual one. */
	__u64 epoch = config.one_epoch ? EPOCH_STEP : control.epoch;
	struct op_stats *s = stats_of(op);
	struct binned *b;

	if (!s)
		return 0;
	add(&s->under_way, -1);
	/* The clock went back. */
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
