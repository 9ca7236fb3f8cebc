/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Asynchronous reads and writes, of io_uring and libaio. Such a request enters at an asynchronous entry point (io_read,
 * aio_read, ...), which calls the file system with the request's kiocb. It is done when
 *
 * - the entry point returns and says so, or
 * - the completion function of the kiocb is called, before that or later, on any CPU, often in an interrupt.
 *
 * Until then it is in a table by the address of its kiocb, which is the address of the request itself for both (struct
 * io_kiocb, struct aio_kiocb). It is added when the entry point is entered, since its completion may come before the
 * entry point returns. The CPU whose bpf_map_delete_elem() succeeds counts it, so it is counted once.
 *
 * io_uring makes another attempt at a request that would have had to wait: in a worker thread, or when a page has
 * arrived (io_uring/rw.c, io_queue_iowq, io_async_buf_func). All attempts are one request here, timed from the first
 * on. Memory of requests is reused, so an entry that is found at an entry point may belong to an earlier request whose
 * end was missed; see is_another_attempt().
 */
#ifndef __ASYNC_BPF_H__
#define __ASYNC_BPF_H__

/* include/linux/sched.h: a worker thread of io_uring, since these are threads of the process (5.12). */
#define PF_IO_WORKER 0x10
/* include/linux/fs.h, both unchanged since 5.9. */
#define IOCB_NOWAIT 0x8
#define IOCB_DIRECT (1 << 17)
/*
 * Where struct kiocb has dio_complete (6.6 to 6.18, 8c052fb3002e): the completion's argument is not the result;
 * completed_value() finds it.
 */
#define IOCB_DIO_CALLER_COMP (1 << 22)
/* include/uapi/linux/io_uring.h, IOSQE_ASYNC: already the first attempt is made by a worker. */
#define REQ_F_FORCE_ASYNC (1 << 4)

/* Requests in flight. Preallocated: entries are added and deleted where nothing may be allocated. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct async_call);
} asynchronous SEC(".maps");

/* To insert: functions that call each other share 512 bytes of stack. */
static const struct async_call no_async_call;

/* Records of the requests in flight, of as many as `asynchronous` has room for. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, struct async_record);
} async_records SEC(".maps");

static const struct async_record no_async_record;

/* include/uapi/linux/io_uring.h: the flags that a submission may have (IOSQE_...), which are the lowest of a request. */
#define SUBMITTED_FLAGS 0x7f

/* Fills in what the request says of itself before its first attempt. */
static __always_inline void fill_async(struct async_record *record, __u64 address, struct file *file)
{
	record->offset = BPF_CORE_READ((struct kiocb *)address, ki_pos);
	/* The position of the file, which the attempt has not looked at yet. */
	if (record->offset == -1ull)
		record->offset = BPF_CORE_READ(file, f_pos);
	if (BPF_CORE_READ(file, f_mode) & FMODE_LSEEK)
		record->has = CALL_HAS_OFFSET;
	if (BPF_CORE_READ(file, f_flags) & O_DIRECT)
		record->has |= CALL_IS_DIRECT;
	if (record->is_aio) {
		record->context = BPF_CORE_READ((struct aio_kiocb *)address, ki_ctx, user_id);
	} else {
		record->context = (__u64)BPF_CORE_READ((struct io_kiocb *)address, ctx);
		record->flags = BPF_CORE_READ((struct io_kiocb *)address, flags) & SUBMITTED_FLAGS;
	}
}

/* The current thread begins the first attempt at a request. */
__noinline int note_async(__u64 address, __u32 point, __u64 now)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct thread_state *state = config.records ? find_thread(id) : NULL;
	struct recorder *recorder;
	struct async_record *record;
	struct file *file;

	if (!state || bpf_map_update_elem(&async_records, &address, &no_async_record, BPF_ANY))
		return 0;
	recorder = recorder_of_call(state, id);
	record = bpf_map_lookup_elem(&async_records, &address);
	if (!recorder || !record)
		return 0;
	record->kind = RECORD_ASYNC;
	record->op = point_op(point);
	record->is_aio = point_return(point) == RETURN_SUBMITTED;
	record->thread = id;
	record->tgid = id >> 32;
	record->begin_ns = now;
	record->key = address;
	record->attempts = 1;
	file = BPF_CORE_READ((struct kiocb *)address, ki_filp);
	fill_async(record, address, file);
	know_thread(recorder);
	record->file = file ? number_of(recorder, id, file, false) : 0;
	return 0;
}

