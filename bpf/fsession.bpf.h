/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Reads and writes of vfs by one program at the entry and the return (fsession, 7.0). The start of a call is in the cookie that the
 * trampoline keeps on the task's own stack, so that nothing has to be found at the return. The functions are those that system
 * calls alone come by: a call is never inside another one of its op, and what a file system calls inside it is told by the system
 * call, see is_inside_a_cookie().
 *
 * As with fentry, the kernel skips the program while a task is preempted inside it. It counts entries and returns together, and of a
 * call it may have skipped either or both; `half_seen` and `under_way` (struct op_stats) tell these apart.
 */
#ifndef __FSESSION_BPF_H__
#define __FSESSION_BPF_H__

/* What is in a cookie when it is not the time of the entry. */
enum cookie {
	COOKIE_UNSEEN = 0, /* as the trampoline makes it: the entry was skipped */
	COOKIE_LEFT_OUT = 1, /* nobody asked for this call */
};

static __u64 *(*const bpf_session_cookie_of)(void *ctx) = (void *)KFUNC_SESSION_COOKIE_OF;

static __always_inline void enter_session(void *ctx, __u32 point, __u64 *cookie)
{
	/* It is cheaper than the helper that answers both numbers. */
	__u64 id = (__u64)bpf_get_current_task_btf()->tgid << 32;
	struct op_stats *s;
	enum verdict verdict;

	*cookie = COOKIE_LEFT_OUT;
	if (point_shape(point) != SHAPE_FILE_0 || !thread_is_traced(id) || control.stopped & STOP_CALLS)
		return;
	verdict = judge_direct(ctx, point);
	if (verdict == EXCLUDED)
		count_excluded(point_op(point));
	if (verdict != TRACED)
		return;
	s = stats_of(point_op(point));
	if (!s)
		return;
	add(&s->under_way, 1);
	*cookie = bpf_ktime_get_ns();
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
		record_to(s, true, now - cookie, step_of(now - cookie), value, false);
}

SEC("fsession")
int fsession_both(void *ctx)
{
	__u64 *cookie = bpf_session_cookie_of(ctx);
	__u32 point = SPECIALISED_POINT();

	if (!bpf_session_is_return_of(ctx))
		enter_session(ctx, point, cookie);
	/* The return value stands behind the arguments. */
	else if (point_args(point) == 4)
		leave_session(point, *cookie, CONTEXT_WORD(ctx, 4));
	else if (point_args(point) == 5)
		leave_session(point, *cookie, CONTEXT_WORD(ctx, 5));
	return 0;
}

#endif
