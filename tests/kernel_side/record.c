/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The counting of the kernel side, compiled for the build machine: calls in, counters out, by the code that the kernel
 * runs. The kernel functions that it calls are defined here.
 *
 * record CPUS UNIT_NS ONE_EPOCH BINS: reads `struct call` from standard input and writes the `struct op_stats` of one
 * op for each CPU; with BINS, then also its `struct binned` for each.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <linux/types.h>

#include "macros.h"
#include "../../bpf/abi.h"

static struct config config = { .counters = 1 };
static struct control control;
static struct op_stats *counters;
static __u32 cpu;

static __u32 bpf_get_smp_processor_id(void)
{
	return cpu;
}

static void *element_of_map(const __u32 *element)
{
	return &counters[*element];
}
#define bpf_map_lookup_elem(map, key) element_of_map(key)

#include "../../bpf/point.bpf.h"
#include "../../bpf/stats.bpf.h"
#include "../../bpf/bins.bpf.h"

struct call {
	__u64 ns;
	long value; /* what it returned */
	__u64 epoch;
	__u32 cpu;
	__u32 moves_bytes;
};

/* Of each CPU; the kernel has a copy of binned_by_cpu per CPU. */
static struct binned *binned;

static void record_session(const struct call *call)
{
	binned_by_cpu[0] = binned[cpu];
	if (!count_in_bin(binned_of(0), call->ns, call->value))
		count_without_bin(0, call->ns, call->value);
	binned[cpu] = binned_by_cpu[0];
}

int main(int count, char **words)
{
	unsigned long cpus = count > 4 ? strtoul(words[1], NULL, 10) : 0;
	struct call call;

	counters = calloc(cpus, sizeof(*counters));
	binned = calloc(cpus, sizeof(*binned));
	if (!cpus || !counters || !binned)
		return 1;
	config.unit_ns = strtoul(words[2], NULL, 10);
	config.one_epoch = strtoul(words[3], NULL, 10);
	config.bins = strtoul(words[4], NULL, 10);
	while (fread(&call, sizeof(call), 1, stdin) == 1) {
		if (call.cpu >= cpus)
			return 1;
		cpu = call.cpu;
		control.epoch = call.epoch;
		if (config.bins)
			record_session(&call);
		else
			record_in(0, call.moves_bytes, call.ns, call.value, false);
	}
	if (fwrite(counters, sizeof(*counters), cpus, stdout) != cpus)
		return 1;
	return !config.bins || fwrite(binned, sizeof(*binned), cpus, stdout) == cpus ? 0 : 1;
}
