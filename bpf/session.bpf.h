/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Reads and writes of vfs by one program for entry and return: fsession (7.0), kprobe.session (6.10). The start of a
 * call is in the cookie that the kernel keeps on the task's stack, so the return needs no lookup. These functions are
 * only reached from system calls: no call is inside another one of its op, except where a file system calls them, which
 * is_inside_session() recognises by the system call.
 *
 * As with fentry, the kernel skips the program of an fsession while a task is preempted inside it. Its counter of skips
 * does not distinguish entries from returns, and of a call either or both may be skipped; `unmatched_ends` and
 * `under_way` (struct op_stats) distinguish these.
 */
#ifndef __SESSION_BPF_H__
#define __SESSION_BPF_H__

/* Values of a cookie that are no time of an entry. */
enum cookie {
	COOKIE_NO_ENTRY = 0, /* as the trampoline initialises it: the entry was skipped */
	COOKIE_UNTRACED = 1, /* the call is not traced */
};

/* Whether the call that the current thread begins is traced. */
static __always_inline bool session_is_traced(__u32 point)
{
	struct thread_id id = current_id();

	if (point_shape(point) != SHAPE_FILE_0)
		return false;
	if (config.tgid) {
		if (unlikely(id.tgid != control.active_tgid))
			return false;
	} else if (unlikely(!process_is_traced(id) || control.stopped & STOP_CALLS)) {
		return false;
	}
	return thread_is_selected() && is_chosen();
}

/* Counts the entry of a call. Returns whether the call is traced. */
static __always_inline bool begin_session(__u32 point, enum verdict verdict)
{
	struct op_stats *s;

	if (unlikely(verdict != TRACED)) {
		if (verdict >= EXCLUDED)
			count_excluded(point_op(point), verdict);
		return false;
	}
	if (config.bins) {
		add(&binned_of(point_op(point))->begun, 1);
		return true;
	}
	s = stats_of(point_op(point));
	if (!s)
		return false;
	add(&s->under_way, 1);
	return true;
}

/*
 * Counts a call that began at `start`. VALUE, its return value, is a macro argument so that it is read after the clock.
 */
#define FINISH_SESSION(point, start, VALUE)                                                                            \
	({                                                                                                             \
		__u64 __ns = bpf_ktime_get_ns() - (start);                                                             \
		__u32 __op = point_op(point);                                                                          \
                                                                                                                       \
		/* Subtract first: the start then needs no register. */                                                \
		barrier_var(__ns);                                                                                     \
		if (!config.bins || !count_in_bin(binned_of(__op), __ns, (VALUE)))                                     \
			count_without_bin(__op, __ns, (VALUE));                                                        \
	})

SEC("fsession")
int fsession_both(void *ctx)
{
	__u32 point = SPECIALISED_POINT();
	struct op_stats *s;
	__u64 *cookie, start;

	if (!bpf_session_is_return_ctx(ctx)) {
		cookie = bpf_session_cookie_ctx(ctx);
		/* Keeps the call in this branch: the compiler would make it before, and keep its result. */
		barrier_var(cookie);
		if (session_is_traced(point) && begin_session(point, check_call(ctx, true, point)))
			*cookie = bpf_ktime_get_ns();
		else {
			*cookie = COOKIE_UNTRACED;
			/* Keeps two stores: merged into one they take a register. */
			barrier();
		}
		return 0;
	}
	barrier();
	start = *bpf_session_cookie_ctx(ctx);
	if (likely(start > COOKIE_UNTRACED)) {
		/* The return value follows the arguments. */
		if (point_args(point) == 4)
			FINISH_SESSION(point, start, CONTEXT_WORD(ctx, 4));
		else if (point_args(point) == 5)
			FINISH_SESSION(point, start, CONTEXT_WORD(ctx, 5));
	} else if (start == COOKIE_NO_ENTRY) {
		s = stats_of(point_op(point));
		if (s)
			add(&s->unmatched_ends, 1);
	}
	return 0;
}

/* The kernel does not call it at the return of a call whose entry returned 1, or was skipped. */
SEC("kprobe.session")
int session_by_cookie(struct pt_regs *ctx)
{
	__u32 point = SPECIALISED_POINT();
	__u64 *cookie, start;

	if (session_is_return(ctx)) {
		start = *session_cookie(ctx);
		/* Keeps the load before the clock: the compiler would load it after, and keep the time meanwhile. */
		barrier_var(start);
		FINISH_SESSION(point, start, PT_REGS_RC(ctx));
		return 0;
	}
	if (!session_is_traced(point) || !begin_session(point, check_call(ctx, false, point)))
		return 1;
	cookie = session_cookie(ctx);
	*cookie = bpf_ktime_get_ns();
	return 0;
}

/*
 * Does nothing. Its link keeps functions hooked while others come and go (src/probe/attach/hold.rs). Returning 1 skips
 * their returns.
 */
SEC("kprobe.session")
int hold(void *ctx)
{
	return 1;
}

#endif
