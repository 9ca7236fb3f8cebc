/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The whole-stack view: one breakdown per thread. Every event of a call (entry and return of a function, leaving a CPU,
 * getting one back) charges the time since the last event to the row that was current, and makes another row current.
 * So the rows of a call add up to its duration by construction, whatever events were missed.
 *
 * A call begins and ends with the system call; the functions open inside it determine the current row. All of this
 * happens in the thread's own context, or as it is scheduled in. What programs in other contexts know of its sleep (who
 * woke it, which of its requests ended) they leave in `sleepers`, and it is charged to rows when the thread gets a CPU
 * again; see sleep.bpf.h.
 */
#ifndef __BREAKDOWN_BPF_H__
#define __BREAKDOWN_BPF_H__

/* Threads that were off the CPU in their call in flight. Preallocated: interrupts look things up in it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, __u32);
	__type(value, struct sleeper);
} sleepers SEC(".maps");

/* Per CPU, by family; mapped into user space for the reason given at `stats`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct family_stats);
} families SEC(".maps");

/* Per op: 1 + the family of a system call; 0 for other ops. */
const volatile __u8 op_families[MAX_OPS];

/* Flag in the key of a function that has a row and no op. */
#define ROW_KEY 0x100

/* The breakdown of the current thread's call; NULL if none is in flight. Only the whole-stack view has any. */
static __always_inline struct breakdown *find_breakdown(void)
{
	struct thread_state *state = WHOLE_STACK ? find_thread(bpf_get_current_pid_tgid()) : NULL;

	return state && state->breakdown.depth ? &state->breakdown : NULL;
}

static __always_inline struct family_stats *family_stats_of(__u32 cpu, __u32 family)
{
	__u32 element = cpu * FAMILIES + family;

	return bpf_map_lookup_elem(&families, &element);
}

/*
 * Counts unpaired events. None are counted while measuring stops: events of calls that outlast the run are missed by
 * design. Out of line (compat.bpf.h), since it is rare.
 */
__noinline int count_unbalanced_of(__u32 family, __u32 kind, __u32 n)
{
	struct family_stats *s;

	if (!WHOLE_STACK || control.stopped & (STOP_CALLS | STOP_PAIRS))
		return 0;
	s = family_stats_of(bpf_get_smp_processor_id(), family);
	/* Atomic: sched_switch may interrupt another update of these counters. */
	if (s)
		__sync_fetch_and_add(&s->unbalanced[kind & (UNBALANCED_KINDS - 1)], n);
	return 0;
}

static __always_inline void count_unbalanced(const struct breakdown *breakdown, enum unbalanced kind, __u32 n)
{
	if (unlikely(n))
		count_unbalanced_of(breakdown->family, kind, n);
}

/* The thread runs although no switch to it was seen: its time off the CPU was charged to its function. */
static __always_inline void count_unseen_sleep(struct breakdown *breakdown)
{
	if (breakdown->off == OFF_NOT)
		return;
	breakdown->off = OFF_NOT;
	count_unbalanced(breakdown, UNBALANCED_SLEEP, 1);
}

/* Charges the time up to `until` to `row`. Times before last_ns are ignored. */
static __always_inline void charge(struct breakdown *breakdown, __u8 row, __u64 until)
{
	if (until <= breakdown->last_ns)
		return;
	breakdown->rows[row & (ROWS - 1)] += until - breakdown->last_ns;
	breakdown->last_ns = until;
}

/* The row of the function that was entered last. */
static __always_inline __u8 current_row(const struct breakdown *breakdown)
{
	return breakdown->open[(breakdown->depth - 1) & (OPEN_FUNCTIONS - 1)].row;
}

static __always_inline void close_breakdown(struct breakdown *breakdown, __u32 thread)
{
	breakdown->depth = 0;
	if (breakdown->has_slept) {
		breakdown->has_slept = 0;
		bpf_map_delete_elem(&sleepers, &thread);
	}
}

/* Ends the call and drops its reference: do not use `state` afterwards. */
static __always_inline void put_breakdown(struct thread_state *state, __u32 thread)
{
	close_breakdown(&state->breakdown, thread);
	put_thread(state, thread);
}

/* A system call begins. Returns its breakdown, NULL if the op is of no family. */
static __always_inline struct breakdown *begin_breakdown(struct thread_state *state, __u32 thread, __u32 op, __u64 now,
							 __u32 group)
{
	__u8 family = op_families[op & (MAX_OPS - 1)];
	struct breakdown *breakdown = &state->breakdown;

	if (!family) {
		/* As below: this call must not end the breakdown of another one. */
		if (config.records && breakdown->depth) {
			count_unbalanced(breakdown, UNBALANCED_ENTRY, breakdown->depth);
			put_breakdown(state, thread);
		}
		return NULL;
	}
	/* The return of the previous call was not seen. */
	if (breakdown->depth)
		count_unbalanced(breakdown, UNBALANCED_ENTRY, breakdown->depth);
	else
		get_thread(state);
#pragma unroll
	for (int i = 0; i < ROW_QUEUE; i++) {
		if (config.stack_rows >> i & 1)
			breakdown->rows[i] = 0;
	}
	if (breakdown->has_waited) {
#pragma unroll
		for (int i = ROW_QUEUE; i < ROWS; i++)
			breakdown->rows[i] = 0;
		breakdown->has_waited = 0;
	}
	breakdown->entered_ns = now;
	breakdown->last_ns = now;
	breakdown->open[0].key = op;
	breakdown->open[0].row = ROW_SYSCALL;
	breakdown->depth = 1;
	breakdown->untracked = 0;
	breakdown->reached = 1u << ROW_SYSCALL;
	breakdown->family = family - 1;
	breakdown->off = OFF_NOT;
	breakdown->is_unchecked = 0;
	breakdown->getting_request = 0;
	breakdown->own_bios = 0;
	breakdown->waited = 0;
	breakdown->direct = 0;
	breakdown->group = group;
	return breakdown;
}

