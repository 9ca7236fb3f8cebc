/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Programs on kernel functions: of vfs, of file systems, and of system calls. They are templates that the loader
 * specialises by rewriting their POINT_UNSET: once for each function (fentry, fexit, kprobe, kretprobe), or once for
 * all functions with the same point (kprobe.multi, kprobe.session).
 */
#ifndef __FUNCTION_BPF_H__
#define __FUNCTION_BPF_H__

/*
 * The n-th argument of a function. `direct`: the context holds the arguments (fentry); else it is struct pt_regs at the
 * entry (kprobe).
 */
#define ARGUMENT(ctx, direct, n) ((direct) ? CONTEXT_WORD(ctx, n) : REGISTER_ARG_##n((struct pt_regs *)(ctx)))
#define REGISTER_ARG_0(ctx) PT_REGS_PARM1(ctx)
#define REGISTER_ARG_1(ctx) PT_REGS_PARM2(ctx)

/* Checks the file of a call against the guard of its point and the filters. `direct`: `file` is a typed pointer. */
static __always_inline enum verdict check_file_at(struct file *file, bool direct, __u32 point)
{
	struct inode *inode;

	if (point_guard(point) == GUARD_F_OP && (__u64)READ(direct, file, f_op) != guard_value(point))
		return OTHER_FILE_SYSTEM;
	/* Older XFS opens directories through the function for files too; only opens of files count. */
	if (point_shape(point) == SHAPE_FILE_1) {
		inode = READ(direct, file, f_inode);
		if ((READ(direct, inode, i_mode) & S_IFMT) == S_IFDIR)
			return NOT_SELECTED;
	}
	if (point_guard(point) == GUARD_MAGIC) {
		struct super_block *sb;

		inode = READ(direct, file, f_inode);
		sb = READ(direct, inode, i_sb);
		if (READ(direct, sb, s_magic) != guard_value(point))
			return OTHER_FILE_SYSTEM;
	}
	if (point_files_and_dirs(point) && !config.by_file && !config.by_disk)
		return TRACED;
	return direct ? check_file_as(file, true) : check_file_probed(file);
}

#define PASSED(ctx, direct, passed, n) ((passed) ? (passed)[n] : ARGUMENT(ctx, direct, n))

/*
 * Finds the file of a call and checks it. `passed`: the first two arguments of the function, if they were taken from the context;
 * NULL: they are taken where they are needed, and not kept until then. It has to be a constant in an inlined function.
 */
static __always_inline enum verdict check_passed(void *ctx, bool direct, __u32 point, const __u64 *passed)
{
	__u32 shape = point_shape(point);
	struct inode *inode;
	struct file *file;

	/* SHAPE_FILE_1, an open, is checked below, as it may be called for directories. */
	if (point_files_and_dirs(point) && shape != SHAPE_FILE_1 && !point_is_shared(point) && !config.by_file &&
	    !config.by_disk)
		return TRACED;
	if (shape == SHAPE_FD_0 || shape == SHAPE_SYSCALL_FD_0 || shape == SHAPE_SYSCALL_32_FD_0) {
		struct pt_regs *saved = (void *)PASSED(ctx, direct, passed, 0);
		__u64 descriptor;

		if (shape == SHAPE_FD_0)
			descriptor = PASSED(ctx, direct, passed, 0);
		else if (shape == SHAPE_SYSCALL_FD_0)
			descriptor = SYSCALL_ARG_0(direct, saved);
		else
			descriptor = COMPAT_SYSCALL_ARG_0(direct, saved);
		return check_descriptor(descriptor);
	}
	if (shape == SHAPE_PATH_0 || shape == SHAPE_DIR_0) {
		inode = (void *)PASSED(ctx, direct, passed, 0);
		if (shape == SHAPE_PATH_0) {
			struct path *path = (void *)inode;
			struct dentry *dentry = READ(direct, path, dentry);

			inode = READ(direct, dentry, d_inode);
		}
		return check_inode(inode, direct);
	}
	if (shape == SHAPE_KIOCB_0) {
		struct kiocb *kiocb = (void *)PASSED(ctx, direct, passed, 0);

		file = READ(direct, kiocb, ki_filp);
	} else if (shape == SHAPE_FILE_1) {
		file = (void *)PASSED(ctx, direct, passed, 1);
	} else if (shape == SHAPE_FAULT_0) {
		struct vm_fault *fault = (void *)PASSED(ctx, direct, passed, 0);
		struct vm_area_struct *area = READ(direct, fault, vma);

		file = READ(direct, area, vm_file);
	} else {
		file = (void *)PASSED(ctx, direct, passed, 0);
	}
	return check_file_at(file, direct, point);
}

static __always_inline enum verdict check_call(void *ctx, bool direct, __u32 point)
{
	return check_passed(ctx, direct, point, NULL);
}

