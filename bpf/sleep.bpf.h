/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What a thread waits for inside a call: it leaves the CPU, its requests end, it is woken, it gets a CPU. The
 * scheduler's events come with interrupts off, so none of them is skipped; breakdown.bpf.h has what becomes of them.
 */
#ifndef __SLEEP_BPF_H__
#define __SLEEP_BPF_H__

/*
 * Threads for which the end of a request is being accounted: a lock, as two requests of a thread may end on two CPUs at
 * once.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} completing SEC(".maps");

/* Per queue: when a request without a bio, which is a flush, was last issued. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);
} flushes SEC(".maps");

/* Per CPU, by origin and direction; mapped into user space for the reason given at `stats`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct origin_stats);
} origins SEC(".maps");

static __always_inline bool is_kernel_thread(void)
{
	return task_flags() & PF_KTHREAD;
}

/* Whether threads of this process may be traced: a cheap test that excludes most tasks of other processes. */
static __always_inline bool tgid_may_be_traced(__u32 tgid)
{
	return !config.tgid || tgid == config.tgid;
}

/* The current thread leaves the CPU inside a call. */
static __always_inline void switch_out(bool is_ready, bool is_io, __u64 now)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct breakdown *breakdown = find_breakdown();
	struct sleeper *sleeper;
	__u8 row;

	if (!breakdown)
		return;
	count_unseen_sleep(breakdown);
	row = current_row(breakdown);
	charge(breakdown, row, now);
	breakdown->off = is_ready ? OFF_READY : OFF_ASLEEP;
	if (config.records)
		note_leave(thread);
	if (is_ready)
		return;
	if (row == ROW_JOURNAL || row == ROW_LOCK)
		breakdown->sleeps_in = row;
	else if (breakdown->getting_request)
		breakdown->sleeps_in = ROW_QUEUE;
	else
		breakdown->sleeps_in = is_io ? ROW_OTHERS : ROW_OTHER;

	breakdown->has_slept = 1;
	sleeper = bpf_map_lookup_elem(&sleepers, &thread);
	if (!sleeper) {
		struct sleeper new = {};

		/* If there is no room, settle_sleep() counts it. */
		bpf_map_update_elem(&sleepers, &thread, &new, BPF_NOEXIST);
		sleeper = bpf_map_lookup_elem(&sleepers, &thread);
		if (!sleeper)
			return;
	}
	sleeper->woken_ns = 0;
	sleeper->completed = 0;
	sleeper->released = 0;
	sleeper->queue_ns = 0;
	sleeper->mark_ns = breakdown->last_ns;
	sleeper->slept_ns = breakdown->last_ns;
}

