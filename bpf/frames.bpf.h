/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Calls in flight: one frame per op in each thread. */
#ifndef __FRAMES_BPF_H__
#define __FRAMES_BPF_H__

/* With --sample: whether a call that begins is measured. Each is with the same probability, whatever came before it. */
static __always_inline bool is_chosen(void)
{
	return !config.sample || bpf_get_prandom_u32() < config.sample;
}

/* Whether a frame with this entry is that of a call that is not measured. */
static __always_inline bool is_left_out(__u64 entered)
{
	return config.sample && entered == ENTERED_LEFT_OUT;
}

/*
 * Counts the call of a dead frame, whose return was not seen, as lost, with those that were taken for nested in it. The
 * request that it worked on is in a table of its own, and counted there. `entered`: what the frame had as its entry.
 */
static __always_inline void lose_frame(struct frame *frame, __u64 entered)
{
	if (!point_is_suppressed(frame->point) && !is_left_out(entered))
		count_lost(point_op(frame->point), LOST_RETURN, (frame->kiocb ? 0 : 1) + frame->nested);
}

/*
 * Whether `point` is an outermost function of the op whose call is in the frame. Two ops may share a frame when one is
 * called inside the other: reads inside a splice.
 */
static __always_inline bool is_outermost_of(__u32 point, const struct frame *frame)
{
	return point_is_outermost(point) && point_op(point) == point_op(frame->point);
}

/*
 * Whether the outermost call of an op that begins is not measured. Of system calls, and of all that happens inside
 * them in the whole-stack view, that has been decided before.
 */
static __always_inline bool leaves_out(__u32 point)
{
	return config.sample && !WHOLE_STACK && point_frame(point) != SYSCALL_FRAME && !is_chosen();
}

/* The state of the thread in which a call begins. Returns NULL, and counts the call as lost, if there is no room. */
static __always_inline struct thread_state *thread_of_call(__u32 point, __u32 thread)
{
	struct thread_state *state;
	enum lost_reason why;

	state = find_or_make_thread(thread, &why);
	if (!state && !point_is_suppressed(point) && !leaves_out(point))
		count_lost(point_op(point), why, 1);
	return state;
}

/* Whether calls are counted in the frame of this point. */
static __always_inline bool frame_is_counted(__u32 point)
{
	return config.counted_frames >> point_frame(point) & 1;
}

/* Whether a call is in flight in the frame of this point. */
static __always_inline bool has_frame(const struct thread_state *state, __u32 point)
{
	return frame_is_counted(point) && state->calls.frames[point_frame(point) & (MAX_FRAMES - 1)].entered_ns;
}

/*
 * Whether a function that is entered with this stack address is inside the call of the frame. A function at the same
 * address was reached by a jump out of the frame's function (a tail call, as from io_write_fixed to io_write): both
 * have the same return address. A function does not jump to itself, so if it is the same function, the return of the
 * frame's call was not seen. If the frame is dead, another function at the same address is mistaken for a tail call: it
 * is counted as nested, and lost with the frame.
 */
static __always_inline bool is_inside(const struct frame *frame, __u64 stack, __u32 function)
{
	return stack < frame->stack || (stack == frame->stack && function != frame->function);
}

/*
 * A call begins. Returns its frame; NULL if a call of the same frame is in flight around it. File systems share frames:
 * a call of one file system inside a call of another, such as a read of NFS from its cache on a disk, has no frame and
 * is lost. `function`: the lower half of the function's address; 0 for fentry, where each trampoline has a stack
 * address of its own.
 */
static __always_inline struct frame *begin(struct thread_state *state, __u32 point, __u64 stack, __u32 function)
{
	struct frame *frame;

	frame = &state->calls.frames[point_frame(point) & (MAX_FRAMES - 1)];
	if (frame->entered_ns) {
		/*
		 * An outermost function proves the frame dead. For others the stack decides, where system calls begin
		 * at a random offset (CONFIG_RANDOMIZE_KSTACK_OFFSET): a dead frame may look alive.
		 */
		if (!is_outermost_of(point, frame) && is_inside(frame, stack, function)) {
			frame->depth++;
			if (is_left_out(frame->entered_ns))
				return NULL;
			if (op_rows[point_op(point) & (MAX_OPS - 1)] != op_rows[point_op(frame->point) & (MAX_OPS - 1)])
				count_lost(point_op(point), LOST_TABLE_FULL, 1);
			else
				frame->nested++;
			return NULL;
		}
		lose_frame(frame, frame->entered_ns);
	} else {
		get_thread(state);
	}
	frame->stack = stack;
	frame->function = function;
	frame->point = point;
	frame->depth = 1;
	frame->nested = 0;
	frame->kiocb = 0;
	frame->entered_ns = leaves_out(point) ? ENTERED_LEFT_OUT : bpf_ktime_get_ns();
	return frame;
}