/* An attempt that did not end its request has ended at `end_ns`; 0: another one begins. */
__noinline int note_attempt(__u64 address, __u64 end_ns)
{
	struct async_record *record = config.records ? bpf_map_lookup_elem(&async_records, &address) : NULL;

	if (!record)
		return 0;
	record->attempt_end_ns = end_ns;
	if (!end_ns)
		record->attempts++;
	return 0;
}

/* The file system gets a request, with the number of bytes that it is to move, and where. */
__noinline int note_async_size(__u64 address, __u64 iterator)
{
	struct async_record *record = config.records ? bpf_map_lookup_elem(&async_records, &address) : NULL;

	/* A later attempt only has the rest. */
	if (record && !(record->has & CALL_HAS_SIZE)) {
		record->size = BPF_CORE_READ((struct iov_iter *)iterator, count);
		/* That of AIO is not set before. */
		record->offset = BPF_CORE_READ((struct kiocb *)address, ki_pos);
		record->has |= CALL_HAS_SIZE;
	}
	return 0;
}

/* A request has ended, and is counted. `completed`: not by an attempt. */
__noinline int record_async(__u64 address, __u64 now, __s64 value, __u32 completed)
{
	struct async_record *record, *noted;

	if (!config.records)
		return 0;
	noted = bpf_map_lookup_elem(&async_records, &address);
	record = noted ? reserve(RECORD_ASYNC, struct async_record) : NULL;
	if (record) {
		*record = *noted;
		record->end_ns = now;
		record->value = value;
		if (!completed)
			record->attempt_end_ns = now;
		submit(record);
	} else if (!noted) {
		lose_record(RECORD_ASYNC);
	}
	bpf_map_delete_elem(&async_records, &address);
	return 0;
}

/* A request has no end that was seen. */
__noinline int lose_async(__u64 address)
{
	if (config.records && !bpf_map_delete_elem(&async_records, &address))
		lose_record(RECORD_ASYNC);
	return 0;
}

/*
 * Per op: index of the counters of its completions, which are separate because a completion may interrupt a program
 * that counts a return.
 */
const volatile __u8 completion_counters[MAX_OPS];

/* Counts a request that is done for one of its layers. `value`: bytes, or a negative errno. */
static __always_inline void finish_start(const struct async_start *start, __u32 layer, __u64 now, long value,
					 bool completed)
{
	__u32 op = point_op(start->point), row = completed ? completion_counters[op] : op;
	bool is_lost = false;

	if (!start->point || point_is_suppressed(start->point))
		return;
	if (layer != ASYNC_ENTRY) {
		if (start->left_ns) {
			now = start->left_ns;
			value = start->value;
		} else if (!completed) {
			is_lost = true;
		} else if (value >= 0 && start->value > 0) {
			value += start->value;
		}
	}
	if (is_lost || now < start->entered_ns) {
		count_lost(row, is_lost ? LOST_RETURN : LOST_CLOCK, 1);
	} else {
		record_out_of_line(row | COUNTER_MOVES_BYTES | (completed ? COUNTER_ATOMIC : 0), now - start->entered_ns,
				   value);
		record_in_group(start->group, op, true, now - start->entered_ns, value, 0);
	}
}

/* A request is done. `completed`: seen at its completion function, so this may be an interrupt. */
static __always_inline void finish(__u64 kiocb, struct async_call *call, __u64 now, long value, bool completed)
{
	struct async_call done = *call;

	if (bpf_map_delete_elem(&asynchronous, &kiocb))
		return;
	finish_start(&done.starts[ASYNC_ENTRY], ASYNC_ENTRY, now, value, completed);
	finish_start(&done.starts[ASYNC_BELOW], ASYNC_BELOW, now, value, completed);
	if (has_above)
		finish_start(&done.starts[ASYNC_ABOVE], ASYNC_ABOVE, now, value, completed);
	if (config.records)
		record_async(as_number(kiocb), now, value, completed);
}

/*
 * Counts a request whose end was not seen as lost or, if it was parked, with its error. Out of line (compat.bpf.h):
 * rare, and many paths lead to it.
 */
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
		/* Cancelled before another attempt, or its caller wanted none. */
		finish_start(&lost.starts[ASYNC_ENTRY], ASYNC_ENTRY, lost.parked_ns, -EAGAIN, false);
		finish_start(&lost.starts[ASYNC_BELOW], ASYNC_BELOW, lost.parked_ns, -EAGAIN, false);
		if (has_above)
			finish_start(&lost.starts[ASYNC_ABOVE], ASYNC_ABOVE, lost.parked_ns, -EAGAIN, false);
		if (config.records)
			record_async(kiocb, lost.parked_ns, -EAGAIN, false);
		return 0;
	}
	if (config.records)
		lose_async(kiocb);
