/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What libbpf's headers define, for the build machine. */
#ifndef __MACROS_H__
#define __MACROS_H__

#define barrier() __asm__ volatile("" ::: "memory")
/* Nothing runs at the same time. */
#define order_for_all(word) barrier()
#define barrier_var(var) __asm__ volatile("" : "+r"(var))
#define likely(condition) (condition)
#define unlikely(condition) (condition)
#define __noinline
#define SEC(name)
#define __uint(name, value) int (*name)[value]
#define __type(name, value) __typeof__(value) *name
#ifndef __VMLINUX_H__
enum { BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_HASH, BPF_F_MMAPABLE };
#endif

#endif