/* What the frame of a call had when the call returned. */
struct ended {
	__u64 entered_ns;
	__u64 kiocb;
	__u32 point; /* at which it was entered */
	__u32 group;
};

/* Counts a call that has returned, for its op and its group. `step`: the histogram step of its duration. */
static __always_inline void record_all(__u32 point, const struct ended *call, __u64 now, __u64 step, long value)
{
	__u64 ns = now - call->entered_ns;

	record(point, ns, step, value);
	record_in_group(call->group, point_op(point), point_return(point) == RETURN_BYTES, ns, value, 0);
}

/* Whether the return is not before the entry; else counts the call as lost. */
static __always_inline bool has_valid_times(__u32 point, const struct ended *call, __u64 now)
{
	if (now >= call->entered_ns)
		return true;
	count_lost(point_op(point), LOST_CLOCK, 1);
	return false;
}

/*
 * A function of `point` returns. Returns whether that ended the outermost call, and then fills `call`. The state may be
 * gone afterwards, unless a breakdown has a reference to it.
 */
static __always_inline bool end(struct thread_state *state, __u32 point, __u32 thread, struct ended *call)
{
	struct frame *frame;

	frame = &state->calls.frames[point_frame(point) & (MAX_FRAMES - 1)];
	call->entered_ns = frame->entered_ns;
	if (!call->entered_ns)
		return false;
	/* The return of an inner call may have been missed; that of an outermost function ends the frame's call. */
	if (frame->depth > 1 && !is_outermost_of(point, frame)) {
		frame->depth--;
		return false;
	}
	/* The return of an inner op whose entry was missed; the frame belongs to the outer one. */
	if (point_is_outermost(point) && !is_outermost_of(point, frame) && point_frame(point) != SYSCALL_FRAME)
		return false;
	/*
	 * The return of an inner call that was not counted at its entry (overlayfs reading a file of a file system that
	 * is not selected). The call in the frame has a return of its own.
	 */
	if (!point_is_outermost(point) && point_is_outermost(frame->point))
		return false;
	frame->entered_ns = 0;
	/*
	 * Entered at another function: one entry and one return were missed, so the duration is unknown. System calls
	 * all return at one point.
	 */
	if (frame->point != point && point_frame(point) != SYSCALL_FRAME) {
		lose_frame(frame, call->entered_ns);
		put_thread(state, thread);
		return false;
	}
	call->point = frame->point;
	call->kiocb = frame->kiocb;
	call->group = frame->group;
	put_thread(state, thread);
	return !is_left_out(call->entered_ns);
}

/*
 * Counts the call in one frame as lost. Out of line (compat.bpf.h): the verifier would check it for each frame, and on
 * each path.
 */
__noinline int lose_frame_of(__u32 thread, __u32 index)
{
	struct thread_state *state = find_thread(thread);
	struct frame *frame;

	if (!state)
		return 0;
	frame = &state->calls.frames[index & (MAX_FRAMES - 1)];
	if (frame->entered_ns) {
		lose_frame(frame, frame->entered_ns);
		frame->entered_ns = 0;
	}
	return 0;
}

/* The thread exits: its calls in flight are lost, as they never return. */
static __always_inline void lose_frames_of_exiting_thread(const struct thread_state *state, __u32 thread)
{
	__u64 entered = 0;

#pragma unroll
	for (int i = 0; i < MAX_FRAMES; i++)
		entered |= state->calls.frames[i].entered_ns;
	/* The usual case. */
	if (!entered)
		return;
	/* Not unrolled: 7.3 takes longer to read a long program than to follow the rounds (docs/hot-path.md). */
#pragma clang loop unroll(disable)
	for (int i = 0; i < MAX_FRAMES; i++)
		lose_frame_of(thread, i);
}

#endif