#pragma unroll
	for (int i = 0; i < ASYNC_LAYERS; i++) {
		if (lost.starts[i].point && !point_is_suppressed(lost.starts[i].point))
			count_lost(point_op(lost.starts[i].point), LOST_RETURN, 1);
	}
	return 0;
}

static __always_inline bool is_worker(void)
{
	return task_flags() & PF_IO_WORKER;
}

/*
 * Whether the request at the entry point is the one in the table. A wrong "no" counts a request that was cancelled, or
 * whose file can be polled, as two, the first with its error. A wrong "yes" would give a request the start of another
 * one, so it needs proof:
 *
 * - A request that had to wait for a page, and is not direct, is attempted again by its own thread, and ends in no
 *   other way.
 * - A request that would have had to wait goes to a worker. Any other request reaches a worker only after an attempt
 *   elsewhere, which would have replaced the entry, except those with IOSQE_ASYNC.
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

/*
 * Whether the caller wants -EAGAIN if the request would have to wait. To be read before the first attempt, which
 * changes the flags.
 */
static __always_inline bool wants_no_wait(__u64 kiocb)
{
	struct io_rw *rw = (void *)kiocb;

	if (bpf_core_field_exists(rw->flags))
		return BPF_CORE_READ(rw, flags) & IOCB_NOWAIT;
	return BPF_CORE_READ((struct kiocb *)kiocb, ki_flags) & IOCB_NOWAIT;
}

/* A request enters. Returns its key, 0 if the table is full. Out of line (compat.bpf.h): many paths lead here. */
__noinline __u64 enter_async(__u32 point, __u64 kiocb, __u64 now, __u32 group)
{
	struct async_call *call = bpf_map_lookup_elem(&asynchronous, &kiocb);
	__u64 id = bpf_get_current_pid_tgid();

	if (call) {
		if (is_another_attempt(kiocb, call, id)) {
			call->thread = id;
			call->state = ASYNC_RUNNING;
			if (config.records)
				note_attempt(kiocb, 0);
			return kiocb;
		}
		drop_stale_request(kiocb);
	}
	call = bpf_map_update_elem(&asynchronous, &kiocb, &no_async_call, BPF_ANY) ?
		       NULL :
		       bpf_map_lookup_elem(&asynchronous, &kiocb);
	if (!call) {
		if (!point_is_suppressed(point))
			count_lost(point_op(point), LOST_TABLE_FULL, 1);
		return 0;
	}
	call->starts[ASYNC_ENTRY].entered_ns = now;
	call->starts[ASYNC_ENTRY].point = point;
	call->starts[ASYNC_ENTRY].group = group;
	call->tgid = id >> 32;
	call->thread = id;
	call->is_aio = point_return(point) == RETURN_SUBMITTED;
	call->nowait = wants_no_wait(kiocb);
	if (config.records)
		note_async(kiocb, point, now);
	return kiocb;
}

/*
 * The request that the current thread works on when a file system below another one is called: overlayfs calls it with
 * a kiocb of its own, which has passed no entry point. `outer`: the kiocb of the request with which the thread last
 * entered an entry point.
 */
static __always_inline struct async_call *outer_request(__u64 outer)
{
	struct async_call *call = outer ? bpf_map_lookup_elem(&asynchronous, &outer) : NULL;

	return call && call->state == ASYNC_RUNNING ? call : NULL;
}

/* The start and result of a request at the file system of `point`. */
static __always_inline struct async_start *start_of(struct async_call *call, __u32 point)
{
	return &call->starts[point_above(point) ? ASYNC_ABOVE : ASYNC_BELOW];
}

/*
 * The file system is called with a kiocb. Returns the key of the request that it belongs to, 0 if none is known.
 * `outer`: the kiocb of the request with which the thread last entered an entry point.
 */
