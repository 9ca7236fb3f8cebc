/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * System calls, by the sys_enter and sys_exit tracepoints or by their functions. A thread is in one at a time, so all
 * of them share one frame.
 */
#ifndef __SYSCALL_BPF_H__
#define __SYSCALL_BPF_H__

/* Per system call number: its point, 0 if the call is not measured. */
const volatile __u32 syscall_points[MAX_SYSCALLS];
/* Likewise for the numbers of the 32-bit table. */
const volatile __u32 compat_points[MAX_SYSCALLS];

static __always_inline __u32 syscall_point(unsigned long number)
{
	return number < MAX_SYSCALLS ? syscall_points[number] : 0;
}

static __always_inline __u32 compat_point(unsigned long number)
{
	return number < MAX_SYSCALLS ? compat_points[number] : 0;
}

/* Per system call number: 1 + the vfs op that counts the call by a cookie (session.bpf.h); 0 for the others. */
const volatile __u8 cookie_calls[MAX_SYSCALLS];
/* Likewise for the numbers of the 32-bit table. */
const volatile __u8 compat_cookie_calls[MAX_SYSCALLS];

/* include/linux/sched.h */
#define PF_KTHREAD 0x00200000

/*
 * Whether `point` is called inside a call of its op that a session program counts: file systems call vfs functions for
 * the file behind one of theirs.
 */
static __always_inline bool is_inside_session(__u32 point)
{
	struct task_struct *task;
	struct pt_regs *saved;
	unsigned long number;

	if (!config.cookies || point_is_outermost(point) || point_return(point) != RETURN_BYTES)
		return false;
	task = bpf_get_current_task_btf();
	/* Kernel threads and io_uring workers make no system calls: their saved registers mean nothing. */
	if (task->flags & (PF_KTHREAD | PF_IO_WORKER))
		return false;
	saved = (void *)bpf_task_pt_regs(task);
	number = SYSCALL_NUMBER(true, saved);
	if (number >= MAX_SYSCALLS)
		return false;
	return (in_32bit_call() ? compat_cookie_calls[number] : cookie_calls[number]) == point_op(point) + 1;
}

/* The call before the one that begins now has not returned, as far as was seen: counts it as lost. */
__noinline int drop_unreturned(__u32 thread)
{
	struct thread_state *state = config.sample ? find_thread(thread) : NULL;
	struct frame *frame;
	bool has_breakdown;

	if (!state)
		return 0;
	/* A breakdown has a reference to the state until put_breakdown(). */
	has_breakdown = WHOLE_STACK && state->breakdown.depth;
	frame = &state->calls.frames[SYSCALL_FRAME];
	if (frame->entered_ns) {
		lose_frame(frame, frame->entered_ns);
		frame->entered_ns = 0;
		put_thread(state, thread);
	}
	if (has_breakdown) {
		count_unbalanced(&state->breakdown, UNBALANCED_ENTRY, state->breakdown.depth);
		put_breakdown(state, thread);
	}
	return 0;
}

/* Whether a system call of the thread is being measured. */
static __always_inline bool is_in_measured_call(__u32 thread)
{
	struct thread_state *state = find_thread(thread);

	return state && (state->calls.frames[SYSCALL_FRAME].entered_ns || (WHOLE_STACK && state->breakdown.depth));
}

/*
 * With --sample: whether a system call that begins is not measured. Its return must not be taken for that of an
 * earlier one.
 */
static __always_inline bool leaves_out_call(__u32 thread)
{
	if (is_chosen())
		return false;
	if (unlikely(is_in_measured_call(thread)))
		drop_unreturned(thread);
	return true;
}

/* Whether the return of a system call is to be handled. Spares the returns of all that --sample leaves out the rest. */
static __always_inline bool returns_measured(__u32 thread)
{
	return !config.sample || is_in_measured_call(thread);
}

/* The point of a call that begins, 0 if it is not measured. `compat`: whether the call is one of the 32-bit table. */
static __always_inline __u32 entered_point(unsigned long number, struct thread_id *id, bool *compat)
{
	if (number >= MAX_SYSCALLS || !(syscall_points[number] | compat_points[number]))
		return 0;
	*id = current_id();
	if (!thread_is_traced(*id) || control.stopped & STOP_CALLS || leaves_out_call(id->thread))
		return 0;
	*compat = in_32bit_call();
	return *compat ? compat_points[number] : syscall_points[number];
}