/*
 * Whether an attempt at a traced request may run in a thread that is not traced: workers of io_uring have thread names
 * of their own, and may be in another cgroup.
 */
static __always_inline bool may_be_tried_by_others(__u32 point)
{
	return point_shape(point) == SHAPE_KIOCB_0 &&
	       (point_is_async_entry(point) || config.by_comm || config.by_cgroup);
}

static __always_inline bool is_traced_request(__u64 kiocb)
{
	return bpf_map_lookup_elem(&asynchronous, &kiocb);
}

/* Whether a read or write bypasses the page cache, as far as its first argument shows. */
static __always_inline bool is_direct(__u32 point, bool direct, void *first)
{
	__u32 shape = point_shape(point);

	if (shape == SHAPE_KIOCB_0 && !point_is_async_entry(point)) {
		struct kiocb *kiocb = first;

		return READ(direct, kiocb, ki_flags) & IOCB_DIRECT;
	}
	/* A call on a block device file reaches no hooked function that takes a kiocb. */
	if (shape == SHAPE_FILE_0 && point_return(point) == RETURN_BYTES) {
		struct file *file = first;

		return READ(direct, file, f_flags) & O_DIRECT;
	}
	return false;
}

/* Throttling is in the row of queue time, which is only measured if bios are kept. */
static __always_inline bool row_is_measured(__u32 point)
{
	return WHOLE_STACK && (point_shape(point) != SHAPE_ROW_BIO_0 || block.bio_stamps);
}

/*
 * Whether the file of a call is noted, for is_of_written(). `breakdown`: of the call, or NULL. Of the writes, --sample only sees
 * some.
 */
static __always_inline bool notes_file_of(const struct breakdown *breakdown)
{
	return !config.sample && breakdown && may_write(breakdown) && block.bio_stamps;
}

/* Notes the file of a write; `breakdown` as in notes_file_of(). */
static __always_inline void note_file(__u32 point, void *first, const struct breakdown *breakdown)
{
	__u32 shape = point_shape(point);

	if (!notes_file_of(breakdown) || (point_return(point) != RETURN_BYTES && !point_is_async_entry(point)))
		return;
	if (shape == SHAPE_FILE_0)
		note_write(first);
	else if (shape == SHAPE_KIOCB_0)
		note_write(PROBED((struct kiocb *)first, ki_filp));
}

static __always_inline int enter_row(__u32 point, void *first, bool is_direct)
{
	struct thread_id id = current_id();
	struct thread_state *state;
	__u32 row = point_op(point);

	if (!row_is_measured(point))
		return 0;
	if (point_shape(point) == SHAPE_ROW_BIO_0)
		hold_bio(first);
	state = may_have_state(id) ? find_thread(id.thread) : NULL;
	if (state && (!config.sample || state->breakdown.depth))
		enter_function(state, ROW_KEY | row, row, false, is_direct, bpf_ktime_get_ns());
	return 0;
}

static __always_inline int leave_row(__u32 point)
{
	struct thread_id id = current_id();
	struct thread_state *state;

	state = row_is_measured(point) && may_have_state(id) ? find_thread(id.thread) : NULL;
	if (state && (!config.sample || state->breakdown.depth))
		leave_function(state, id.thread, ROW_KEY | point_op(point), false, bpf_ktime_get_ns());
	return 0;
}

/* Whether the function implements system calls. */
static __always_inline bool is_call(__u32 point)
{
	return point_shape(point) == SHAPE_SYSCALL;
}

/*
 * Whether this is a function of vfs that does all of a read or write system call, and gets its file. Nothing but these
 * calls calls it.
 */
static __always_inline bool does_call(__u32 point)
{
	return WHOLE_STACK && point_shape(point) == SHAPE_FILE_0 && point_return(point) == RETURN_BYTES &&
	       point_is_outermost(point) && op_rows[point_op(point) & (MAX_OPS - 1)] == ROW_VFS;
}

/*
 * Checks the file of a system call whose check was deferred to vfs (`is_unchecked`), and notes it for the call's record,
 * group and report. If it is not selected, drops the call as if it had never been seen, and returns true. `direct`:
 * `file` is a typed pointer. `bypasses`: it was opened with O_DIRECT.
 */
static __always_inline bool drop_if_not_selected(struct thread_state *state, __u32 thread, enum verdict verdict,
						 struct file *file, bool direct, bool bypasses)
{
	struct frame *frame = &state->calls.frames[SYSCALL_FRAME];
	struct recorder *recorder;

