/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The state of threads: their calls in flight, and in the whole-stack view their breakdowns. */
#ifndef __THREAD_BPF_H__
#define __THREAD_BPF_H__

/* Where tracing programs have task storage (5.12, a10787e6d58c), which the kernel frees with the thread. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_state);
} threads_by_task SEC(".maps");

/*
 * Elsewhere: a hash map by thread number, preallocated, because allocating inside a probe can deadlock there. An entry
 * lives as long as a call of its thread is in flight, so the size bounds the calls in flight, not the threads.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, __u32);
	__type(value, struct thread_state);
} threads_by_number SEC(".maps");

static const struct thread_state no_state;

/*
 * Most threads have their state in a slot of this array, by thread number modulo THREAD_SLOTS, without a lookup. The
 * first thread to need a slot keeps it until it exits; threads that find theirs taken have their state in one of the
 * maps above.
 */
struct thread_state threads_by_slot[THREAD_SLOTS] SEC(".bss.slots");

static __always_inline struct thread_state *slot_of_thread(__u32 thread)
{
	struct thread_state *first;

	if (!config.slots)
		return NULL;
	/* The address is loaded only here: a program must not refer to a map that was not created. */
	first = threads_by_slot;
	barrier_var(first);
	/* Spares callers a check. */
	__builtin_assume(first != NULL);
	return first + (thread & (THREAD_SLOTS - 1));
}

static __always_inline struct thread_state *find_thread_in_map(struct task_struct *task, __u32 thread)
{
	if (config.hash_starts)
		return bpf_map_lookup_elem(&threads_by_number, &thread);
	return bpf_task_storage_get(&threads_by_task, task ? task : bpf_get_current_task_btf(), 0, 0);
}

/* The state of a task's thread; of the current task if `task` is NULL. */
static __always_inline struct thread_state *find_thread_of(struct task_struct *task, __u32 thread)
{
	struct thread_state *slot = slot_of_thread(thread);

	return slot && slot->calls.thread == thread ? slot : find_thread_in_map(task, thread);
}

/* The state of the current thread. */
static __always_inline struct thread_state *find_thread(__u32 thread)
{
	return find_thread_of(NULL, thread);
}

static __always_inline struct thread_state *find_or_make_thread(__u32 thread, enum lost_reason *why)
{
	struct thread_state *slot = slot_of_thread(thread), *found;

	if (slot && slot->calls.thread == thread)
		return slot;
	/* It may be in the map since a time when the slot was taken. */
	found = find_thread_in_map(NULL, thread);
	if (found)
		return found;
	if (slot && !slot->calls.thread && !__sync_val_compare_and_swap(&slot->calls.thread, 0, thread))
		return slot;
	if (!config.hash_starts) {
		*why = LOST_STORAGE;
		return bpf_task_storage_get(&threads_by_task, bpf_get_current_task_btf(), 0,
					    BPF_LOCAL_STORAGE_GET_F_CREATE);
	}
	*why = LOST_TABLE_FULL;
	if (bpf_map_update_elem(&threads_by_number, &thread, &no_state, BPF_NOEXIST))
		return NULL;
	return bpf_map_lookup_elem(&threads_by_number, &thread);
}

/* Whether the state is an entry of threads_by_number, which has a reference count. */
static __always_inline bool is_hash_entry(const struct thread_state *state)
{
	return config.hash_starts && !state->calls.thread;
}

/* Takes a reference, for a call in flight. */
static __always_inline void get_thread(struct thread_state *state)
{
	if (is_hash_entry(state))
		state->calls.active++;
}

/* Drops a reference. With the last one the entry is deleted: do not use `state` afterwards. */
static __always_inline void put_thread(struct thread_state *state, __u32 thread)
{
	if (is_hash_entry(state) && --state->calls.active == 0) {
		/* Declared here so that only this path stores it to the stack. */
		__u32 key = thread;

		bpf_map_delete_elem(&threads_by_number, &key);
	}
}

/* Deletes the state of a thread that exits. */
static __always_inline void forget_thread(struct thread_state *state, __u32 thread)
{
	if (is_hash_entry(state))
		bpf_map_delete_elem(&threads_by_number, &thread);
	else
		state->calls.thread = 0;
}

#endif