/* Whether a path was passed. An empty path, or NULL, stands for the descriptor alone (AT_EMPTY_PATH). */
__noinline int has_path(__u64 path)
{
	char first = 0;

	if (!path)
		return 0;
	/* A path that cannot be read now may be readable by the time that the kernel reads it. */
	return bpf_probe_read_user(&first, sizeof(first), (void *)path) || first;
}

/* include/uapi/asm-generic/mman-common.h */
#define MAP_ANONYMOUS 0x20

/* Whether a call that is recorded with some of its commands only has one of these. */
__noinline int is_recorded_command(__u32 op, __u32 command)
{
#pragma unroll
	for (int i = 0; i < COMMANDS; i++) {
		if (call_commands[i].mask && call_commands[i].op == op &&
		    (command & call_commands[i].mask) == call_commands[i].value)
			return 1;
	}
	return 0;
}

/* A call has begun that never returns: counts and records it. */
__noinline int end_call_at_once(__u32 thread)
{
	struct thread_state *state = config.records ? find_thread(thread) : NULL;
	struct frame *frame;
	__u64 begin;

	if (!state)
		return 0;
	frame = &state->calls.frames[SYSCALL_FRAME];
	begin = frame->entered_ns;
	record_out_of_line(point_op(frame->point), 0, 0);
	record_in_group(frame->group, point_op(frame->point), false, 0, 0, 0);
	frame->entered_ns = 0;
	put_thread(state, thread);
	record_call(thread, begin, begin, 0);
	return 0;
}

static __always_inline struct file *file_of_argument(__u32 fd)
{
	return WHOLE_STACK ? (struct file *)file_of_rare_descriptor(fd) : file_of_descriptor(fd);
}

static __always_inline enum verdict check_file_of_argument(struct file *file)
{
	return WHOLE_STACK ? check_rare_file((__u64)file) : check_file(file);
}

/* Where the arguments of a system call are. */
enum arguments {
	IN_REGISTERS, /* saved registers, through a typed pointer */
	IN_PROBED_REGISTERS, /* saved registers, by probe reads */
	IN_EVENT, /* the event of a tracepoint: the kernel takes the arguments from the right registers */
};