	state->breakdown.is_unchecked = 0;
	if (verdict == TRACED) {
		recorder = config.records ? find_recorder(thread) : NULL;
		if (recorder)
			note_file_of_call(recorder, thread, file, direct, bypasses);
		if (groups_are_of_files()) {
			frame->group = group_of_call(state, thread, file, direct);
			state->breakdown.group = frame->group;
		}
		if (REPORTS_SLOW)
			state->breakdown.file = (__u64)file;
		return false;
	}
	if (frame->entered_ns) {
		if (verdict >= EXCLUDED)
			count_excluded(point_op(frame->point), verdict);
		frame->entered_ns = 0;
		put_thread(state, thread);
	}
	put_breakdown(state, thread);
	/* Its return may find no state. */
	if (config.records)
		forget_record(thread);
	return true;
}

/*
 * With --sample: whether a function is not measured, whatever its file. Asynchronous requests are not, as a later
 * attempt at one does not show whether the first was chosen. In the whole-stack view what system calls that are
 * measured call is.
 */
static __always_inline bool is_outside(__u32 point, __u32 thread)
{
	return WHOLE_STACK ? !is_in_measured_call(thread) : point_is_async_entry(point);
}

/* A function returns in whose frame is a call that --sample leaves out. */
__noinline int end_left_out(__u32 thread, __u32 point)
{
	struct thread_state *state = config.sample ? find_thread(thread) : NULL;
	struct ended call;

	if (state)
		end(state, point, thread, &call);
	return 0;
}

/* With --sample: whether the return of a function, which is no system call, is that of one that is measured. */
static __always_inline bool returns_measured_function(__u32 point, __u32 thread)
{
	struct thread_state *state = find_thread(thread);
	__u64 entered;

	if (!state)
		return false;
	entered = state->calls.frames[point_frame(point) & (MAX_FRAMES - 1)].entered_ns;
	if (!is_left_out(entered))
		return entered || (WHOLE_STACK && state->breakdown.depth);
	end_left_out(thread, point);
	return false;
}

/* The group of a call of a function. */
static __always_inline __u32 group_at_function(void *ctx, bool direct, __u32 point, const struct thread_state *state,
					       __u32 thread)
{
	__u32 shape = point_shape(point);
	__u64 argument = ARGUMENT(ctx, direct, 0);

	if (groups_are_of_files() && shape != SHAPE_FILE_0 && shape != SHAPE_FILE_1 && shape != SHAPE_KIOCB_0)
		return group_of_argument(point, as_number(argument));
	/*
	 * Without it the compiler merges the two loads into one with a computed offset, which the verifier refuses for a
	 * context.
	 */
	barrier_var(argument);
	if (shape == SHAPE_FILE_1)
		argument = ARGUMENT(ctx, direct, 1);
	if (shape == SHAPE_KIOCB_0)
		argument = (__u64)READ(direct, (struct kiocb *)argument, ki_filp);
	return group_of_call(state, thread, (struct file *)argument, direct);
}

/*
 * A call of a function begins. By fentry the context is in the frame of the trampoline, on the task's stack between the
 * caller and the function. Each function has a trampoline of its own: that of a function reached by a tail call is
 * further down.
 */
static __always_inline struct frame *begin_at(void *ctx, bool direct, __u32 point, struct thread_state *state)
{
	struct pt_regs *regs = ctx;

	return direct ? begin(state, point, (__u64)ctx, 0) : begin(state, point, PT_REGS_SP(regs), PT_REGS_IP(regs));
}

/*
 * Whether of the calls of a function only those with an asynchronous request are counted: of one through which a file
 * system gets reads or writes, in a run that reports rows. The others only have a row.
 */
static __always_inline bool counts_requests_only(__u32 point)
{
	return ROWS_ONLY && point_shape(point) == SHAPE_KIOCB_0 && !point_is_async_entry(point) &&
	       !point_is_shared(point);
}

/* Only for these: the compiler leaves out what other functions need. */
static __always_inline void assume_request(__u32 point)
{
	if (point_shape(point) != SHAPE_KIOCB_0 || point_return(point) != RETURN_BYTES || point_is_shared(point) ||
	    point_is_suppressed(point))
		__builtin_unreachable();
}

/* What an open function is known by when it returns. Reads and writes of a file system may share a program. */
static __always_inline __u32 row_key(__u32 point)
{
	return counts_requests_only(point) ? ROW_KEY | op_rows[point_op(point)] : point_op(point);
}

static __always_inline __u8 row_of(__u32 point)
{
	return point_is_row(point) ? point_op(point) : op_rows[point_op(point)];
}

/* The row of a call begins, at `now`. */
static __always_inline void begin_row(__u32 point, void *first, struct thread_state *state, enum verdict verdict,
				      bool bypasses, __u64 now)
{
	struct breakdown *breakdown;

	if (does_call(point))
		breakdown = enter_rest(state, ROW_VFS, bypasses, now);
	else
		breakdown = enter_function(state, row_key(point), op_rows[point_op(point)], verdict != TRACED, bypasses,
					   now);
	if (verdict == TRACED)
		note_file(point, first, breakdown);
}

