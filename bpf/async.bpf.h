/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Asynchronous reads and writes: io_uring's and libaio's. Such a request comes in by a door (io_read, aio_read, ...),
 * which calls the file system with the request's kiocb, and is done when
 *
 * - the door returns and says so, or
 * - the kiocb's completion function is called, by then or later, on any CPU, often in an interrupt.
 *
 * Until then the request is in a table by the address of its kiocb, which is the request's own address for both (struct
 * io_kiocb, struct aio_kiocb). It is put there at the door's entry, since its completion may come before the door
 * returns. Whoever takes it out is the one who counts it: taking out is what two CPUs cannot both do.
 *
 * io_uring tries a request that would have had to wait again: in a worker thread, or when a page has arrived
 * (io_uring/rw.c, io_queue_iowq, io_async_buf_func). All attempts are one request here, timed from the first on.
 * Memory of requests is used again, so an entry that is found at a door may be another request's, whose end was not
 * seen; see is_another_attempt().
 */
#ifndef __ASYNC_BPF_H__
#define __ASYNC_BPF_H__

/* include/linux/sched.h: a thread of io_uring's workers, since they are threads of the process (5.12). */
#define PF_IO_WORKER 0x10
/* include/linux/fs.h, both as they are since 5.9. */
#define IOCB_NOWAIT 0x8
#define IOCB_DIRECT (1 << 17)
/* Where struct kiocb has dio_complete (6.6 to 6.18, 8c052fb3002e): res is not the result, which is with the caller. */
#define IOCB_DIO_CALLER_COMP (1 << 22)
/* include/uapi/linux/io_uring.h, IOSQE_ASYNC: the first attempt is a worker's already. */
#define REQ_F_FORCE_ASYNC (1 << 4)

/* Requests under way, preallocated: it is filled and emptied where nothing may be allocated. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct async_call);
} asynchronous SEC(".maps");

/* Counters of an op's completions, by the op. They have their own, as they interrupt those who count returns. */
const volatile __u8 completion_counters[MAX_OPS];

/* Counts one layer's view of a request that is done, at `now`, with `value`. */
static __always_inline void finish_start(const struct async_start *start, __u32 layer, __u64 now, long value, bool completed)
{
	__u32 op = point_op(start->point), row = completed ? completion_counters[op] | COUNTER_ATOMIC : op;

	if (!start->point || point_is_suppressed(start->point))
		return;
	if (layer != ASYNC_ENTRY) {
		if (start->left_ns) {
			now = start->left_ns;
			value = start->value;
		} else if (!completed) {
			count_lost(row, LOST_RETURN, 1);
			return;
		} else if (value >= 0 && start->value > 0) {
			value += start->value;
		}
	}
	if (now < start->entered_ns)
		count_lost(row, LOST_CLOCK, 1);
	else {
		record_out_of_line(row | COUNTER_MOVES_BYTES, now - start->entered_ns, value);
		record_in_group(start->group, op, true, now - start->entered_ns, value, 0);
	}
}

/* A request is done. `completed`: by its completion function, so that this may be an interrupt. */
static __always_inline void finish(__u64 kiocb, struct async_call *call, __u64 now, long value, bool completed)
{
	struct async_call done = *call;

	if (bpf_map_delete_elem(&asynchronous, &kiocb))
		return;
	finish_start(&done.starts[ASYNC_ENTRY], ASYNC_ENTRY, now, value, completed);
	finish_start(&done.starts[ASYNC_BELOW], ASYNC_BELOW, now, value, completed);
	if (has_above)
		finish_start(&done.starts[ASYNC_ABOVE], ASYNC_ABOVE, now, value, completed);
}

/* The request at this address has ended without our seeing it, which is rare. By itself, as many ways lead to it. */
__noinline int drop_stale_request(__u64 kiocb)
{
	struct async_call *call = bpf_map_lookup_elem(&asynchronous, &kiocb);
	struct async_call lost;

	if (!call)
		return 0;
	lost = *call;
	if (bpf_map_delete_elem(&asynchronous, &kiocb))
		return 0;
	if (lost.state == ASYNC_PARKED) {
		/* It was cancelled before another attempt, or the caller wanted none. */
		finish_start(&lost.starts[ASYNC_ENTRY], ASYNC_ENTRY, lost.parked_ns, -EAGAIN, false);
		finish_start(&lost.starts[ASYNC_BELOW], ASYNC_BELOW, lost.parked_ns, -EAGAIN, false);
		if (has_above)
			finish_start(&lost.starts[ASYNC_ABOVE], ASYNC_ABOVE, lost.parked_ns, -EAGAIN, false);
		return 0;
	}
#pragma unroll
	for (int i = 0; i < ASYNC_LAYERS; i++) {
		if (lost.starts[i].point && !point_is_suppressed(lost.starts[i].point))
			count_lost(point_op(lost.starts[i].point), LOST_RETURN, 1);
	}
	return 0;
}

