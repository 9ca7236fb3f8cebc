/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* System calls, by the sys_enter and sys_exit tracepoints or by their functions. A thread is in one at a time. */
#ifndef __SYSCALL_BPF_H__
#define __SYSCALL_BPF_H__

/* Point of each system call number that is measured, 0 for the others. */
const volatile __u32 syscall_points[MAX_SYSCALLS];
/* The same of the numbers that 32-bit programs use. */
const volatile __u32 compat_points[MAX_SYSCALLS];

static __always_inline __u32 syscall_point(unsigned long number)
{
	return number < MAX_SYSCALLS ? syscall_points[number] : 0;
}

static __always_inline __u32 compat_point(unsigned long number)
{
	return number < MAX_SYSCALLS ? compat_points[number] : 0;
}

/* The op of each system call that comes by a function whose start is in a cookie (session.bpf.h), counted from 1; 0 for the others. */
const volatile __u8 cookie_calls[MAX_SYSCALLS];
/* The same of the numbers that 32-bit programs use. */
const volatile __u8 compat_cookie_calls[MAX_SYSCALLS];

/* include/linux/sched.h */
#define PF_KTHREAD 0x00200000

/* include/uapi/asm-generic/fcntl.h, and what x86 and arm64 have of their own */
#if defined(__TARGET_ARCH_x86)
#define O_DIRECT 00040000
#else
#define O_DIRECT 00200000
#endif

/*
 * Whether a function of `point` is called inside one of its op whose start is in a cookie, and which counts: a file system does that to
 * get at the file behind one of its own.
 */
static __always_inline bool is_inside_session(__u32 point)
{
	struct task_struct *task;
	struct pt_regs *saved;
	unsigned long number;

	if (!config.cookies || point_is_outermost(point) || point_return(point) != RETURN_BYTES)
		return false;
	task = bpf_get_current_task_btf();
	/* These make no system calls, and what is saved of them is none. */
	if (task->flags & (PF_KTHREAD | PF_IO_WORKER))
		return false;
	saved = (void *)bpf_task_pt_regs(task);
	number = SYSCALL_NUMBER(true, saved);
	if (number >= MAX_SYSCALLS)
		return false;
	return (in_32bit_call() ? compat_cookie_calls[number] : cookie_calls[number]) == point_op(point) + 1;
}

/* The point of a call that begins, 0 when it is not measured. `compat`: whether it is one of the 32-bit table. */
static __always_inline __u32 entered_point(unsigned long number, __u64 *id, bool *compat)
{
	if (number >= MAX_SYSCALLS || !(syscall_points[number] | compat_points[number]))
		return 0;
	*id = current_id();
	if (!thread_is_traced(*id) || control.stopped & STOP_CALLS)
		return 0;
	*compat = in_32bit_call();
	return *compat ? compat_points[number] : syscall_points[number];
}

/* Whether a call is given a path, and not an empty one, which stands for its descriptor alone (AT_EMPTY_PATH), as none does. */
__noinline int has_path(__u64 path)
{
	char first = 0;

	if (!path)
		return 0;
	/* One that cannot be read now may be there by the time that the kernel looks. */
	return bpf_probe_read_user(&first, sizeof(first), (void *)path) || first;
}

/* Where the arguments of a system call are. */
enum arguments {
	IN_REGISTERS, /* saved ones, which can be read directly */
	IN_PROBED_REGISTERS,
	IN_EVENT, /* a tracepoint's: the kernel takes them out of the right registers */
};

