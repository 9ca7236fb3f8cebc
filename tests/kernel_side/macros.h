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
/* Fields of the kernel's structures, which are the program's own here. */
#define READ_1(from, field) ((from)->field)
#define READ_2(from, field, of_it) ((from)->field->of_it)
#define READ_OF(a, b, c, name, ...) name
#define BPF_CORE_READ(...) READ_OF(__VA_ARGS__, READ_2, READ_1)(__VA_ARGS__)
#define READ(typed, from, field) ((void)(typed), (from)->field)
#define TYPED(pointer) (pointer)
#ifndef __VMLINUX_H__
enum { BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_ARRAY_OF_MAPS, BPF_F_MMAPABLE };
#endif

#endif
