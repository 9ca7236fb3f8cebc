/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Processes and threads that begin, exec and exit, and iterators over threads for user space. */
#ifndef __PROCESS_BPF_H__
#define __PROCESS_BPF_H__

/* The current thread exits, or has got another number (`exits`: false): nothing is kept under this one any more. */
static __always_inline void leave_number(__u32 thread, bool exits)
{
	struct thread_state *state;

	/* While the slot is taken: the next thread in it may have the same recorder. */
	if (config.records)
		end_recorder(thread, exits);
	state = find_thread(thread);
	if (state) {
		lose_frames_of_exiting_thread(state, thread);
		if (WHOLE_STACK)
			close_breakdown(&state->breakdown, thread);
		forget_thread(state, thread);
	}
}

/*
 * `old_thread`: the number that the current thread had until now; that of another thread than the first one of the
 * process changes to that of the process. Without records nothing that is kept under the old one is looked at again: no call
 * is in flight during an exec.
 */
static __always_inline int on_exec(__u32 old_thread)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tgid = id >> 32;
	__u8 yes = 1;

	if (config.records && old_thread != (__u32)id)
		leave_number(old_thread, false);
	if (tgid == control.command_tgid)
		bpf_map_update_elem(&traced, &tgid, &yes, BPF_ANY);
	return 0;
}

static __always_inline int on_fork(__u32 child)
{
	__u32 parent = bpf_get_current_pid_tgid() >> 32;
	__u8 yes = 1;

	if (child != parent && bpf_map_lookup_elem(&traced, &parent) &&
	    bpf_map_update_elem(&traced, &child, &yes, BPF_ANY))
		__sync_fetch_and_add(&control.not_followed, 1);
	return 0;
}

static __always_inline int on_exit(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct thread_id id = current_id();
	__u32 tgid = id.tgid, thread = id.thread;

	leave_number(thread, true);
	if (!config.traced_set)
		return 0;
	forget_traced_thread(id);
	/* The last thread of the process exits; its number may be reused. */
	if (BPF_CORE_READ(task, signal, live.counter) == 0)
		bpf_map_delete_elem(&traced, &tgid);
	/* fork_classic() may have added the number of a thread. */
	if (config.follow && thread != tgid)
		bpf_map_delete_elem(&traced, &thread);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int exec_btf(void *ctx)
{
	return on_exec(CONTEXT_WORD(ctx, 1));
}

SEC("tracepoint/sched/sched_process_exec")
int exec_classic(struct trace_event_raw_sched_process_exec *ctx)
{
	return on_exec(ctx->old_pid);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(fork_btf, struct task_struct *parent, struct task_struct *child)
{
	return on_fork(child->tgid);
}

/* The event only has the thread number of the child. That of a new thread is no process number: it matches nothing. */
SEC("tracepoint/sched/sched_process_fork")
int fork_classic(struct trace_event_raw_sched_process_fork *ctx)
{
	return on_fork(ctx->child_pid);
}

SEC("tp_btf/sched_process_exit")
int exit_btf(void *ctx)
{
	return on_exit();
}

SEC("tracepoint/sched/sched_process_exit")
int exit_classic(void *ctx)
{
	return on_exit();
}

SEC("tp_btf/task_rename")
int BPF_PROG(rename_btf, struct task_struct *task, const char *name)
{
	if (config.records)
		note_name(task->pid, name);
	if (config.group_by == BY_PROCESS)
		rename_group(task, name);
	return 0;
}

/* Writes the point of each call in flight whose frame is in task storage. */
SEC("iter/task")
int in_flight(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct thread_state *state;

	if (!task)
		return 0;
	state = bpf_task_storage_get(&threads_by_task, task, 0, 0);
	if (!state)
		return 0;
	for (int i = 0; i < MAX_FRAMES; i++) {
		struct frame *frame = &state->calls.frames[i];

		/* Requests in flight are read from `asynchronous`. */
		if (frame->entered_ns > ENTERED_LEFT_OUT && !frame->kiocb)
			bpf_seq_write(ctx->meta->seq, &frame->point, sizeof(__u32));
	}
	return 0;
}

/*
 * Writes the number of each process in the PID namespace of the reader, which is the current task, and its global
 * number. The iterator only visits tasks of that namespace, so comparing the level is enough.
 */
SEC("iter/task")
int resolve_pids(struct bpf_iter__task *ctx)
{
	struct task_struct *reader = (void *)bpf_get_current_task();
	__u32 level = BPF_CORE_READ(reader, thread_pid, level);
	struct task_struct *task = ctx->task;
	__u32 pair[2] = {};
	struct pid *pid;

	if (!task || task->pid != task->tgid)
		return 0;
	pid = task->thread_pid;
	if (BPF_CORE_READ(pid, level) < level)
		return 0;
	bpf_core_read(&pair[0], sizeof(pair[0]), &pid->numbers[level].nr);
	pair[1] = task->tgid;
	bpf_seq_write(ctx->meta->seq, pair, sizeof(pair));
	return 0;
}

#endif