/*
 * A function of vfs that does all of a system call (does_call()) begins, and its calls are not counted. Its file is checked, if that
 * of the system call was not.
 */
static __always_inline int enter_rest_of_call(struct file *file, bool direct, struct thread_state *state, __u32 thread)
{
	struct breakdown *breakdown;
	bool bypasses;

	if (!state->breakdown.depth)
		return 0;
	bypasses = READ(direct, file, f_flags) & O_DIRECT;
	if (state->breakdown.is_unchecked) {
		enum verdict verdict = direct ? check_file_as(file, true) : check_file_probed(file);

		if (drop_if_not_selected(state, thread, verdict, file, direct, bypasses))
			return 0;
	}
	breakdown = enter_rest(state, ROW_VFS, bypasses, bpf_ktime_get_ns());
	if (notes_file_of(breakdown))
		note_write(file);
	return 0;
}

/* A call begins that is not counted, and only has a row. */
static __always_inline int enter_uncounted(void *ctx, bool direct, __u32 point, struct thread_state *state,
					   __u32 thread)
{
	void *first = (void *)ARGUMENT(ctx, direct, 0);
	enum verdict verdict;

	if (does_call(point))
		return enter_rest_of_call(first, direct, state, thread);
	if (!state->breakdown.depth)
		return 0;
	verdict = check_call(ctx, direct, point);
	if (verdict != OTHER_FILE_SYSTEM)
		begin_row(point, first, state, verdict, is_direct(point, direct, first), bpf_ktime_get_ns());
	return 0;
}

/*
 * A file system gets a read or write with an asynchronous request, or inside a call that has a frame, in a run that
 * counts no others. Out of line (compat.bpf.h): most are synchronous. `address`, `iterator`: the arguments, a kiocb and an
 * iov_iter; `stack`, `function`: see begin().
 */
__noinline int enter_request(__u32 point, __u64 address, __u64 iterator, __u64 stack, __u32 function)
{
	struct kiocb *kiocb = (void *)address;
	struct thread_state *state;
	enum verdict verdict;
	struct frame *frame;

	if (!ROWS_ONLY)
		return 0;
	assume_request(point);
	verdict = check_file_at(PROBED(kiocb, ki_filp), false, point);
	count_if_excluded(point_op(point), verdict);
	state = verdict == TRACED ? thread_of_call(point, bpf_get_current_pid_tgid()) : NULL;
	frame = state ? begin(state, point, stack, function) : NULL;
	if (!frame || !PROBED(kiocb, ki_complete))
		return 0;
	frame->kiocb = enter_below(point, address, frame->entered_ns, frame->group, state->calls.request);
	if (config.records && frame->kiocb)
		note_async_size(frame->kiocb, iterator);
	return 0;
}

/* The same for any read or write. */
static __always_inline int enter_file_system(void *ctx, bool direct, __u32 point, __u32 thread)
{
	struct kiocb *kiocb = (void *)ARGUMENT(ctx, direct, 0);
	struct thread_state *state = find_thread(thread);
	struct pt_regs *regs = ctx;

	/* Inside a counted call of the same frame, the return has to be matched, so the frame needs the depth. */
	if (unlikely((state && has_frame(state, point)) ||
		     (READ(direct, kiocb, ki_complete) && !config.sample && !(control.stopped & STOP_CALLS)))) {
		if (direct)
			enter_request(point, as_number((__u64)kiocb), as_number(ARGUMENT(ctx, direct, 1)),
				      as_number((__u64)ctx), 0);
		else
			enter_request(point, (__u64)kiocb, ARGUMENT(ctx, direct, 1), PT_REGS_SP(regs),
				      PT_REGS_IP(regs));
	}
	return state ? enter_uncounted(ctx, direct, point, state, thread) : 0;
}