/* `from` has to be a compile-time constant. `compat`: the call is one of the 32-bit table. */
#define CALL_ARG(args, from, compat, n)                                                                                \
	((from) == IN_EVENT ? ((struct trace_event_raw_sys_enter *)(args))->args[n] :                                  \
	 (compat)	    ? COMPAT_SYSCALL_ARG_##n((from) == IN_REGISTERS, (struct pt_regs *)(args)) :               \
			      SYSCALL_ARG_##n((from) == IN_REGISTERS, (struct pt_regs *)(args)))

/*
 * A system call begins. It is traced if a descriptor among its arguments leads to a selected file: any of them will do.
 */
static __always_inline int enter_syscall(__u32 point, __u32 thread, void *args, enum arguments from, bool compat)
{
	struct thread_state *state;
	struct frame *frame;
	__u32 files = point_files(point);
	enum verdict verdict = TRACED;
	struct file *file = NULL;
	struct breakdown *breakdown;
	struct recorder *recorder;
	__u64 group;
	__u32 fd = 0;

	if (files != FILES_NONE)
		fd = CALL_ARG(args, from, compat, 0);
	if (unlikely(files >= FILES_0_WITHOUT_PATH)) {
		__u32 second = CALL_ARG(args, from, compat, 1);

		/* For the reason given below. */
		barrier_var(second);
		if (files == FILES_0_WITHOUT_PATH) {
			files = has_path(CALL_ARG(args, from, compat, 1)) ? FILES_NONE : FILES_0;
		} else if (config.records && files == FILES_0_OF_COMMAND) {
			if (!is_recorded_command(point_op(point), second))
				return 0;
			files = FILES_0;
		} else if (config.records && files == FILES_4) {
			__u32 flags = CALL_ARG(args, from, compat, 3);

			if (flags & MAP_ANONYMOUS)
				return 0;
			fd = CALL_ARG(args, from, compat, 4);
			files = FILES_0;
		} else if (config.records) {
			files = FILES_NONE; /* FILES_ENDS */
		}
	}
	if (files != FILES_NONE && !point_is_checked_at_return(point)) {
		file = file_of_argument(fd);
		verdict = check_file_of_argument(file);
		if (verdict != TRACED && files != FILES_0) {
			fd = CALL_ARG(args, from, compat, 1);
			/*
			 * Without it the compiler merges the two loads into one with a computed offset, which the
			 * verifier refuses for a context.
			 */
			barrier_var(fd);
			if (files == FILES_0_OR_2)
				fd = CALL_ARG(args, from, compat, 2);
			file = file_of_argument(fd);
			verdict = check_file_of_argument(file);
		}
	} else if (!point_is_checked_at_return(point) && (config.by_disk || config.by_file) &&
		   point_return(point) != RETURN_FD) {
		/* If a call returns a descriptor, its file is known at the return. */
		verdict = NOT_SELECTED;
	}
	if (verdict == TRACED) {
		state = thread_of_call(point, thread);
		if (!state)
			return 0;
		group = group_of_call(state, thread, file, false);
		recorder = config.records ? recorder_of_call(state, thread) : NULL;
		if (config.records && !recorder) {
			count_lost(point_op(point), LOST_TABLE_FULL, 1);
			return 0;
		}
		if (config.records) {
			__u32 has = (files != FILES_NONE ? CALL_HAS_FD : 0) | (compat ? CALL_IS_COMPAT : 0);

			recorder->at_end = 0;
			recorder->call.numbers[0] = CALL_ARG(args, from, compat, 2);
			recorder->call.numbers[1] = CALL_ARG(args, from, compat, 3);
			if (unlikely(point_needs_all(point))) {
				recorder->arguments[1] = CALL_ARG(args, from, compat, 0);
				recorder->arguments[2] = CALL_ARG(args, from, compat, 1);
				recorder->arguments[3] = recorder->call.numbers[0];
				recorder->arguments[4] = recorder->call.numbers[1];
				recorder->arguments[5] = CALL_ARG(args, from, compat, 4);
				recorder->arguments[6] = CALL_ARG(args, from, compat, 5);
				has |= note_numbers(recorder, point_op(point));
			}
			begin_record(recorder, point, thread, file, fd, has);
		}
		/* Only now does the call begin: what was done so far would be most of a short call's time. */
		frame = begin(state, point, 0, 0);
		if (!frame)
			return 0;
		frame->group = group;
		if (config.records)
			recorder->call.begin_ns = frame->entered_ns;
		if (config.records && unlikely(point_needs_all(point)) && point_files(point) == FILES_ENDS) {
			end_call_at_once(thread);
			return 0;
		}
		if (!WHOLE_STACK)
			return 0;
		breakdown = begin_breakdown(state, thread, point_op(point), frame->entered_ns, frame->group);
		if (WHOLE_STACK && breakdown && point_is_checked_at_return(point)) {
			breakdown->is_unchecked = 1;
			breakdown->fd = fd;
		}
		/* Without a file here, is_direct() decides at vfs. */
		if (WHOLE_STACK && breakdown && file && breakdown->family == FAMILY_READ)
			breakdown->direct = is_opened_direct(file);
		if (REPORTS_SLOW && breakdown) {
			breakdown->arguments[0] = CALL_ARG(args, from, compat, 0);
			breakdown->arguments[1] = CALL_ARG(args, from, compat, 1);
			breakdown->arguments[2] = CALL_ARG(args, from, compat, 2);
			breakdown->arguments[3] = CALL_ARG(args, from, compat, 3);
			breakdown->fd = fd;
			breakdown->file = (__u64)file;
			breakdown->dentry = 0;
			if (unlikely(call_shapes[point_op(point)].effect & CALL_CLOSES))
				keep_closed_file(thread);
		}
	} else if (verdict >= EXCLUDED)
		count_excluded(point_op(point), verdict);
	return 0;
}

static __always_inline int leave_syscall(__u32 thread, long value, __u64 now)
{
	/* A thread is in one system call at a time, so any point of the frame will do. */
	const __u32 any = SYSCALL_FRAME << POINT_FRAME_SHIFT | 1u << POINT_OUTERMOST_SHIFT;
	struct thread_state *state = find_thread(thread);
	struct ended call;
	bool has_breakdown, is_unchecked;
	__u64 step;

	if (!state)
		return 0;
	/* A breakdown has a reference to the state until put_breakdown(). */
	has_breakdown = WHOLE_STACK && state->breakdown.depth;
	if (!end(state, any, thread, &call) || !has_valid_times(call.point, &call, now)) {
		if (config.records)
			forget_record(thread);
		if (has_breakdown)
			put_breakdown(state, thread);
		return 0;
	}
	is_unchecked = has_breakdown && state->breakdown.is_unchecked;
	/* A failed open has no file: it is not counted if files or disks are selected. */
	if (is_unchecked ||
	    (point_return(call.point) == RETURN_FD && (value >= 0 || config.by_file || config.by_disk))) {
		struct file *file = file_of_argument(is_unchecked ? state->breakdown.fd : value);
		enum verdict verdict = check_file_of_argument(file);

		if (groups_are_of_files())
			call.group = group_of_file(as_number((__u64)file));
		if (REPORTS_SLOW && is_unchecked)
			state->breakdown.file = (__u64)file;
		if (verdict >= EXCLUDED)
			count_excluded(point_op(call.point), verdict);
		if (verdict != TRACED) {
			if (config.records)
				forget_record(thread);
			if (has_breakdown)
				put_breakdown(state, thread);
			return 0;
		}
		if (config.records && is_unchecked)
			note_file_at_end(thread, state->breakdown.fd, value);
	}
	if (config.records && point_return(call.point) == RETURN_FD && value >= 0)
		note_opened(thread, value);
	step = step_of(now - call.entered_ns);
	if (has_breakdown)
		end_breakdown(state, thread, now, step, value, point_return(call.point) == RETURN_BYTES, call.group);
	/* With rows_only the ops count failed calls, and calls of no family: all others are in the families. */
	if (!ROWS_ONLY)
		record_all(call.point, &call, now, step, value);
	else if (!has_breakdown || errno_of(value))
		record_out_of_line(point_op(call.point) |
					   (point_return(call.point) == RETURN_BYTES ? COUNTER_MOVES_BYTES : 0),
				   now - call.entered_ns, value);
	/* Otherwise end_breakdown() has recorded it. */
	if (config.records && !has_breakdown)
		record_call(thread, call.entered_ns, now, value);
	/* Last, when no other state is live: the verifier checks it once for all paths. */
	if (REPORTS_SLOW && has_breakdown)
		report_ended(state, thread);
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(sys_enter_btf, struct pt_regs *regs, long number)
{
	bool compat = false;
	struct thread_id id = {};
	__u32 point = entered_point(number, &id, &compat);

	if (!point)
		return 0;
	return enter_syscall(point, id.thread, regs, IN_REGISTERS, compat);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(sys_exit_btf, struct pt_regs *regs, long value)
{
	struct thread_id id = current_id();

	return process_is_traced(id) && returns_measured(id.thread) ? leave_syscall(id.thread, value, bpf_ktime_get_ns()) : 0;
}

SEC("tracepoint/raw_syscalls/sys_enter")
int sys_enter_classic(struct trace_event_raw_sys_enter *ctx)
{
	bool compat = false;
	struct thread_id id = {};
	__u32 point = entered_point(ctx->id, &id, &compat);

	return point ? enter_syscall(point, id.thread, ctx, IN_EVENT, compat) : 0;
}

SEC("tracepoint/raw_syscalls/sys_exit")
int sys_exit_classic(struct trace_event_raw_sys_exit *ctx)
{
	struct thread_id id = current_id();

	return process_is_traced(id) && returns_measured(id.thread) ? leave_syscall(id.thread, ctx->ret, bpf_ktime_get_ns()) : 0;
}

#endif
