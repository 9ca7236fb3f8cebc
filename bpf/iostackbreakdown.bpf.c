// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The kernel side, compiled to one object for each view. The headers below have one subject each, and their order
 * matters: each uses those before it.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "abi.h"

const volatile struct config config;
const volatile struct block_config block;
const volatile struct cast_types cast_types;
const volatile struct kfuncs kfuncs;
volatile struct control control;

#include "view.bpf.h"
#include "compat.bpf.h"
#include "point.bpf.h"
#include "stats.bpf.h"
#include "filter.bpf.h"
#include "bins.bpf.h"
#include "names.bpf.h"
#include "page.bpf.h"
#include "thread.bpf.h"
#include "group.bpf.h"
#include "frames.bpf.h"
#include "breakdown.bpf.h"
#include "slow.bpf.h"
#include "slot_ring.bpf.h"
#include "kernel_ring.bpf.h"
#include "events.bpf.h"
#include "async.bpf.h"
#include "syscall.bpf.h"
#include "sleep.bpf.h"
#include "neighbour.bpf.h"
#include "table.bpf.h"
#include "block.bpf.h"
#include "function.bpf.h"
#include "session.bpf.h"
#include "process.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