static __always_inline bool is_worker(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return BPF_CORE_READ(task, flags) & PF_IO_WORKER;
}

/*
 * Is the request at the door the one that has the entry? The answer "no" is wrong at worst for one that had been
 * cancelled or whose file can be polled: then it is two, the first with the error that it had. A wrong "yes" would give a request
 * another one's start, so it takes proof:
 *
 * - What had to wait for a page, and was not direct, comes again in its own thread, and there is no other end to it.
 * - What would have had to wait goes to a worker. No other request comes to a worker before it has been tried
 *   elsewhere, which would have replaced the entry, except those that ask for it.
 */
static __always_inline bool is_another_attempt(__u64 kiocb, struct async_call *call, __u64 id)
{
	if (call->is_aio || call->tgid != id >> 32)
		return false;
	if (call->state == ASYNC_QUEUED)
		return !call->direct && call->thread == (__u32)id;
	if (call->state != ASYNC_PARKED || !is_worker())
		return false;
	return call->thread == (__u32)id || !(BPF_CORE_READ((struct io_kiocb *)kiocb, flags) & REQ_F_FORCE_ASYNC);
}

/* Does the caller want -EAGAIN when the request would have to wait? Asked before the first attempt changes the flags. */
static __always_inline bool wants_no_wait(__u64 kiocb)
{
	struct io_rw *rw = (void *)kiocb;

	if (bpf_core_field_exists(rw->flags))
		return BPF_CORE_READ(rw, flags) & IOCB_NOWAIT;
	return BPF_CORE_READ((struct kiocb *)kiocb, ki_flags) & IOCB_NOWAIT;
}

/* A request comes in. Answers its key, 0 when there is no room for it. */
static __always_inline __u64 enter_async(__u32 point, __u64 kiocb, __u64 now, __u32 group)
{
	struct async_call *call = bpf_map_lookup_elem(&asynchronous, &kiocb);
	__u64 id = bpf_get_current_pid_tgid();
	struct async_call new = {};

	if (call) {
		if (is_another_attempt(kiocb, call, id)) {
			call->thread = id;
			call->state = ASYNC_RUNNING;
			return kiocb;
		}
		drop_stale_request(as_number(kiocb));
	}
	new.starts[ASYNC_ENTRY].entered_ns = now;
	new.starts[ASYNC_ENTRY].point = point;
	new.starts[ASYNC_ENTRY].group = group;
	new.tgid = id >> 32;
	new.thread = id;
	new.is_aio = point_return(point) == RETURN_SUBMITTED;
	new.nowait = wants_no_wait(kiocb);
	if (bpf_map_update_elem(&asynchronous, &kiocb, &new, BPF_ANY)) {
		if (!point_is_suppressed(point))
			count_lost(point_op(point), LOST_TABLE_FULL, 1);
		return 0;
	}
	return kiocb;
}

/*
 * The request that the current thread works on where a file system below another one is called: overlayfs calls the one below with a
 * kiocb of its own, which no entry point has seen. `around`: the request with which the thread last entered one.
 */
static __always_inline struct async_call *outer_request(__u64 around)
{
	struct async_call *call = around ? bpf_map_lookup_elem(&asynchronous, &around) : NULL;

	return call && call->state == ASYNC_RUNNING ? call : NULL;
}

/* What a request is to the file system that has the point. */
static __always_inline struct async_start *start_of(struct async_call *call, __u32 point)
{
	return &call->starts[point_above(point) ? ASYNC_ABOVE : ASYNC_BELOW];
}

/*
 * The file system is called with a kiocb. Answers the key of the request that it belongs to, 0 when none is known. `around`: as
 * above.
 */
static __always_inline __u64 enter_below(__u32 point, __u64 kiocb, __u64 now, __u32 group, __u64 around)
{
	struct async_call *call = bpf_map_lookup_elem(&asynchronous, &kiocb);
	struct async_start *start;

	if (!call) {
		call = outer_request(around);
		kiocb = around;
	}
	if (!call || call->thread != (__u32)bpf_get_current_pid_tgid())
		return 0;
	start = start_of(call, point);
	start->left_ns = 0;
	if (!start->point) {
		start->entered_ns = now;
		start->point = point;
		start->group = group;
	}
	return kiocb;
}

/* The request that the current thread is inside the door with. Its end, and another one's begin, may have come before. */
static __always_inline struct async_call *current_request(__u64 kiocb)
{
	struct async_call *call = bpf_map_lookup_elem(&asynchronous, &kiocb);

	if (!call || call->thread != (__u32)bpf_get_current_pid_tgid())
		return NULL;
	return call;
}