/* `may_be_call`: whether system calls have this program, too; a constant. */
static __always_inline int enter_as(void *ctx, bool direct, __u32 point, bool may_be_call)
{
	struct thread_state *state = NULL;
	enum verdict verdict;
	bool is_counted, bypasses;
	struct kiocb *kiocb;
	struct frame *frame;
	struct thread_id id;

	if (point_shape(point) == SHAPE_NONE)
		return 0;
	if (point_is_row(point))
		return !ROWS_ONLY && control.stopped & STOP_CALLS ?
			       0 :
			       enter_row(point, (void *)ARGUMENT(ctx, direct, 0),
					 is_direct(point, direct, (void *)ARGUMENT(ctx, direct, 0)));
	id = current_id();
	if (!thread_is_traced(id) && (!may_be_tried_by_others(point) || !is_traced_request(ARGUMENT(ctx, direct, 0))))
		return 0;
	if ((!ROWS_ONLY || is_call(point) || point_is_async_entry(point)) && control.stopped & STOP_CALLS)
		return 0;
	if (is_inside_session(point))
		return 0;
	if (may_be_call && is_call(point)) {
		struct pt_regs *regs = (void *)ARGUMENT(ctx, direct, 0);
		bool compat = in_32bit_call();
		unsigned long number = SYSCALL_NUMBER(direct, regs);

		point = compat ? compat_point(number) : syscall_point(number);
		if (!point || leaves_out_call(id.thread))
			return 0;
		return enter_syscall(point, id.thread, regs, direct ? IN_REGISTERS : IN_PROBED_REGISTERS, compat);
	}
	if (config.sample && is_outside(point, id.thread))
		return 0;
	if (counts_requests_only(point))
		return enter_file_system(ctx, direct, point, id.thread);
	is_counted = !ROWS_ONLY || point_is_async_entry(point) || point_is_recorded(point);
	if (!is_counted && point_shape(point) == SHAPE_KIOCB_0)
		is_counted = READ(direct, (struct kiocb *)ARGUMENT(ctx, direct, 0), ki_complete);
	if (ROWS_ONLY && is_counted && !point_is_async_entry(point))
		is_counted = !(control.stopped & STOP_CALLS);
	if (config.sample && point_shape(point) == SHAPE_KIOCB_0 &&
	    (point_is_async_entry(point) || READ(direct, (struct kiocb *)ARGUMENT(ctx, direct, 0), ki_complete)))
		is_counted = false;
	if (!is_counted) {
		state = WHOLE_STACK ? find_thread(id.thread) : NULL;
		if (!state)
			return 0;
		/* Inside a counted call of the same frame, the return has to be matched, so the frame needs the depth. */
		if (!has_frame(state, point))
			return enter_uncounted(ctx, direct, point, state, id.thread);
	}
	verdict = check_call(ctx, direct, point);
	if (verdict == OTHER_FILE_SYSTEM)
		return 0;
	if (verdict >= EXCLUDED && !point_is_suppressed(point) && (WHOLE_STACK || is_chosen()))
		count_excluded(point_op(point), verdict);
	if (!state && verdict == TRACED)
		state = thread_of_call(point, id.thread);
	else if (!state && WHOLE_STACK)
		state = find_thread(id.thread);
	if (!state)
		return 0;
	bypasses = WHOLE_STACK && is_direct(point, direct, (void *)ARGUMENT(ctx, direct, 0));
	if (does_call(point) && state->breakdown.depth && state->breakdown.is_unchecked &&
	    drop_if_not_selected(state, id.thread, verdict, (void *)ARGUMENT(ctx, direct, 0), direct, bypasses))
		return 0;
	frame = verdict == TRACED ? begin_at(ctx, direct, point, state) : NULL;
	if (config.sample && frame && is_left_out(frame->entered_ns))
		return 0;
	if (frame && point_is_recorded(point))
		note_fault(id.thread, as_number(ARGUMENT(ctx, direct, 0)));
	/* In the whole-stack view groups are those of system calls and of requests of a disk. */
	if (!WHOLE_STACK && frame && config.group_by)
		frame->group = group_at_function(ctx, direct, point, state, id.thread);
	if (WHOLE_STACK)
		begin_row(point, (void *)ARGUMENT(ctx, direct, 0), state, verdict, bypasses,
			  frame ? frame->entered_ns : bpf_ktime_get_ns());
	if (point_shape(point) != SHAPE_KIOCB_0)
		return 0;
	/* Keeps two conditions: src/probe/fold.rs can decide the one on the shape. */
	barrier_var(frame);
	if (!frame)
		return 0;
	kiocb = (void *)ARGUMENT(ctx, direct, 0);
	if (point_is_async_entry(point)) {
		frame->kiocb = enter_async(point, direct ? as_number((__u64)kiocb) : (__u64)kiocb, frame->entered_ns,
					   frame->group);
		state->calls.request = frame->kiocb;
	} else if (READ(direct, kiocb, ki_complete)) {
		frame->kiocb = enter_below(point, (__u64)kiocb, frame->entered_ns, frame->group, state->calls.request);
		if (config.records && frame->kiocb)
			note_async_size(frame->kiocb, as_number(ARGUMENT(ctx, direct, 1)));
	}
	return 0;
}

/*
 * The errno of a fault's result, 0 if it is no error: enum vm_fault_reason of include/linux/mm_types.h, errnos as in
 * vm_fault_to_errno() of include/linux/mm.h. VM_FAULT_FALLBACK is no error: the kernel tries again with small pages.
 */