/* `from`: constant where this is in line. `compat`: the call is one of the 32-bit table. */
#define CALL_ARG(args, from, compat, n)                                                                                \
	((from) == IN_EVENT ? ((struct trace_event_raw_sys_enter *)(args))->args[n] :                                  \
	 (compat)	    ? COMPAT_SYSCALL_ARG_##n((from) == IN_REGISTERS, (struct pt_regs *)(args)) :               \
			      SYSCALL_ARG_##n((from) == IN_REGISTERS, (struct pt_regs *)(args)))

/* Whether a call works on a file that was asked for, by the descriptors among its arguments: any of them will do. */
static __always_inline int enter_syscall(__u32 point, __u32 thread, void *args, enum arguments from, bool compat)
{
	struct thread_state *state;
	struct frame *frame;
	__u32 files = point_files(point);
	enum verdict verdict = TRACED;
	struct file *file = NULL;
	struct breakdown *breakdown;
	__u32 fd = 0;

	if (files == FILES_0_WITHOUT_PATH)
		files = has_path(CALL_ARG(args, from, compat, 1)) ? FILES_NONE : FILES_0;
	if (files != FILES_NONE)
		fd = CALL_ARG(args, from, compat, 0);
	if (files != FILES_NONE && !point_is_checked_at_return(point)) {
		file = file_of_descriptor(fd);
		verdict = check_file(file);
		if (verdict != TRACED && files != FILES_0) {
			fd = CALL_ARG(args, from, compat, 1);
			/* Else it would be a computed offset into a context. */
			barrier_var(fd);
			if (files == FILES_0_OR_2)
				fd = CALL_ARG(args, from, compat, 2);
			file = file_of_descriptor(fd);
			verdict = check_file(file);
		}
	} else if (!point_is_checked_at_return(point) && (config.by_disk || config.by_file) &&
		   point_return(point) != RETURN_FD) {
		/* Of a call that makes a descriptor, the file is known at its return. */
		verdict = NOT_SELECTED;
	}
	if (verdict == TRACED) {
		state = thread_of_call(point, thread);
		frame = state ? begin(state, point, 0, 0) : NULL;
		if (frame)
			frame->group = group_of_call(file);
		if (!config.whole_stack || !frame)
			return 0;
		breakdown = begin_breakdown(state, point_op(point), frame->entered_ns, frame->group);
		if (config.whole_stack && breakdown && point_is_checked_at_return(point)) {
			breakdown->is_unchecked = 1;
			breakdown->fd = fd;
		}
		/* Else a function of vfs tells. */
		if (config.whole_stack && breakdown && file && breakdown->family == FAMILY_READ)
			breakdown->direct = !!(BPF_CORE_READ(file, f_flags) & O_DIRECT);
		if (config.reports_slow && breakdown) {
			breakdown->arguments[0] = CALL_ARG(args, from, compat, 0);
			breakdown->arguments[1] = CALL_ARG(args, from, compat, 1);
			breakdown->arguments[2] = CALL_ARG(args, from, compat, 2);
			breakdown->arguments[3] = CALL_ARG(args, from, compat, 3);
			keep_file(thread, point_op(point), fd, as_number((__u64)file));
		}
	} else if (verdict >= EXCLUDED)
		count_excluded(point_op(point), verdict);
	return 0;
}

static __always_inline int leave_syscall(__u32 thread, long value, __u64 now)
{
	/* A thread is in one system call at a time. */
	const __u32 any = SYSCALL_FRAME << POINT_FRAME_SHIFT | 1u << POINT_OUTERMOST_SHIFT;
	struct thread_state *state = find_thread(thread);
	struct ended call;
	bool has_breakdown, is_unchecked;
	__u64 step;

	if (!state)
		return 0;
	/* A breakdown holds the state until it is put down. */
	has_breakdown = config.whole_stack && state->breakdown.depth;
	if (!end(state, any, thread, &call) || !has_valid_times(call.point, &call, now)) {
		if (has_breakdown)
			put_breakdown(state, thread);
		return 0;
	}
	is_unchecked = has_breakdown && state->breakdown.is_unchecked;
	/* One that failed has opened no file: not the one asked for, and none on that disk. */
	if (is_unchecked ||
	    (point_return(call.point) == RETURN_FD && (value >= 0 || config.by_file || config.by_disk))) {
		struct file *file = file_of_descriptor(is_unchecked ? state->breakdown.fd : value);
		enum verdict verdict = check_file(file);

		call.group = group_of_call(file);

		if (verdict >= EXCLUDED)
			count_excluded(point_op(call.point), verdict);
		if (verdict != TRACED) {
			if (has_breakdown)
				put_breakdown(state, thread);
			return 0;
		}
	}
	step = step_of(now - call.entered_ns);
	if (has_breakdown)
		end_breakdown(state, thread, now, step, value, point_return(call.point) == RETURN_BYTES, call.group);
	/* The text tells which calls failed, and has the others in their families. */
	if (!config.rows_only)
		record_all(call.point, &call, now, step, value);
	else if (!has_breakdown || errno_of(value))
		record_out_of_line(point_op(call.point) | (point_return(call.point) == RETURN_BYTES ? COUNTER_MOVES_BYTES : 0),
			     now - call.entered_ns, value);
	/* Last, when nothing else is needed any more: the verifier looks at what comes now once for all ways to here. */
	if (config.reports_slow && has_breakdown)
		report_ended(state, thread);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter_btf, struct pt_regs *regs, long number)
{
	bool compat = false;
	__u64 id = 0;
	__u32 point = entered_point(number, &id, &compat);

	if (!point)
		return 0;
	return enter_syscall(point, id, regs, IN_REGISTERS, compat);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit_btf, struct pt_regs *regs, long value)
{
	__u64 id = current_id();

	return process_is_traced(id) ? leave_syscall(id, value, bpf_ktime_get_ns()) : 0;
}

SEC("tracepoint/raw_syscalls/sys_enter")
int sys_enter_classic(struct trace_event_raw_sys_enter *ctx)
{
	bool compat = false;
	__u64 id = 0;
	__u32 point = entered_point(ctx->id, &id, &compat);

	return point ? enter_syscall(point, id, ctx, IN_EVENT, compat) : 0;
}

SEC("tracepoint/raw_syscalls/sys_exit")
int sys_exit_classic(struct trace_event_raw_sys_exit *ctx)
{
	__u64 id = current_id();

	return process_is_traced(id) ? leave_syscall(id, ctx->ret, bpf_ktime_get_ns()) : 0;
}

#endif
