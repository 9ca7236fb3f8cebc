/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Whose requests a disk served while traced requests waited.
 *
 * The time of a disk is divided at the ends of its requests: the time between two ends belongs to the request of the
 * later one, from its issue on. The last ENDS_KEPT ends of each disk are kept. When a traced request ends,
 * account_wait() goes back over them to the start of its wait, but not beyond what was accounted before: each moment
 * counts once, however many requests waited.
 *
 * This needs atomic instructions with BPF_FETCH (5.12); without them these maps are not created.
 */
#ifndef __NEIGHBOUR_BPF_H__
#define __NEIGHBOUR_BPF_H__

/* How many ends one function call accounts. There rarely are more, and the verifier follows each round. */
#define ENDS_AT_ONCE 4

volatile struct waits waits;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, NEIGHBOURS);
	__type(key, __u32);
	__type(value, struct neighbour);
} neighbours SEC(".maps");

/* Per process: its index in `neighbours`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, NEIGHBOURS);
	__type(key, __u32);
	__type(value, __u32);
} neighbour_slots SEC(".maps");

/* Per request queue. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ENDS_DISKS);
	__type(key, __u64);
	__type(value, struct disk_ends);
} disk_ends SEC(".maps");

/* A zeroed struct disk_ends to insert, which is too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct disk_ends);
} no_ends SEC(".maps");

/*
 * The index of the current process. Its name is the current one of its first thread. Out of line (compat.bpf.h): many
 * paths lead to it.
 */
__noinline __u32 neighbour_of_current(__u32 is_kernel)
{
	struct task_struct *task = (void *)bpf_get_current_task(), *leader;
	__u32 tgid = bpf_get_current_pid_tgid() >> 32, slot;
	struct neighbour *neighbour;
	__u32 *known;

	if (!block.neighbours)
		return NEIGHBOUR_REST;
	known = bpf_map_lookup_elem(&neighbour_slots, &tgid);
	if (known) {
		slot = *known;
	} else {
		/* Two threads of a process may race here: the slot of the second one stays empty. */
		slot = __sync_fetch_and_add(&waits.slots_taken, 1) + NEIGHBOUR_FIRST;
		if (slot >= NEIGHBOURS || bpf_map_update_elem(&neighbour_slots, &tgid, &slot, BPF_NOEXIST))
			return NEIGHBOUR_REST;
	}
	neighbour = bpf_map_lookup_elem(&neighbours, &slot);
	if (!neighbour)
		return NEIGHBOUR_REST;
	neighbour->tgid = tgid;
	neighbour->is_kernel = is_kernel;
	leader = BPF_CORE_READ(task, group_leader);
	bpf_core_read(neighbour->comm, sizeof(neighbour->comm), &leader->comm);
	return slot;
}

static __always_inline struct disk_ends *ends_of(__u64 queue)
{
	struct disk_ends *ends = bpf_map_lookup_elem(&disk_ends, &queue), *none;
	__u32 first = 0;

	if (ends)
		return ends;
	none = bpf_map_lookup_elem(&no_ends, &first);
	if (none)
		bpf_map_update_elem(&disk_ends, &queue, none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&disk_ends, &queue);
}

/*
 * Branchless: the verifier checks what follows once for each path that leads to it, and these are on the path to each
 * round of a loop. Times are below 2^63 ns.
 */
static __always_inline __u64 earlier_of(__u64 a, __u64 b)
{
	__s64 difference = a - b, a_is_earlier = difference >> 63;

	barrier_var(a_is_earlier);
	return b + (difference & a_is_earlier);
}

static __always_inline __u64 later_of(__u64 a, __u64 b)
{
	__s64 difference = a - b, a_is_earlier = difference >> 63;

	barrier_var(a_is_earlier);
	return a - (difference & a_is_earlier);
}

/*
 * Accounts up to ENDS_AT_ONCE ends of a disk, from the end `number` back, for a wait that began at `start` and is
 * accounted down to `later`. Returns what it is accounted down to then; `start`: there is no more to account. Out of
 * line (compat.bpf.h): the verifier checks its rounds once, and not once more in each round of the loop that calls it.
 */
__noinline __u64 account_some_ends(__u64 queue, __u64 number, __u64 start, __u64 later)
{
	struct disk_ends *ends;
	__u64 from, to;

	if (!block.neighbours)
		return start;
	ends = bpf_map_lookup_elem(&disk_ends, &queue);
	if (!ends)
		return start;
	for (__u32 i = 0; i < ENDS_AT_ONCE; i++) {
		struct served *served = &ends->kept[(number - i) & (ENDS_KEPT - 1)];
		struct neighbour *neighbour;
		__u32 slot;

		if (number == i || served->ended_ns <= start)
			return start;
		/* Another CPU is writing it, or has reused it for a later end. */
		if (served->number != number - i) {
			__sync_fetch_and_add(&waits.untold_ns, later - start);
			return start;
		}
		to = earlier_of(served->ended_ns, later);
		from = earlier_of(later_of(served->from_ns, start), to);
		later = from;
		slot = served->neighbour;
		neighbour = bpf_map_lookup_elem(&neighbours, &slot);
		if (neighbour) {
			__sync_fetch_and_add(&neighbour->ns, to - from);
			__sync_fetch_and_add(&neighbour->requests, 1);
			__sync_fetch_and_add(&neighbour->bytes, served->bytes);
		}
		/*
		 * Adds 0, which the verifier does not know: all paths reach the next round with the same knowledge, so
		 * it is checked once.
		 */
		later += ends->zero;
	}
	return later;
}

/* Accounts the wait from `start` to `now` on a disk. `number`: of the latest end. Out of line as the function above. */
__noinline int account_wait(__u64 queue, __u64 number, __u64 start, __u64 now)
{
	__u64 later = now;

	if (start >= now)
		return 0;
	__sync_fetch_and_add(&waits.ns, now - start);
	for (__u32 i = 0; i < ENDS_KEPT && later > start; i += ENDS_AT_ONCE)
		later = account_some_ends(queue, number - i, start, later);
	if (later > start)
		__sync_fetch_and_add(&waits.untold_ns, later - start);
	return 0;
}

/* A request ends. */
static __always_inline void note_end(const struct request_state *ended, __u64 queue, __u64 now)
{
	struct disk_ends *ends = ends_of(queue);
	struct served *served;
	__u64 last, number;

	if (!ends) {
		__sync_fetch_and_add(&waits.disks_full, 1);
		return;
	}
	last = __sync_lock_test_and_set(&ends->last_ns, now);
	number = __sync_fetch_and_add(&ends->ends, 1) + 1;
	served = &ends->kept[number & (ENDS_KEPT - 1)];
	served->number = 0;
	order_for_all(&served->number);
	served->from_ns = ended->issued_ns > last ? ended->issued_ns : last;
	served->ended_ns = now;
	served->bytes = ended->bytes;
	served->neighbour = ended->foreign ? ended->neighbour : NEIGHBOUR_OWN;
	order_for_all(&served->number);
	served->number = number;
	if (!ended->foreign) {
		__u64 start = ended->submitted_ns ? ended->submitted_ns : ended->started_ns;
		__u64 accounted = __sync_lock_test_and_set(&ends->accounted_ns, now);

		if (!start || start > ended->issued_ns)
			start = ended->issued_ns;
		/*
		 * Stored and loaded again it is a number to the verifier, and no pointer, which no global function may
		 * be given; as_number() does the same by a helper.
		 */
		ends->queue = queue;
		barrier();
		account_wait(ends->queue, number, later_of(start, accounted), now);
	}
}

#endif
