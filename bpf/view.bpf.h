/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The view of a run, a constant of its object: build/kernel_side.rs compiles one object for each view, so that the
 * templates of single layers lack the code of the whole-stack view. Both objects have the same maps, variables and
 * programs, in the layout that the skeleton has.
 */
#ifndef __VIEW_BPF_H__
#define __VIEW_BPF_H__

/* 1: the time of calls is broken down into rows (breakdown.bpf.h); 0: the calls of each layer are timed separately. */
#ifndef WHOLE_STACK
#error "define WHOLE_STACK as 0 or 1"
#endif

/* Only the whole-stack view reports slow calls (slow.bpf.h), or measures no op below the system calls. */
#define REPORTS_SLOW (WHOLE_STACK && config.reports_slow)
#define ROWS_ONLY (WHOLE_STACK && config.rows_only)

#endif