static __always_inline __u64 earlier(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

/* Whether an own request completed in the sleep that is over. */
static __always_inline bool had_own_completion(const struct sleeper *sleeper, __u8 row)
{
	return sleeper->completed && sleeper->completed == sleeper->slept_ns && (row == ROW_OTHERS || row == ROW_OTHER);
}

/* Charges the sleep of a thread that gets a CPU to rows, up to its wakeup. Returns the row that it waited for. */
static __always_inline __u8 settle_sleep(struct breakdown *breakdown, __u32 thread, __u64 now)
{
	struct sleeper *sleeper = bpf_map_lookup_elem(&sleepers, &thread);
	__u8 row = breakdown->sleeps_in;
	__u64 woken;

	if (!sleeper) {
		count_unbalanced(breakdown, UNBALANCED_SLEEP, 1);
		charge(breakdown, row, now);
		return row;
	}
	woken = sleeper->woken_ns ? earlier(sleeper->woken_ns, now) : now;
	if (sleeper->released && row == ROW_QUEUE) {
		row = ROW_OTHERS;
		breakdown->getting_request = 0;
	}
	if (had_own_completion(sleeper, row)) {
		charge(breakdown, ROW_QUEUE, earlier(breakdown->last_ns + sleeper->queue_ns, woken));
		row = ROW_DEVICE;
		breakdown->waited |= WAITED_OWN;
	} else if (row == ROW_OTHERS) {
		breakdown->waited |= WAITED_OTHERS;
	}
	charge(breakdown, row, woken);
	/* Requests that end from now on end in no sleep of this thread. */
	sleeper->slept_ns = 0;
	return row;
}

/* A thread gets a CPU: charges its time off the CPU inside a call to rows, as all events of the sleep are known now. */
static __always_inline void switch_in(struct task_struct *task, __u64 now)
{
	__u32 thread = task->pid;
	struct thread_state *state = find_thread_of(task, thread);
	struct breakdown *breakdown;
	__u8 row = ROW_RUN_QUEUE;
	__u64 out;
	bool slept;

	if (!state || !state->breakdown.depth || state->breakdown.off == OFF_NOT)
		return;
	breakdown = &state->breakdown;
	slept = breakdown->off == OFF_ASLEEP;
	breakdown->off = OFF_NOT;
	breakdown->has_waited = 1;
	out = breakdown->last_ns;
	if (slept)
		row = settle_sleep(breakdown, thread, now);
	/* A sleep is charged up to its wakeup. */
	if (config.records)
		record_sleep(thread, row, out, slept ? breakdown->last_ns : 0, now);
	charge(breakdown, ROW_RUN_QUEUE, now);
}

SEC("tp_btf/sched_switch")
int sched_switch_btf(void *ctx)
{
	struct task_struct *prev = (void *)CONTEXT_WORD(ctx, 1), *next = (void *)CONTEXT_WORD(ctx, 2);
	bool preempted = CONTEXT_WORD(ctx, 0);
	__u64 now = bpf_ktime_get_ns();
	bool is_ready;

	/*
	 * Before 5.19 the state at the decision is not the last argument, so it is read from the task. During a wakeup
	 * it is TASK_WAKING, which is not 0: still asleep.
	 */
	if (may_have_state(current_id())) {
		if (bpf_core_field_exists(prev->__state)) {
			is_ready = preempted || !prev->__state;
		} else {
			struct task_struct___state *old = (void *)prev;

			is_ready = preempted || !BPF_CORE_READ(old, state);
		}
		switch_out(is_ready, BPF_CORE_READ_BITFIELD_PROBED(prev, in_iowait), now);
	}
	if (tgid_may_be_traced(next->tgid))
		switch_in(next, now);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int sched_wakeup_btf(void *ctx)
{
	struct task_struct *task = (void *)CONTEXT_WORD(ctx, 0);
	struct sleeper *sleeper;
	__u32 thread;

	if (!tgid_may_be_traced(task->tgid))
		return 0;
	thread = task->pid;
	sleeper = bpf_map_lookup_elem(&sleepers, &thread);
	if (sleeper && sleeper->slept_ns && !sleeper->woken_ns) {
		sleeper->woken_ns = bpf_ktime_get_ns();
		if (config.records)
			note_waker(thread);
	}
	return 0;
}

/*
 * A request of `thread` ends, which was issued at `issued`. Returns whether the thread sleeps. A moment of a sleep
 * belongs to the own request that ends next: as queue time before its issue, as device time after it. Out of line
 * (compat.bpf.h): many paths lead to it.
 */
__noinline int end_in_sleep(__u32 thread, __u64 issued, __u64 now)
{
	struct sleeper *sleeper;
	__u64 slept, mark;
	__u8 one = 1;

	if (!WHOLE_STACK)
		return false;
	sleeper = bpf_map_lookup_elem(&sleepers, &thread);
	if (!sleeper)
		return false;
	slept = sleeper->slept_ns;
	if (!slept || sleeper->woken_ns)
		return false;
	/*
	 * BPF_NOEXIST makes the entry a lock, on 5.10 too. A request that ends while it is held gets no share of the
	 * sleep.
	 */
	if (bpf_map_update_elem(&completing, &thread, &one, BPF_NOEXIST))
		return true;
	mark = sleeper->mark_ns;
	if (now > mark && sleeper->slept_ns == slept) {
		if (issued > mark)
			sleeper->queue_ns += (issued < now ? issued : now) - mark;
		sleeper->mark_ns = now;
		sleeper->completed = slept;
	}
	bpf_map_delete_elem(&completing, &thread);
	return true;
}

/* A flush request is issued on this queue. */
static __always_inline void note_flush(__u64 queue, __u64 now)
{
	bpf_map_update_elem(&flushes, &queue, &now, BPF_ANY);
}

/* A request of `thread` ends that was not issued itself: a flush request did its work. */
static __always_inline void end_flushed(__u32 thread, __u64 queue)
{
	__u64 *issued = bpf_map_lookup_elem(&flushes, &queue);

	end_in_sleep(thread, issued ? *issued : 0, bpf_ktime_get_ns());
}

/* A bio is submitted inside a call. It will need a request, unless its disk has none. */
static __always_inline void submit_in_call(bool is_stacked)
{
	struct breakdown *breakdown = find_breakdown();

	if (!breakdown)
		return;
	breakdown->own_bios = 1;
	if (!is_stacked)
		breakdown->getting_request = 1;
}

/* A bio of this thread got its request from another thread. */
static __always_inline void note_request_from_other(__u32 thread)
{
	struct sleeper *sleeper = bpf_map_lookup_elem(&sleepers, &thread);

	if (sleeper)
		sleeper->released = 1;
}

/* The bio has got a request, was merged into one, or ended without one. */
static __always_inline void got_request(void)
{
	struct breakdown *breakdown = find_breakdown();

	if (breakdown)
		breakdown->getting_request = 0;
}

/* Files that traced threads have written last, by the address of their page cache. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u8);
} written SEC(".maps");

/* Whether the call may write. */
static __always_inline bool may_write(const struct breakdown *breakdown)
{
	return breakdown->family == FAMILY_WRITE || breakdown->family == FAMILY_ASYNCHRONOUS;
}

/* The current thread, inside a call, is about to write this file; a kernel thread will write its pages back later. */
static __always_inline void note_write(struct file *file)
{
	__u64 mapping = (__u64)PROBED(file, f_mapping);
	__u8 one = 1;

	if (!bpf_map_lookup_elem(&written, &mapping))
		bpf_map_update_elem(&written, &mapping, &one, BPF_ANY);
}

/* Whether the first page of a bio belongs to a file in `written`. Out of line (compat.bpf.h): many paths lead to it. */
__noinline int is_of_written(__u64 bio)
{
	__u64 mapping;

	if (!WHOLE_STACK)
		return false;
	mapping = (__u64)mapping_of_bio((void *)bio);
	return mapping && bpf_map_lookup_elem(&written, &mapping);
}

/* The first four characters of thread names, as little-endian numbers: "jbd2", "kwor". */
#define COMM_JBD2 0x3264626a
#define COMM_KWOR 0x726f776b

/* The origin of a bio that the current thread submits. */
__noinline int origin_of_current(void)
{
	struct breakdown *breakdown;
	__u32 flags = task_flags();

	if (flags & PF_KTHREAD) {
		__u64 comm[COMM_WORDS] = {};

		bpf_get_current_comm(comm, sizeof(comm));
		if ((__u32)comm[0] == COMM_JBD2)
			return ORIGIN_JOURNAL;
		return (__u32)comm[0] == COMM_KWOR ? ORIGIN_KWORKER : ORIGIN_KERNEL;
	}
	if (flags & PF_IO_WORKER)
		return ORIGIN_ASYNCHRONOUS;
	breakdown = find_breakdown();
	return breakdown && breakdown->family == FAMILY_ASYNCHRONOUS ? ORIGIN_ASYNCHRONOUS : ORIGIN_OWN;
}

/* The same, and in most cases without a call. What is readahead is found out at the record if only records have it. */
static __always_inline __u32 origin_of_submitter(void)
{
	if (!WHOLE_STACK && !(task_flags() & (PF_KTHREAD | PF_IO_WORKER)))
		return ORIGIN_OWN;
	return origin_of_current();
}

static __always_inline void count_in_origin(struct origin_stats *s, __u64 bytes, __u64 started, __u64 issued, __u64 now)
{
	__sync_fetch_and_add(&s->requests, 1);
	__sync_fetch_and_add(&s->bytes, bytes);
	if (started && started < issued)
		__sync_fetch_and_add(&s->queue_ns, issued - started);
	if (issued < now)
		__sync_fetch_and_add(&s->device_ns, now - issued);
}

/*
 * Counts a request that no call waited for. `group_and_origin`: the group in the upper half, the origin and direction
 * in the lower one. Out of line (compat.bpf.h): many paths lead to it.
 */
__noinline int count_in_origins(__u64 group_and_origin, __u64 bytes, __u64 started, __u64 issued, __u64 now)
{
	__u32 origin = group_and_origin, element = bpf_get_smp_processor_id() * ORIGINS * DIRECTIONS + origin;
	struct origin_stats *s;

	if (!WHOLE_STACK)
		return 0;
	s = bpf_map_lookup_elem(&origins, &element);
	if (s)
		count_in_origin(s, bytes, started, issued, now);
	s = config.group_by ? group_origin_of(group_and_origin >> 32, origin) : NULL;
	if (s)
		count_in_origin(s, bytes, started, issued, now);
	return 0;
}

/*
 * With --sample: requests of traced threads that no measured call waited for. Whether another one did is not known.
 */
#define MAYBE_WAITED_FOR (1u << ORIGIN_OWN | 1u << ORIGIN_ASYNCHRONOUS | 1u << ORIGIN_READAHEAD)

/* A request has ended: a thread that sleeps for it has its time; otherwise no call waited for it. */
static __always_inline void end_of_request(const struct request_state *ended, __u64 now)
{
	__u32 origin = ended->origin * DIRECTIONS + (ended->op ? 1 : 0);

	if (ended->thread && end_in_sleep(ended->thread, ended->issued_ns, now))
		return;
	if (!config.sample || !(MAYBE_WAITED_FOR >> ended->origin & 1))
		count_in_origins((__u64)ended->group << 32 | origin, ended->bytes, ended->started_ns, ended->issued_ns,
				 now);
}

/* A bio was merged into a request, or into a bio that will get one: it needs none of its own. */
static __always_inline int bio_merge_event(void)
{
	disable_preemption();
	got_request();
	enable_preemption();
	return 0;
}

SEC("tp_btf/block_bio_backmerge")
int bio_backmerge_btf(void *ctx)
{
	return bio_merge_event();
}

/* Second program on the event, for when the kernel skips the first. */
SEC("tp_btf/block_bio_backmerge")
int bio_backmerge_second_btf(void *ctx)
{
	return bio_merge_event();
}

SEC("tp_btf/block_bio_frontmerge")
int bio_frontmerge_btf(void *ctx)
{
	return bio_merge_event();
}

/* Second program on the event, for when the kernel skips the first. */
SEC("tp_btf/block_bio_frontmerge")
int bio_frontmerge_second_btf(void *ctx)
{
	return bio_merge_event();
}

#endif
