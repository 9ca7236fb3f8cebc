/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Reads and writes of vfs by one program at the entry and the return: fsession (7.0), kprobe.session (6.10). The start of a call is in
 * the cookie that the kernel keeps on the task's own stack, so that nothing has to be found at the return. The functions are those
 * that system calls alone come by: a call is never inside another one of its op, and what a file system calls inside it is told by
 * the system call, see is_inside_a_cookie().
 *
 * As with fentry, the kernel skips the program of an fsession while a task is preempted inside it. It counts entries and returns
 * together, and of a call it may have skipped either or both; `half_seen` and `under_way` (struct op_stats) tell these apart.
 */
#ifndef __SESSION_BPF_H__
#define __SESSION_BPF_H__

/* What is in a cookie when it is not the time of the entry. */
enum cookie {
	COOKIE_UNSEEN = 0, /* as the trampoline makes it: the entry was skipped */
	COOKIE_LEFT_OUT = 1, /* nobody asked for this call */
};

static __u64 *(*const bpf_session_cookie)(void) = (void *)KFUNC_SESSION_COOKIE;
static __u64 *(*const bpf_session_cookie_of)(void *ctx) = (void *)KFUNC_SESSION_COOKIE_OF;

/* Whether calls of the current thread are looked at. */
static __always_inline bool session_is_traced(__u32 point)
{
	/* It is cheaper than the helper that answers both numbers. */
	__u64 id = (__u64)bpf_get_current_task_btf()->tgid << 32;

	return point_shape(point) == SHAPE_FILE_0 && thread_is_traced(id) && !(control.stopped & STOP_CALLS);
}

/* A call begins. Answers what its cookie is to be. */
static __always_inline __u64 enter_session(__u32 point, enum verdict verdict)
{
	struct op_stats *s;

	if (verdict == EXCLUDED)
		count_excluded(point_op(point));
	if (verdict != TRACED)
		return COOKIE_LEFT_OUT;
	s = stats_of(point_op(point));
	if (!s)
		return COOKIE_LEFT_OUT;
	add(&s->under_way, 1);
	return bpf_ktime_get_ns();
}

static __always_inline void leave_session(__u32 point, __u64 cookie, long value)
{
	struct ended call = { .entered_ns = cookie };
	struct op_stats *s;
	__u64 now;

	if (cookie == COOKIE_LEFT_OUT)
		return;
	now = bpf_ktime_get_ns();
	s = stats_of(point_op(point));
	if (!s)
		return;
	if (cookie == COOKIE_UNSEEN) {
		add(&s->half_seen, 1);
		return;
	}
	add(&s->under_way, -1);
	if (is_timed(point, &call, now))
		record_to(s, point_op(point), true, now - cookie, step_of(now - cookie), value, false);
}

SEC("fsession")
int fsession_both(void *ctx)
{
	__u64 *cookie = bpf_session_cookie_of(ctx);
	__u32 point = SPECIALISED_POINT();

	if (!bpf_session_is_return_of(ctx))
		*cookie = session_is_traced(point) ? enter_session(point, judge_direct(ctx, point)) : COOKIE_LEFT_OUT;
	/* The return value stands behind the arguments. */
	else if (point_args(point) == 4)
		leave_session(point, *cookie, CONTEXT_WORD(ctx, 4));
	else if (point_args(point) == 5)
		leave_session(point, *cookie, CONTEXT_WORD(ctx, 5));
	return 0;
}

SEC("kprobe.session")
int session_by_cookie(struct pt_regs *ctx)
{
	__u64 *cookie = kfuncs.session_cookie_of ? bpf_session_cookie_of(ctx) : bpf_session_cookie();
	__u32 point = SPECIALISED_POINT();
	__u64 start;

	if (session_is_return(ctx)) {
		leave_session(point, *cookie, PT_REGS_RC(ctx));
		return 0;
	}
	start = session_is_traced(point) ? enter_session(point, judge_probed(ctx, point)) : COOKIE_LEFT_OUT;
	*cookie = start;
	/* 1: the return is of no interest. */
	return start == COOKIE_LEFT_OUT;
}

/* Does nothing: it is there so that its functions stay hooked. Their returns are of no interest. */
SEC("kprobe.session")
int hold(void *ctx)
{
	return 1;
}

#endif
