/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The calls under way: one frame per op in each thread. */
#ifndef __FRAMES_BPF_H__
#define __FRAMES_BPF_H__

/*
 * Counts a frame whose return was not seen, and the calls that were taken for nested ones in it. A request that it
 * worked on is still in its table, and counted there.
 */
static __always_inline void lose_frame(struct frame *frame)
{
	if (!point_is_suppressed(frame->point))
		count_lost(point_op(frame->point), LOST_RETURN, (frame->kiocb ? 0 : 1) + frame->nested);
}

/*
 * Whether a function is the outermost of the op whose call is under way in the frame, which it shares with an op around it
 * (reads are made inside a splice, too).
 */
static __always_inline bool is_outermost_of(__u32 point, const struct frame *frame)
{
	return point_is_outermost(point) && point_op(point) == point_op(frame->point);
}

/* The state of the thread in which a call begins. NULL, and the call is lost, where there is no room for one. */
static __always_inline struct thread_state *thread_of_call(__u32 point, __u32 thread)
{
	struct thread_state *state;
	enum lost_reason why;

	state = find_or_make_thread(thread, &why);
	if (!state && !point_is_suppressed(point))
		count_lost(point_op(point), why, 1);
	return state;
}

/* Whether a call can be under way in the frame of this point. */
static __always_inline bool frame_is_counted(__u32 point)
{
	return config.counted_frames >> point_frame(point) & 1;
}

/* Whether one is. */
static __always_inline bool has_frame(const struct thread_state *state, __u32 point)
{
	return frame_is_counted(point) && state->calls.frames[point_frame(point) & (MAX_FRAMES - 1)].entered_ns;
}

/*
 * Whether a function that is entered with this stack address is inside the call of the frame. One at the same address was jumped to by
 * the function that the frame is of (a tail call, as io_write_fixed makes to io_write): they share the return address. A function does
 * not jump to itself, so if it is the same one its return was not seen. Of a dead frame another function at that address looks like
 * a tail call; it is counted as nested, and lost with the frame when that proves dead.
 */
static __always_inline bool is_inside(const struct frame *frame, __u64 stack, __u32 function)
{
	return stack < frame->stack || (stack == frame->stack && function != frame->function);
}

/*
 * A call begins. Answers its frame, NULL where there is none, or an outer call of the same op is under way. File systems share
 * frames: the call of one inside another's, such as a read of NFS out of its cache on a disk, finds no room, and is lost.
 * `function`: the lower half of the function's address, 0 where the stack address is below what a tail call shares.
 */
static __always_inline struct frame *begin(struct thread_state *state, __u32 point, __u64 stack, __u32 function)
{
	struct frame *frame;

	frame = &state->calls.frames[point_frame(point) & (MAX_FRAMES - 1)];
	if (frame->entered_ns) {
		/*
		 * An outermost function proves the frame dead. For the others the stack has to tell, which system
		 * calls begin at a random offset (CONFIG_RANDOMIZE_KSTACK_OFFSET): a dead frame may look alive.
		 */
		if (!is_outermost_of(point, frame) && is_inside(frame, stack, function)) {
			frame->depth++;
			if (op_rows[point_op(point) & (MAX_OPS - 1)] != op_rows[point_op(frame->point) & (MAX_OPS - 1)])
				count_lost(point_op(point), LOST_TABLE_FULL, 1);
			else
				frame->nested++;
			return NULL;
		}
		lose_frame(frame);
	} else {
		get_thread(state);
	}
	frame->stack = stack;
	frame->function = function;
	frame->point = point;
	frame->depth = 1;
	frame->nested = 0;
	frame->kiocb = 0;
	frame->entered_ns = bpf_ktime_get_ns();
	return frame;
}

/* A call that has returned, out of its frame. */
struct ended {
	__u64 entered_ns;
	__u64 kiocb;
	__u32 point; /* that it was entered by */
	__u32 group;
};

/* Counts it. `step`: that of its time. */
static __always_inline void record_all(__u32 point, const struct ended *call, __u64 now, __u64 step, long value)
{
	__u64 ns = now - call->entered_ns;

	record(point, ns, step, value);
	record_in_group(call->group, point_op(point), point_return(point) == RETURN_BYTES, ns, value, 0);
}

/* Whether the clock went on in it. */
static __always_inline bool has_valid_times(__u32 point, const struct ended *call, __u64 now)
{
	if (now >= call->entered_ns)
		return true;
	count_lost(point_op(point), LOST_CLOCK, 1);
	return false;
}

/*
 * A function of `point` returns. Says true when that was the outermost call, and fills `call`. The state is not to be looked at
 * any more, unless a breakdown holds it.
 */
static __always_inline bool end(struct thread_state *state, __u32 point, __u32 thread, struct ended *call)
{
	struct frame *frame;

	frame = &state->calls.frames[point_frame(point) & (MAX_FRAMES - 1)];
	call->entered_ns = frame->entered_ns;
	if (!call->entered_ns)
		return false;
	/* The return of an inner call may have been lost; that of the outermost function is the frame's own. */
	if (frame->depth > 1 && !is_outermost_of(point, frame)) {
		frame->depth--;
		return false;
	}
	/* One of the op inside, whose entry was not seen: the call under way is not its. */
	if (point_is_outermost(point) && !is_outermost_of(point, frame) && point_frame(point) != SYSCALL_FRAME)
		return false;
	/*
	 * One inside that was left out when it was entered: an overlay file system reads the file of another one, which was not asked for. The
	 * call that is under way has a return of its own.
	 */
	if (!point_is_outermost(point) && point_is_outermost(frame->point))
		return false;
	frame->entered_ns = 0;
	/*
	 * It was entered by another function, and not all of both was seen: whose time it would be is not known. System calls all return by
	 * one.
	 */
	if (frame->point != point && point_frame(point) != SYSCALL_FRAME) {
		lose_frame(frame);
		put_thread(state, thread);
		return false;
	}
	call->point = frame->point;
	call->kiocb = frame->kiocb;
	call->group = frame->group;
	put_thread(state, thread);
	return true;
}

/* The call in one frame. By itself: the verifier would look at it for each frame, and for each way to it. */
__noinline int lose_frame_of(__u32 thread, __u32 place)
{
	struct thread_state *state = find_thread(thread);
	struct frame *frame;

	if (!state)
		return 0;
	frame = &state->calls.frames[place & (MAX_FRAMES - 1)];
	if (frame->entered_ns) {
		frame->entered_ns = 0;
		lose_frame(frame);
	}
	return 0;
}

/* The calls that a thread leaves behind when it exits: nobody will see them return. */
static __always_inline void lose_frames_of_exiting_thread(const struct thread_state *state, __u32 thread)
{
	__u64 entered = 0;

#pragma unroll
	for (int i = 0; i < MAX_FRAMES; i++)
		entered |= state->calls.frames[i].entered_ns;
	/* Mostly there are none. */
	if (!entered)
		return;
	for (int i = 0; i < MAX_FRAMES; i++)
		lose_frame_of(thread, i);
}

#endif
