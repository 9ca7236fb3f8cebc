/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* System calls, by the sys_enter and sys_exit tracepoints or by their functions. A thread is in one at a time. */
#ifndef __SYSCALL_BPF_H__
#define __SYSCALL_BPF_H__

/* Point of each system call number that is measured, 0 for the others. */
const volatile __u32 syscall_points[MAX_SYSCALLS];

/* thread_info.status: a system call of the 32-bit table (arch/x86/include/asm/thread_info.h). */
#define TS_COMPAT 2

/* Its numbers mean other calls. */
static __always_inline bool in_32bit_call(void)
{
#if defined(__TARGET_ARCH_x86)
	struct task_struct *task = (void *)bpf_get_current_task();

	return BPF_CORE_READ(task, thread_info.status) & TS_COMPAT;
#else
	return false;
#endif
}

static __always_inline __u32 syscall_point(unsigned long number)
{
	return number < MAX_SYSCALLS ? syscall_points[number] : 0;
}

/* Whether a call works on a file that was asked for, by the descriptors among its arguments: any of them will do. */
#define DEFINE_ENTER_SYSCALL(NAME, ARGS, ARG_0, ARG_1, ARG_2)                                                          \
	static __always_inline int NAME(__u32 point, ARGS *args)                                                       \
	{                                                                                                              \
		__u32 files = point_files(point);                                                                      \
		enum verdict verdict = TRACED;                                                                         \
                                                                                                                       \
		if (files != FILES_NONE) {                                                                             \
			verdict = judge_descriptor(ARG_0(args));                                                       \
			if (verdict != TRACED && files == FILES_0_OR_1)                                                \
				verdict = judge_descriptor(ARG_1(args));                                               \
			if (verdict != TRACED && files == FILES_0_OR_2)                                                \
				verdict = judge_descriptor(ARG_2(args));                                               \
		} else if (config.by_disk && point_return(point) != RETURN_FD) {                                       \
			/* Of a call that makes a descriptor, the file is known at its return. */                      \
			verdict = FOREIGN;                                                                             \
		}                                                                                                      \
		if (verdict == TRACED)                                                                                 \
			begin(point, 0);                                                                               \
		else if (verdict == EXCLUDED)                                                                          \
			count_excluded(point_op(point));                                                               \
		return 0;                                                                                              \
	}

#define DIRECT_ARG_0(regs) SYSCALL_ARG_0(regs, DIRECT_REGISTER)
#define DIRECT_ARG_1(regs) SYSCALL_ARG_1(regs, DIRECT_REGISTER)
#define DIRECT_ARG_2(regs) SYSCALL_ARG_2(regs, DIRECT_REGISTER)
DEFINE_ENTER_SYSCALL(enter_syscall_direct, struct pt_regs, DIRECT_ARG_0, DIRECT_ARG_1, DIRECT_ARG_2)

#define PROBED_ARG_0(regs) SYSCALL_ARG_0(regs, PROBED_REGISTER)
#define PROBED_ARG_1(regs) SYSCALL_ARG_1(regs, PROBED_REGISTER)
#define PROBED_ARG_2(regs) SYSCALL_ARG_2(regs, PROBED_REGISTER)
DEFINE_ENTER_SYSCALL(enter_syscall_probed, struct pt_regs, PROBED_ARG_0, PROBED_ARG_1, PROBED_ARG_2)

#define CLASSIC_ARG_0(ctx) ((ctx)->args[0])
#define CLASSIC_ARG_1(ctx) ((ctx)->args[1])
#define CLASSIC_ARG_2(ctx) ((ctx)->args[2])
DEFINE_ENTER_SYSCALL(enter_syscall_classic, struct trace_event_raw_sys_enter, CLASSIC_ARG_0, CLASSIC_ARG_1,
		     CLASSIC_ARG_2)

static __always_inline int leave_syscall(long value, __u64 now)
{
	/* A thread is in one system call at a time. */
	const __u32 any = SYSCALL_FRAME << POINT_FRAME_SHIFT | 1u << POINT_OUTERMOST_SHIFT;
	struct ended call;

	if (!end(any, now, &call))
		return 0;
	if (point_return(call.point) == RETURN_FD && value >= 0) {
		enum verdict verdict = judge_descriptor(value);

		if (verdict == EXCLUDED)
			count_excluded(point_op(call.point));
		if (verdict != TRACED)
			return 0;
	}
	record(call.point, call.ns, value);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter_btf, struct pt_regs *regs, long number)
{
	__u32 point = syscall_point(number);

	if (!point || control.stopped || !thread_is_traced() || in_32bit_call())
		return 0;
	return enter_syscall_direct(point, regs);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit_btf, struct pt_regs *regs, long value)
{
	__u64 now = bpf_ktime_get_ns();

	return process_is_traced() ? leave_syscall(value, now) : 0;
}

SEC("tracepoint/raw_syscalls/sys_enter")
int sys_enter_classic(struct trace_event_raw_sys_enter *ctx)
{
	__u32 point = syscall_point(ctx->id);

	if (!point || control.stopped || !thread_is_traced() || in_32bit_call())
		return 0;
	return enter_syscall_classic(point, ctx);
}

SEC("tracepoint/raw_syscalls/sys_exit")
int sys_exit_classic(struct trace_event_raw_sys_exit *ctx)
{
	__u64 now = bpf_ktime_get_ns();

	return process_is_traced() ? leave_syscall(ctx->ret, now) : 0;
}

#endif