static __always_inline long value_of_fault(__u32 result)
{
	const __u32 oom = 0x1, sigbus = 0x2, hwpoison = 0x10 | 0x20, sigsegv = 0x40;

	if (result & oom)
		return -ENOMEM;
	if (result & hwpoison)
		return -EHWPOISON;
	return result & (sigbus | sigsegv) ? -EFAULT : 0;
}

/* Counts the outermost call of an op, which returned from `point`. */
static __always_inline void finish_call(__u32 point, const struct ended *call, __u64 now, long value)
{
	/* Only functions that take a kiocb have a request. */
	__u64 kiocb = point_shape(point) == SHAPE_KIOCB_0 ? call->kiocb : 0;

	if (!kiocb) {
		if (has_valid_times(point, call, now) && !point_is_async_entry(point)) {
			if (counts_requests_only(point))
				record_out_of_line(point_op(point) | COUNTER_MOVES_BYTES, now - call->entered_ns, value);
			else
				record_all(point, call, now, step_of(now - call->entered_ns), value);
			if (point_is_recorded(point))
				record_fault(point_op(point), call->entered_ns, now, value);
		}
		/* An asynchronous request is counted when it is done. */
	} else if (point_is_async_entry(point)) {
		leave_async(point, kiocb, now, value);
	} else {
		leave_below(point, kiocb, now, value);
	}
}

/* The same for a read or write at a file system that is counted, or inside one. Out of line as enter_request(). */
__noinline int leave_request(__u32 point, __u32 thread, __u64 now, long value)
{
	struct thread_state *state = ROWS_ONLY ? find_thread(thread) : NULL;
	struct ended call;

	assume_request(point);
	if (state && end(state, point, thread, &call))
		finish_call(point, &call, now, value);
	return 0;
}

/* `may_be_call` as in enter_as(). */
static __always_inline int leave_as(__u32 point, long value, bool may_be_call)
{
	struct thread_state *state;
	struct ended call;
	struct thread_id id;
	__u64 now;

	if (point_is_row(point))
		return leave_row(point);
	if (point_shape(point) == SHAPE_NONE)
		return 0;
	id = current_id();
	if (!point_is_async_entry(point) && !may_have_state(id))
		return 0;
	if (config.sample &&
	    !(is_call(point) ? is_in_measured_call(id.thread) : returns_measured_function(point, id.thread)))
		return 0;
	now = bpf_ktime_get_ns();
	if (may_be_call && is_call(point))
		return leave_syscall(id.thread, value, now);
	state = find_thread(id.thread);
	if (!state)
		return 0;
	if (WHOLE_STACK && !does_call(point))
		leave_function(state, id.thread, row_key(point), point_is_shared(point), now);
	if (counts_requests_only(point))
		return unlikely(has_frame(state, point)) ? leave_request(point, id.thread, now, value) : 0;
	if (!frame_is_counted(point))
		return 0;
	if (point_return(point) == RETURN_STATUS_INT || point_is_async_entry(point))
		value = (int)value;
	if (point_return(point) == RETURN_FAULT)
		value = value_of_fault(value);
	if (end(state, point, id.thread, &call))
		finish_call(point, &call, now, value);
	return 0;
}

static __always_inline int enter(void *ctx, bool direct, __u32 point)
{
	return enter_as(ctx, direct, point, true);
}

static __always_inline int leave(__u32 point, long value)
{
	return leave_as(point, value, true);
}

SEC("fentry")
int fentry_enter(void *ctx)
{
	return enter(ctx, true, SPECIALISED_POINT());
}

SEC("fexit")
int fexit_leave(void *ctx)
{
	__u32 point = SPECIALISED_POINT();
	__u64 value;

	/* Here and not in leave(), which would be inlined twice. */
	if (point_is_row(point))
		return leave_row(point);
	/* The return value follows the arguments. */
	switch (point_args(point)) {
	case 1:
		value = CONTEXT_WORD(ctx, 1);
		break;
	case 2:
		value = CONTEXT_WORD(ctx, 2);
		break;
	case 3:
		value = CONTEXT_WORD(ctx, 3);
		break;
	case 4:
		value = CONTEXT_WORD(ctx, 4);
		break;
	case 5:
		value = CONTEXT_WORD(ctx, 5);
		break;
	case 6:
		value = CONTEXT_WORD(ctx, 6);
		break;
	default:
		return 0;
	}
	return leave(point, value);
}

SEC("kprobe")
int kprobe_enter(struct pt_regs *ctx)
{
	return enter(ctx, false, SPECIALISED_POINT());
}

/* Functions of vfs that do all of a system call, in a run that counts none of their calls: their returns need not be seen. */
SEC("kprobe")
int kprobe_call(struct pt_regs *ctx)
{
	struct thread_id id = current_id();
	struct thread_state *state;

	if (!ROWS_ONLY || !may_have_state(id) || !thread_is_selected() ||
	    (config.sample && !is_in_measured_call(id.thread)))
		return 0;
	state = find_thread(id.thread);
	return state ? enter_rest_of_call((void *)REGISTER_ARG_0(ctx), false, state, id.thread) : 0;
}