static __always_inline __u64 enter_below(__u32 point, __u64 kiocb, __u64 now, __u32 group, __u64 outer)
{
	struct async_call *call = bpf_map_lookup_elem(&asynchronous, &kiocb);
	struct async_start *start;

	if (!call) {
		call = outer_request(outer);
		kiocb = outer;
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

/*
 * The request with which the current thread is inside an entry point; NULL if it has completed meanwhile, and the
 * address may belong to another thread's request.
 */
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

/* An attempt at a request returns. Out of line as enter_async(). */
__noinline int leave_async(__u32 point, __u64 kiocb, __u64 now, long value)
{
	/*
	 * Since 6.0 (97b388d70b53) the entry points of io_uring return 0 for a request that is done, and the result is
	 * in the request. Before, 0 means that there is no other attempt, as for libaio: a request that is done has
	 * already completed.
	 */
	bool has_result = point_return(point) == RETURN_ISSUED && bpf_core_type_exists(struct io_cmd_data);
	struct async_call *call = current_request(kiocb);

	if (!call)
		return 0;
	if (value == -EIOCBQUEUED || (value == 0 && !has_result)) {
		if (call->state == ASYNC_RUNNING) {
			call->direct = !!(BPF_CORE_READ((struct kiocb *)kiocb, ki_flags) & IOCB_DIRECT);
			call->state = ASYNC_QUEUED;
			if (config.records)
				note_attempt(kiocb, now);
		}
	} else if (value == -EAGAIN && !call->is_aio && !call->nowait) {
		call->parked_ns = now;
		call->state = ASYNC_PARKED;
		if (config.records)
			note_attempt(kiocb, now);
	} else {
		if (has_result && value == 0)
			value = BPF_CORE_READ((struct io_kiocb *)kiocb, cqe.res);
		finish(kiocb, call, now, value, false);
	}
	return 0;
}

/* The result of a request, from what its completion function was given. */
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

/*
 * A completion function is called, perhaps in an interrupt, or a request has failed and gets no other attempt: it was
 * cancelled while it waited for a worker or a page, by a user or because its process exits. (The function of failures is also
 * called after an entry point has returned the error; the request is then no longer in the table.) `session`: the context whose
 * cookie has the point of the function; NULL: it is `point`.
 */
static __always_inline int complete(void *session, __u32 point, __u64 kiocb, long value)
{
	__u64 now = bpf_ktime_get_ns();
	struct async_call *call;

	/* kiocb_done(), which is hooked on older kernels, is also called if nothing has completed. */
	if (!session && point != POINT_FAILED && value == -EIOCBQUEUED)
		return 0;
	call = bpf_map_lookup_elem(&asynchronous, &kiocb);
	if (!call)
		return 0;
	/* Asked only now: most requests are those of others. */
	if (session)
		point = bpf_get_attach_cookie(session);
	if (point == POINT_FAILED) {
		value = BPF_CORE_READ((struct io_kiocb *)kiocb, cqe.res);
	} else if (value == -EAGAIN && !call->is_aio && !call->nowait) {
		/* A worker will make another attempt (io_rw_should_reissue). */
		call->parked_ns = now;
		call->state = ASYNC_PARKED;
		return 0;
	} else {
		value = completed_value(kiocb, call, value);
	}
	finish(kiocb, call, now, value, true);
	return 0;
}

SEC("fentry")
int complete_fentry(void *ctx)
{
	__u32 point = SPECIALISED_POINT();

	/* Without a second argument where there is none: the verifier knows how many there are. */
	if (point == POINT_FAILED)
		return complete(NULL, POINT_FAILED, CONTEXT_WORD(ctx, 0), 0);
	return complete(NULL, POINT_COMPLETED, CONTEXT_WORD(ctx, 0), CONTEXT_WORD(ctx, 1));
}

/*
 * All completions by one link of trampolines (fentry.multi; libbpf knows no section of that name). The functions have different
 * arguments as far as the verifier knows, so a helper reads these.
 */
SEC("fentry")
int complete_multi(void *ctx)
{
	__u64 kiocb, value;

	if (bpf_get_func_arg(ctx, 0, &kiocb) || bpf_get_func_arg(ctx, 1, &value))
		return 0;
	return complete(NULL, POINT_COMPLETED, kiocb, value);
}

SEC("kprobe")
int complete_function(struct pt_regs *ctx)
{
	return complete(NULL, SPECIALISED_POINT(), PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx));
}

/* All functions by one link, where the point of each is its cookie. Their returns are not seen. */
SEC("kprobe.session")
int complete_session(struct pt_regs *ctx)
{
	complete(ctx, 0, PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx));
	return 1;
}

#endif
