/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Where the calls under way are kept: one frame per op in each thread. */
#ifndef __FRAMES_BPF_H__
#define __FRAMES_BPF_H__

/* Kernels that give tracing programs task storage (5.12, a10787e6d58c). It goes away with its thread. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_frames);
} frames_by_task SEC(".maps");

/*
 * The others: by thread number, preallocated, because allocating inside a probe can deadlock there. An entry lives as
 * long as a call of its thread is under way, so the size bounds the calls under way, not the threads.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, __u32);
	__type(value, struct task_frames);
} frames_by_thread SEC(".maps");

static const struct task_frames no_frames;

/*
 * Most threads have a place of their own in an array, by their number: it is found without a call into the kernel. The first one
 * that comes takes it, until it exits; a thread whose place is another's has its frames in one of the maps above.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLACES);
	__type(key, __u32);
	__type(value, struct task_frames);
} frames_by_place SEC(".maps");

static __always_inline struct task_frames *place_of(__u32 thread)
{
	__u32 place = thread & (PLACES - 1);

	return config.places ? bpf_map_lookup_elem(&frames_by_place, &place) : NULL;
}

static __always_inline struct task_frames *find_frames_elsewhere(__u32 thread)
{
	if (config.hash_starts)
		return bpf_map_lookup_elem(&frames_by_thread, &thread);
	return bpf_task_storage_get(&frames_by_task, bpf_get_current_task_btf(), 0, 0);
}

/* Those of the current thread. */
static __always_inline struct task_frames *find_frames(__u32 thread)
{
	struct task_frames *place = place_of(thread);

	return place && place->thread == thread ? place : find_frames_elsewhere(thread);
}

static __always_inline struct task_frames *find_or_make_frames(__u32 thread, enum lost_reason *why)
{
	struct task_frames *place = place_of(thread), *found;

	if (place && place->thread == thread)
		return place;
	/* They may be there since the place was another's. */
	found = find_frames_elsewhere(thread);
	if (found)
		return found;
	if (place && !place->thread && !__sync_val_compare_and_swap(&place->thread, 0, thread))
		return place;
	if (!config.hash_starts) {
		*why = LOST_STORAGE;
		return bpf_task_storage_get(&frames_by_task, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	}
	*why = LOST_TABLE_FULL;
	if (bpf_map_update_elem(&frames_by_thread, &thread, &no_frames, BPF_NOEXIST))
		return NULL;
	return bpf_map_lookup_elem(&frames_by_thread, &thread);
}

/* An entry of the table is there as long as a call is under way. */
static __always_inline bool is_entry(const struct task_frames *frames)
{
	return config.hash_starts && !frames->thread;
}

static __always_inline void release_frames(struct task_frames *frames, __u32 thread)
{
	if (is_entry(frames) && --frames->active == 0)
		bpf_map_delete_elem(&frames_by_thread, &thread);
}

/*
 * Counts a frame whose return was not seen, and the calls that were taken for nested ones in it. A request that it
 * worked on is still in its table, and counted there.
 */
static __always_inline void lose_frame(struct frame *frame)
{
	if (!point_silent(frame->point))
		count_lost(point_op(frame->point), LOST_RETURN, (frame->kiocb ? 0 : 1) + frame->nested);
}

/*
 * Whether a function is the outermost of the op whose call is under way in the frame, which it shares with an op around it
 * (reads are made inside a splice, too).
 */
static __always_inline bool is_outermost_of(__u32 point, const struct frame *frame)
{
	return point_outermost(point) && point_op(point) == point_op(frame->point);
}

/*
 * A call begins. Answers its frame, NULL where there is none, or an outer call of the same op is under way. File systems share
 * frames: the call of one inside another's, such as a read of NFS out of its cache on a disk, finds no room, and is lost.
 */
static __always_inline struct frame *begin(__u32 point, __u32 thread, __u64 stack)
{
	struct task_frames *frames;
	enum lost_reason why;
	struct frame *frame;

	frames = find_or_make_frames(thread, &why);
	if (!frames) {
		if (!point_silent(point))
			count_lost(point_op(point), why, 1);
		return NULL;
	}
	frame = &frames->frames[point_frame(point) & (MAX_FRAMES - 1)];
	if (frame->entered_ns) {
		/*
		 * An outermost function proves the frame dead. For the others the stack has to tell, which system
		 * calls begin at a random offset (CONFIG_RANDOMIZE_KSTACK_OFFSET): a dead frame may look alive.
		 */
		if (!is_outermost_of(point, frame) && stack < frame->stack) {
			frame->depth++;
			if (op_rows[point_op(point) & (MAX_OPS - 1)] != op_rows[point_op(frame->point) & (MAX_OPS - 1)])
				count_lost(point_op(point), LOST_TABLE_FULL, 1);
			else
				frame->nested++;
			return NULL;
		}
		lose_frame(frame);
	} else if (is_entry(frames)) {
		frames->active++;
	}
	frame->stack = stack;
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

/* Counts it. */
static __always_inline void record_all(__u32 point, const struct ended *call, __u64 now, long value)
{
	__u64 ns = now - call->entered_ns;

	record(point, ns, value);
	record_in_group(call->group, point_op(point), point_return(point) == RETURN_BYTES, ns, value);
}

/* Whether the clock went on in it. */
static __always_inline bool is_timed(__u32 point, const struct ended *call, __u64 now)
{
	if (now >= call->entered_ns)
		return true;
	count_lost(point_op(point), LOST_CLOCK, 1);
	return false;
}

/* A function of `point` returns. Says true when that was the outermost call, and fills `call`. */
static __always_inline bool end(__u32 point, __u32 thread, struct ended *call)
{
	struct task_frames *frames = find_frames(thread);
	struct frame *frame;

	if (!frames)
		return false;
	frame = &frames->frames[point_frame(point) & (MAX_FRAMES - 1)];
	call->entered_ns = frame->entered_ns;
	if (!call->entered_ns)
		return false;
	/* The return of an inner call may have been lost; that of the outermost function is the frame's own. */
	if (frame->depth > 1 && !is_outermost_of(point, frame)) {
		frame->depth--;
		return false;
	}
	/* One of the op inside, whose entry was not seen: the call under way is not its. */
	if (point_outermost(point) && !is_outermost_of(point, frame) && point_frame(point) != SYSCALL_FRAME)
		return false;
	frame->entered_ns = 0;
	call->point = frame->point;
	call->kiocb = frame->kiocb;
	call->group = frame->group;
	release_frames(frames, thread);
	return true;
}

/* The calls that a thread leaves behind when it exits: nobody will see them return. */
static __always_inline void lose_frames_of_exiting_thread(__u32 thread)
{
	struct task_frames *frames = find_frames(thread);

	if (!frames)
		return;
	for (int i = 0; i < MAX_FRAMES; i++) {
		if (frames->frames[i].entered_ns) {
			frames->frames[i].entered_ns = 0;
			lose_frame(&frames->frames[i]);
		}
	}
	if (is_entry(frames))
		bpf_map_delete_elem(&frames_by_thread, &thread);
	else
		frames->thread = 0;
}

#endif