SEC("kretprobe")
int kretprobe_leave(struct pt_regs *ctx)
{
	return leave(SPECIALISED_POINT(), PT_REGS_RC(ctx));
}

SEC("kprobe.multi")
int multi_enter(struct pt_regs *ctx)
{
	return enter(ctx, false, SPECIALISED_POINT());
}

SEC("kretprobe.multi")
int multi_leave(struct pt_regs *ctx)
{
	return leave(SPECIALISED_POINT(), PT_REGS_RC(ctx));
}

/* bpf_session_is_return() takes the context since 7.0. */
static bool (*const bpf_session_is_return)(void) = (void *)KFUNC_SESSION_IS_RETURN;
static bool (*const bpf_session_is_return_ctx)(void *ctx) = (void *)KFUNC_SESSION_IS_RETURN_CTX;

static __always_inline bool session_is_return(void *ctx)
{
	if (kfuncs.session_is_return_ctx)
		return bpf_session_is_return_ctx(ctx);
	return bpf_session_is_return();
}

static __u64 *(*const bpf_session_cookie)(void) = (void *)KFUNC_SESSION_COOKIE;
static __u64 *(*const bpf_session_cookie_ctx)(void *ctx) = (void *)KFUNC_SESSION_COOKIE_CTX;

static __always_inline __u64 *session_cookie(void *ctx)
{
	return kfuncs.session_cookie_ctx ? bpf_session_cookie_ctx(ctx) : bpf_session_cookie();
}

/* Entries and returns by one program; `may_be_call` as in enter_as(). */
static __always_inline int enter_or_leave(struct pt_regs *ctx, __u32 point, bool may_be_call)
{
	if (session_is_return(ctx))
		return leave_as(point, PT_REGS_RC(ctx), may_be_call);
	/* The kernel then does not call the program at the return. */
	if (config.sample && WHOLE_STACK && !is_call(point) && !point_is_row(point) && !point_is_async_entry(point) &&
	    !is_in_measured_call(bpf_get_current_pid_tgid()))
		return 1;
	enter_as(ctx, false, point, may_be_call);
	return 0;
}

SEC("kprobe.session")
int session(struct pt_regs *ctx)
{
	return enter_or_leave(ctx, SPECIALISED_POINT(), false);
}

/* The functions of all system calls. */
SEC("kprobe.session")
int session_calls(struct pt_regs *ctx)
{
	/* As the loader would write it: the number of the call determines the op. */
	return enter_or_leave(ctx, SHAPE_SYSCALL << POINT_SHAPE_SHIFT, true);
}

/* Functions that have a row, and get a bio. */
SEC("kprobe.session")
int session_bios(struct pt_regs *ctx)
{
	__u32 point = SPECIALISED_POINT();

	if (point_shape(point) != SHAPE_ROW_BIO_0)
		__builtin_unreachable();
	return enter_or_leave(ctx, point, false);
}

/* What the functions of session_file_systems are known by when they return. */
#define REQUESTS_KEY (ROW_KEY | 0xff)

/* Whether a counted call of theirs is active. */
static __always_inline bool has_request(const struct thread_state *state)
{
	return has_frame(state, file_systems.frame << POINT_FRAME_SHIFT);
}

/* The row of the file system whose function was called. */
static __always_inline __u8 row_of_file_system(struct pt_regs *ctx)
{
	__u64 address = file_systems.later[0] ? bpf_get_func_ip(ctx) : 0;
	__u32 index = 0;

	/* Without branches, which the verifier would follow each to the end: both are in the upper half of the address space. */
#pragma unroll
	for (int i = 0; i < FILE_SYSTEMS - 1; i++) {
		if (file_systems.later[i])
			index += (file_systems.later[i] - 1 - address) >> 63;
	}
	return file_systems.rows[index & (FILE_SYSTEMS - 1)];
}

/*
 * Functions by which file systems get reads or writes, in a run that counts only those with an asynchronous request. One program
 * serves all file systems, by a link for each; the point of a function is its cookie in the link, and only read if the call is
 * counted.
 */
