/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Where the state of threads is kept: their calls under way, and in the whole stack's view their breakdowns. */
#ifndef __THREAD_BPF_H__
#define __THREAD_BPF_H__

/* Kernels that give tracing programs task storage (5.12, a10787e6d58c). It goes away with its thread. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_state);
} threads_by_task SEC(".maps");

/*
 * The others: by thread number, preallocated, because allocating inside a probe can deadlock there. An entry lives as
 * long as a call of its thread is under way, so the size bounds the calls under way, not the threads.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, __u32);
	__type(value, struct thread_state);
} threads_by_number SEC(".maps");

static const struct thread_state no_state;

/*
 * Most threads have a place of their own in an array, by their number: it is found without a look-up. The first one that comes takes
 * it, until it exits; a thread whose place is another's has its state in one of the maps above.
 */
struct thread_state threads_by_slot[THREAD_SLOTS] SEC(".bss.slots");

static __always_inline struct thread_state *slot_of_thread(__u32 thread)
{
	struct thread_state *first;

	if (!config.slots)
		return NULL;
	/* Here and not before: where there are no places, there is no such map. */
	first = threads_by_slot;
	barrier_var(first);
	return first + (thread & (THREAD_SLOTS - 1));
}

static __always_inline struct thread_state *find_thread_in_map(struct task_struct *task, __u32 thread)
{
	if (config.hash_starts)
		return bpf_map_lookup_elem(&threads_by_number, &thread);
	return bpf_task_storage_get(&threads_by_task, task ? task : bpf_get_current_task_btf(), 0, 0);
}

/* Those of a task; of the current one, if it is not told. */
static __always_inline struct thread_state *find_thread_of(struct task_struct *task, __u32 thread)
{
	struct thread_state *place = slot_of_thread(thread);

	return place && place->calls.thread == thread ? place : find_thread_in_map(task, thread);
}

/* Those of the current thread. */
static __always_inline struct thread_state *find_thread(__u32 thread)
{
	return find_thread_of(NULL, thread);
}

static __always_inline struct thread_state *find_or_make_thread(__u32 thread, enum lost_reason *why)
{
	struct thread_state *place = slot_of_thread(thread), *found;

	if (place && place->calls.thread == thread)
		return place;
	/* They may be there since the place was another's. */
	found = find_thread_in_map(NULL, thread);
	if (found)
		return found;
	if (place && !place->calls.thread && !__sync_val_compare_and_swap(&place->calls.thread, 0, thread))
		return place;
	if (!config.hash_starts) {
		*why = LOST_STORAGE;
		return bpf_task_storage_get(&threads_by_task, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	}
	*why = LOST_TABLE_FULL;
	if (bpf_map_update_elem(&threads_by_number, &thread, &no_state, BPF_NOEXIST))
		return NULL;
	return bpf_map_lookup_elem(&threads_by_number, &thread);
}

/* An entry of the table is there as long as a call is under way. */
static __always_inline bool is_hash_entry(const struct thread_state *state)
{
	return config.hash_starts && !state->calls.thread;
}

/* One more call is under way. */
static __always_inline void get_thread(struct thread_state *state)
{
	if (is_hash_entry(state))
		state->calls.active++;
}

/* One less. After the last one, an entry is not to be looked at any more. */
static __always_inline void put_thread(struct thread_state *state, __u32 thread)
{
	if (is_hash_entry(state) && --state->calls.active == 0) {
		/* Here, or it would be written for the others, too. */
		__u32 key = thread;

		bpf_map_delete_elem(&threads_by_number, &key);
	}
}

/* The thread exits. */
static __always_inline void forget_thread(struct thread_state *state, __u32 thread)
{
	if (is_hash_entry(state))
		bpf_map_delete_elem(&threads_by_number, &thread);
	else
		state->calls.thread = 0;
}

#endif