static __always_inline void leave_below(__u32 point, __u64 kiocb, __u64 now, long value)
{
	struct async_call *call;
	struct async_start *start;

	if (value == -EIOCBQUEUED)
		return;
	call = current_request(kiocb);
	if (!call)
		return;
	start = start_of(call, point);
	start->left_ns = now;
	if (value >= 0)
		start->value = start->value > 0 ? start->value + value : value;
	else if (start->value <= 0)
		start->value = value;
}

static __always_inline void leave_async(__u32 point, __u64 kiocb, __u64 now, long value)
{
	/*
	 * Since 6.0 (97b388d70b53) io_uring's doors return 0 for what is done, and its result is in the request. Before,
	 * 0 is whatever is not to be tried again, as it is for libaio: what is done had its completion then.
	 */
	bool tells = point_return(point) == RETURN_ISSUED && bpf_core_type_exists(struct io_cmd_data);
	struct async_call *call = current_request(kiocb);

	if (!call)
		return;
	if (value == -EIOCBQUEUED || (value == 0 && !tells)) {
		if (call->state == ASYNC_RUNNING) {
			call->direct = !!(BPF_CORE_READ((struct kiocb *)kiocb, ki_flags) & IOCB_DIRECT);
			call->state = ASYNC_QUEUED;
		}
	} else if (value == -EAGAIN && !call->is_aio && !call->nowait) {
		call->parked_ns = now;
		call->state = ASYNC_PARKED;
	} else {
		if (tells && value == 0)
			value = BPF_CORE_READ((struct io_kiocb *)kiocb, cqe.res);
		finish(kiocb, call, now, value, false);
	}
}

/* What a completion says, made the request's result. */
static __always_inline long completed_value(__u64 address, struct async_call *call, long value)
{
	struct kiocb___deferred *deferred = (void *)address;
	struct kiocb *kiocb = (void *)address;
	struct io_kiocb *request = (void *)address;

	if (call->is_aio || value < 0)
		return value;
	if (bpf_core_field_exists(deferred->dio_complete) && BPF_CORE_READ(kiocb, ki_flags) & IOCB_DIO_CALLER_COMP) {
		struct iomap_dio *dio = BPF_CORE_READ(kiocb, private);
		int error = BPF_CORE_READ(dio, error);

		return error ? error : BPF_CORE_READ(dio, size);
	}
	/* Before 6.0 what earlier attempts had moved is added afterwards (io_fixup_rw_res). */
	if (!bpf_core_type_exists(struct io_cmd_data)) {
		struct io_async_rw *earlier = BPF_CORE_READ(request, async_data);

		if (earlier)
			return value + BPF_CORE_READ(earlier, bytes_done);
	}
	return value;
}

/* A completion function is called: of a kiocb with what it comes to, perhaps as an interrupt. */
static __always_inline int complete(__u64 kiocb, long value)
{
	__u64 now = bpf_ktime_get_ns();
	struct async_call *call;

	/* kiocb_done() is asked before it knows whether there is anything to complete. */
	if (value == -EIOCBQUEUED)
		return 0;
	call = bpf_map_lookup_elem(&asynchronous, &kiocb);
	if (!call)
		return 0;
	if (value == -EAGAIN && !call->is_aio && !call->nowait) {
		/* It is tried again by a worker (io_rw_should_reissue). */
		call->parked_ns = now;
		call->state = ASYNC_PARKED;
		return 0;
	}
	finish(kiocb, call, now, completed_value(kiocb, call, value), true);
	return 0;
}

/*
 * A request has failed and is not tried again: it was cancelled while it waited for a worker or a page, by somebody or since its process
 * exits. (Of one whose entry point returned the error it is called as well, and that has counted it.)
 */
static __always_inline int fail(__u64 kiocb)
{
	struct async_call *call = bpf_map_lookup_elem(&asynchronous, &kiocb);

	if (call)
		finish(kiocb, call, bpf_ktime_get_ns(), BPF_CORE_READ((struct io_kiocb *)kiocb, cqe.res), true);
	return 0;
}

SEC("fentry")
int complete_fentry(void *ctx)
{
	if (SPECIALISED_POINT() == POINT_FAILED)
		return fail(CONTEXT_WORD(ctx, 0));
	return complete(CONTEXT_WORD(ctx, 0), CONTEXT_WORD(ctx, 1));
}

SEC("kprobe")
int complete_function(struct pt_regs *ctx)
{
	if (SPECIALISED_POINT() == POINT_FAILED)
		return fail(PT_REGS_PARM1(ctx));
	return complete(PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx));
}

#endif