/*
 * A function inside a call is entered. `is_transparent`: its file is not selected, so its time goes to the row of its
 * caller. Returns the breakdown of the call, NULL if none is in flight.
 */
static __always_inline struct breakdown *enter_function(struct thread_state *state, __u32 key, __u8 row,
							bool is_transparent, bool is_direct, __u64 now)
{
	struct breakdown *breakdown = &state->breakdown;
	struct open_function *open;

	if (!breakdown->depth)
		return NULL;
	charge(breakdown, current_row(breakdown), now);
	if (breakdown->depth >= OPEN_FUNCTIONS) {
		breakdown->untracked++;
		count_unbalanced(breakdown, UNBALANCED_DEPTH, 1);
		return breakdown;
	}
	open = &breakdown->open[breakdown->depth & (OPEN_FUNCTIONS - 1)];
	open->key = key;
	open->row = is_transparent ? current_row(breakdown) : row;
	breakdown->depth++;
	if (!is_transparent)
		breakdown->reached |= 1u << (row & (ROWS - 1));
	if (config.records && !is_transparent && row >= ROW_FS && row < ROW_QUEUE)
		breakdown->fs_row = row;
	if (row >= ROW_QUEUE)
		breakdown->has_waited = 1;
	if (is_direct)
		breakdown->direct = 1;
	return breakdown;
}

/*
 * The call has reached a function that does the rest of it: its row begins, and goes on behind its return, which need
 * not be seen. Returns the breakdown of the call, NULL if none is in flight.
 */
static __always_inline struct breakdown *enter_rest(struct thread_state *state, __u8 row, bool is_direct, __u64 now)
{
	struct breakdown *breakdown = &state->breakdown;

	if (!breakdown->depth)
		return NULL;
	charge(breakdown, current_row(breakdown), now);
	breakdown->open[(breakdown->depth - 1) & (OPEN_FUNCTIONS - 1)].row = row;
	breakdown->reached |= 1u << (row & (ROWS - 1));
	if (is_direct)
		breakdown->direct = 1;
	return breakdown;
}

/*
 * A function has returned that is not the one entered last. The functions above it, whose return was not seen, are
 * closed with it. `maybe_not_open`: a function that file systems share; it is not open here if its file belongs to
 * another one. Out of line (compat.bpf.h), since it is rare.
 */
__noinline int close_function(__u32 thread, __u32 key, __u32 maybe_not_open)
{
	struct thread_state *state = WHOLE_STACK ? find_thread(thread) : NULL;
	__u32 index, matches = 0;
	struct breakdown *breakdown;
	__u64 differs;

	if (!state)
		return 0;
	breakdown = &state->breakdown;
	/*
	 * A bit for each open function with this key, without branches: the verifier would follow each to the end. Index
	 * 0 is the system call. Not unrolled: each program has a copy, and 7.3 takes longer to read a long one than to
	 * follow the rounds (docs/hot-path.md).
	 */
#pragma clang loop unroll(disable)
	for (int i = 1; i < OPEN_FUNCTIONS; i++) {
		differs = breakdown->open[i].key ^ key;
		/* The compiler would make a comparison of it. */
		barrier_var(differs);
		matches |= (differs - 1) >> 63 << i;
	}
	/* The highest one below the function that was entered last; 0 if there is none. */
	index = top_bit(matches & ((1u << ((breakdown->depth - 1) & (OPEN_FUNCTIONS - 1))) - 1));
	if (index) {
		count_unbalanced(breakdown, UNBALANCED_ENTRY, breakdown->depth - 1 - index);
		breakdown->depth = index;
	} else if (!maybe_not_open) {
		count_unbalanced(breakdown, UNBALANCED_RETURN, 1);
	}
	return 0;
}

/* A function inside a call has returned. `maybe_not_open`: see close_function(). */
static __always_inline void leave_function(struct thread_state *state, __u32 thread, __u32 key, bool maybe_not_open,
					   __u64 now)
{
	struct breakdown *breakdown = &state->breakdown;
	__u32 index;

	if (!breakdown->depth)
		return;
	charge(breakdown, current_row(breakdown), now);
	if (breakdown->untracked && !maybe_not_open) {
		breakdown->untracked--;
		return;
	}
	/* Usually it is the function that was entered last. */
	index = breakdown->depth - 1;
	if (index && breakdown->open[index & (OPEN_FUNCTIONS - 1)].key == key) {
		breakdown->depth = index;
		return;
	}
	close_function(thread, key, maybe_not_open);
}