SEC("kprobe.session")
int session_file_systems(struct pt_regs *ctx)
{
	struct kiocb *kiocb = (void *)REGISTER_ARG_0(ctx);
	struct thread_id id = current_id();
	enum verdict verdict = TRACED;
	struct breakdown *breakdown;
	struct thread_state *state;
	bool is_counted;
	__u32 flags;
	__u64 now;
	__u8 row;

	if (!WHOLE_STACK)
		return 1;
	if (session_is_return(ctx)) {
		now = bpf_ktime_get_ns();
		state = find_thread(id.thread);
		if (!state)
			return 0;
		leave_function(state, id.thread, REQUESTS_KEY, false, now);
		if (unlikely(has_request(state)))
			leave_request(bpf_get_attach_cookie(ctx), id.thread, now, PT_REGS_RC(ctx));
		return 0;
	}
	if (config.sample ? !is_in_measured_call(id.thread) :
			    !thread_is_traced(id) && (!may_be_tried_by_others(SHAPE_KIOCB_0 << POINT_SHAPE_SHIFT) ||
						      !is_traced_request((__u64)kiocb)))
		return 1;
	state = find_thread(id.thread);
	/* Inside a counted call of the same frame, the return has to be matched, so the frame needs the depth. */
	is_counted = (state && has_request(state)) ||
		     (PROBED(kiocb, ki_complete) && !config.sample && !(control.stopped & STOP_CALLS));
	if (unlikely(is_counted))
		enter_request(bpf_get_attach_cookie(ctx), (__u64)kiocb, REGISTER_ARG_1(ctx), PT_REGS_SP(ctx),
			      PT_REGS_IP(ctx));
	if (!state || !state->breakdown.depth)
		return is_counted ? 0 : 1;
	/* They are called for regular files and directories only (OP_FILES_AND_DIRS). */
	if (config.by_file || config.by_disk)
		verdict = check_file_probed(PROBED(kiocb, ki_filp));
	flags = PROBED(kiocb, ki_flags);
	row = row_of_file_system(ctx);
	breakdown = enter_function(state, REQUESTS_KEY, row, verdict != TRACED, flags & IOCB_DIRECT, bpf_ktime_get_ns());
	if (verdict == TRACED && notes_file_of(breakdown))
		note_write(PROBED(kiocb, ki_filp));
	return 0;
}

/*
 * Entry points of asynchronous requests, which have the largest programs. One serves all of them: the point of each is
 * its cookie in the link. It is a template of its own, since asking for the cookie would make `session` slower.
 */
SEC("kprobe.session")
int session_async(struct pt_regs *ctx)
{
	__u32 point = bpf_get_attach_cookie(ctx);

	/* As in assume_request(). */
	if (point_shape(point) != SHAPE_KIOCB_0 || !point_is_async_entry(point) || point_is_shared(point))
		__builtin_unreachable();
	return enter_or_leave(ctx, point, false);
}

/*
 * The verdict on the file of a function that only has a row, from its arguments. Out of line (compat.bpf.h): many paths lead to
 * it.
 */
__noinline int check_row(__u32 point, __u64 first, __u64 second)
{
	__u64 passed[] = { first, second };

	return WHOLE_STACK ? check_passed(NULL, false, point, passed) : TRACED;
}

/*
 * Functions that only have a row, and whose calls are not counted: one program serves all of them, whatever their layer. The point
 * of each is its cookie in the link, and what its row is known by is in the session's cookie until it returns. The return is not
 * seen if no row has begun.
 */
SEC("kprobe.session")
int session_rows(struct pt_regs *ctx)
{
	struct thread_id id = current_id();
	enum verdict verdict = TRACED;
	struct thread_state *state;
	struct breakdown *breakdown;
	bool bypasses = false;
	__u64 *cookie;
	__u32 point;
	void *first;

	if (!WHOLE_STACK)
		return 1;
	if (session_is_return(ctx)) {
		state = find_thread(id.thread);
		cookie = session_cookie(ctx);
		if (state)
			leave_function(state, id.thread, *cookie, false, bpf_ktime_get_ns());
		return 0;
	}
	if (!may_have_state(id) || (!ROWS_ONLY && control.stopped & STOP_CALLS))
		return 1;
	state = find_thread(id.thread);
	if (!state || !state->breakdown.depth)
		return 1;
	point = bpf_get_attach_cookie(ctx);
	if (point_shape(point) == SHAPE_KIOCB_0 || point_shape(point) == SHAPE_ROW_BIO_0 || does_call(point))
		__builtin_unreachable();
	first = (void *)REGISTER_ARG_0(ctx);
	if (!point_is_row(point)) {
		verdict = check_row(point, (__u64)first, REGISTER_ARG_1(ctx));
		if (verdict == OTHER_FILE_SYSTEM)
			return 1;
		bypasses = is_direct(point, false, first);
	}
	cookie = session_cookie(ctx);
	*cookie = point_is_row(point) ? ROW_KEY | point_op(point) : point_op(point);
	breakdown = enter_function(state, *cookie, row_of(point), verdict != TRACED, bypasses, bpf_ktime_get_ns());
	if (!point_is_row(point) && verdict == TRACED)
		note_file(point, first, breakdown);
	return 0;
}

#endif