static __always_inline enum read_class class_of(const struct breakdown *breakdown)
{
	if (breakdown->direct)
		return READ_DIRECT;
	if (breakdown->waited & WAITED_OWN)
		return READ_WAITED_OWN;
	if (breakdown->waited & WAITED_OTHERS)
		return READ_WAITED_OTHERS;
	return breakdown->own_bios ? READ_AHEAD : READ_CACHED;
}

/* Counts a call that has ended. `step`: the histogram step of `total`; `class`: READ_CLASSES if it is no read. */
static __always_inline void count_in_family(struct family_stats *s, const struct breakdown *breakdown, __u32 class,
					    __u64 total, __u64 step, __u64 bytes, bool failed, bool atomic)
{
	NOTE_EXTREMES(s, total);
	COUNT_STEP(s, step, atomic);
	barrier();
	if (bytes)
		add_to(&s->bytes, bytes, atomic);
	if (failed)
		add_to(&s->errors, 1, atomic);
	/* Unrolled: the verifier would check each round of a loop once for each path to it. */
	add_to(&s->rows[ROW_SYSCALL], breakdown->rows[ROW_SYSCALL], atomic);
#pragma unroll
	for (int i = ROW_SYSCALL + 1; i < ROW_QUEUE; i++) {
		if (config.stack_rows >> i & 1 && breakdown->reached >> i & 1) {
			add_to(&s->rows[i], breakdown->rows[i], atomic);
			add_to(&s->reached[i], 1, atomic);
		}
	}
	if (breakdown->has_waited) {
#pragma unroll
		for (int i = ROW_QUEUE; i < ROWS; i++) {
			if (breakdown->rows[i])
				add_to(&s->rows[i], breakdown->rows[i], atomic);
			if (breakdown->reached >> i & 1)
				add_to(&s->reached[i], 1, atomic);
		}
	}
	barrier_var(class);
	if (class < READ_CLASSES) {
		add_to(&s->class_calls[class], 1, atomic);
		add_to(&s->class_bytes[class], bytes, atomic);
	}
	/*
	 * Every call reaches this row. Counted last, so that a reader can tell whether all of the call has been added.
	 */
	order_for_all(&s->reached[ROW_SYSCALL]);
	add_to(&s->reached[ROW_SYSCALL], 1, atomic);
}

/* In events.bpf.h, which needs what is here. */
static __always_inline void record_call_with_rows(__u32 thread, const struct breakdown *breakdown, __u64 now,
						  __s64 value, __u32 cpu, __u32 class);

/*
 * Counts and records the call of the thread's breakdown, which returned `value` at `now`. Out of line (compat.bpf.h): many
 * paths lead here, and many through it.
 */
__noinline int count_in_families(__u32 thread, __u64 now, __u64 step, __s64 value, __u32 moves_bytes)
{
	struct thread_state *state = WHOLE_STACK ? find_thread(thread) : NULL;
	struct family_stats *s;
	struct breakdown *breakdown;
	__u32 class, cpu;
	__u64 bytes;
	bool failed;

	if (!state)
		return 0;
	breakdown = &state->breakdown;
	failed = errno_of(value);
	bytes = moves_bytes && !failed ? value : 0;
	cpu = bpf_get_smp_processor_id();
	breakdown->class = breakdown->family == FAMILY_READ ? class_of(breakdown) : READ_CLASSES;
	/* Loaded again it is any number to the verifier, which would check what follows once for each class. */
	barrier();
	class = breakdown->class;
	s = family_stats_of(cpu, breakdown->family);
	if (s)
		count_in_family(s, breakdown, class, now - breakdown->entered_ns, step, bytes, failed, false);
	s = config.group_by ? group_family_of(breakdown->group, breakdown->family) : NULL;
	if (s)
		count_in_family(s, breakdown, class, now - breakdown->entered_ns, step, bytes, failed, true);
	if (config.records)
		record_call_with_rows(thread, breakdown, now, value, cpu, class);
	return 0;
}

/* The system call has returned `value`. `step`: the histogram step of its duration. */
static __always_inline void end_breakdown(struct thread_state *state, __u32 thread, __u64 now, __u64 step, long value,
					  bool moves_bytes, __u32 group)
{
	struct breakdown *breakdown = &state->breakdown;

	if (REPORTS_SLOW)
		breakdown->value = value;
	if (config.group_by)
		breakdown->group = group;
	charge(breakdown, current_row(breakdown), now);
	count_unbalanced(breakdown, UNBALANCED_ENTRY, breakdown->depth - 1);
	count_unseen_sleep(breakdown);
	count_in_families(thread, now, step, value, moves_bytes);
	/* Otherwise report_ended() still needs it. */
	if (!REPORTS_SLOW)
		put_breakdown(state, thread);
}

#endif
