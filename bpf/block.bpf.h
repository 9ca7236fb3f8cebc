/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The block layer: requests from their start through their issue to their end and, for disks that have no requests (dm,
 * md), bios. A request is identified by its address, never by its sector.
 *
 * An event may be skipped: one of a tracepoint if a task was preempted inside the same program (tracepoints are called
 * with preemption enabled since 7.0, "tracing: Guard __DECLARE_TRACE() use of __DO_TRACE_CALL() with SRCU-fast"), or if
 * it interrupts the same program; one of a function if it interrupts another probe. No event is skipped in two of these
 * ways at once, so an event that must not be missed has two programs; the one that runs first counts it.
 *
 * A request is issued outside of interrupts and usually ends in one, which may interrupt the end of another request:
 * everything is added atomically. Minimum and maximum are not: an update in an interrupt inside another one may be
 * overwritten.
 */
#ifndef __BLOCK_BPF_H__
#define __BLOCK_BPF_H__

/* Per code of a request operation: its op, counted from 0 in the order of the table. */
const volatile __u8 block_ops[BLOCK_CODES];

#define E2BIG 7

#define REQ_OP_MASK 0xff
#define REQ_OP_WRITE 1

/*
 * Bounds of loops over the bios of a request (one of 4 MiB may have a bio for each page) and over the requests of a batch,
 * and how many of them one function call handles. The second program sees the ends beyond them.
 */
#define BIOS_OF_A_REQUEST 1024
#define BIOS_AT_ONCE 16
#define REQUESTS_OF_A_BATCH 256
#define REQUESTS_AT_ONCE 16

/* What is read of a request. */
struct request_view {
	__u64 address;
	__u64 rq_start_ns;
	__u64 bio; /* the first one */
	__u64 next_bio; /* of bios that are in the table only */
	__u64 queue; /* whole-stack view and neighbours only */
	__u32 flags;
	__u32 bio_flags; /* bi_opf of its first bio: the kernel removes FUA from a request if the disk does not support it */
	__u32 bytes;
	__u32 disk; /* device number, with BY_DISK only */
	__u64 gendisk; /* its address */
};

static __always_inline __u32 device_number(int major, int first_minor)
{
	return (__u32)major << 20 | (first_minor & 0xfffff);
}

/* `bio`: the first one. rq->part is not set where queue/iostats is 0, nor at the start of a request. */
static __always_inline __u32 partition_of(struct request *rq, struct bio *bio, bool direct)
{
	if (bpf_core_field_exists(((struct bio *)0)->bi_bdev)) {
		struct block_device *device = bio ? READ(direct, bio, bi_bdev) : NULL;

		return device ? READ(direct, device, bd_dev) : 0;
	}
	if (bpf_core_type_exists(struct hd_struct)) {
		struct request___hd_struct *old = (void *)rq;
		struct hd_struct *part = READ(direct, old, part);

		return part ? READ(direct, part, __dev.devt) : 0;
	}
	struct block_device *part = READ(direct, rq, part);

	return part ? READ(direct, part, bd_dev) : 0;
}

/*
 * Reads the disk of a request. Returns whether it is the selected one. Separate from read_request(): it is the more
 * expensive half, and most ends do not need it.
 */
static __always_inline bool is_on_selected_disk_as(struct request *rq, bool direct, struct request_view *view)
{
	struct gendisk *disk;

	if (bpf_core_field_exists(((struct request___rq_disk *)0)->rq_disk)) {
		struct request___rq_disk *old = (void *)rq;

		disk = READ(direct, old, rq_disk);
	} else {
		struct request_queue *queue = READ(direct, rq, q);

		disk = READ(direct, queue, disk);
	}
	/* Commands of a controller have no disk. */
	if (!disk)
		return false;
	view->disk = config.group_by == BY_DISK ?
			     device_number(READ(direct, disk, major), READ(direct, disk, first_minor)) :
			     0;
	view->gendisk = (__u64)disk;
	if (!block.disk)
		return true;
	if (block.is_partition)
		return partition_of(rq, READ(direct, rq, bio), direct) == block.disk;
	return device_number(READ(direct, disk, major), READ(direct, disk, first_minor)) == block.disk;
}

static __always_inline void read_request_as(struct request *rq, bool direct, struct request_view *view)
{
	struct bio *first = READ(direct, rq, bio);

	view->queue = WHOLE_STACK || block.neighbours ? (__u64)READ(direct, rq, q) : 0;
	view->address = (__u64)rq;
	view->rq_start_ns = READ(direct, rq, start_time_ns);
	view->bio = (__u64)first;
	view->next_bio = block.bio_stamps && first ? (__u64)READ(direct, first, bi_next) : 0;
	view->flags = READ(direct, rq, cmd_flags);
	view->bio_flags = first ? READ(direct, first, bi_opf) : 0;
	view->bytes = READ(direct, rq, __data_len);
}

static __always_inline void read_request(struct request *rq, bool direct, struct request_view *view)
{
	if (direct)
		read_request_as(rq, true, view);
	else
		read_request_as(rq, false, view);
}

/* Casts the pointer if the kernel can, and returns whether it did: fields are then read directly. */
#define TYPE_ONCE(pointer) (TYPE_OF(pointer) ? ((pointer) = TYPED(pointer), true) : false)

/* Whether a request is on the selected disk, if one is selected. `direct`: as the fields of `view` were read. */
static __always_inline bool is_on_selected_disk(struct request_view *view, bool direct)
{
	struct request *rq = (void *)view->address;

	return direct ? is_on_selected_disk_as(rq, true, view) : is_on_selected_disk_as(rq, false, view);
}

static __always_inline __u8 block_op(__u32 flags)
{
	return block_ops[flags & REQ_OP_MASK];
}

static __always_inline __u32 block_index(__u8 op)
{
	return block.op_base + op;
}

/* Atomic: an interrupt may count at the same time. Out of line (compat.bpf.h): many paths lead to it. */
__noinline int count_aside(__u32 op, __u32 kind)
{
	struct op_stats *s = stats_of(block_index(op));

	if (s && kind < ASIDE_KINDS)
		__sync_fetch_and_add(&s->set_aside[kind], 1);
	return 0;
}

static __always_inline void lose_request(__u8 op, enum lost_reason why)
{
	count_lost(block_index(op), why, 1);
}

/*
 * Whether a request is counted, and lost if it cannot be: one that is traced; in the whole-stack view also one of a
 * kernel thread that is not, by its origin. Any other one was set aside, or is of another process.
 */
static __always_inline bool is_counted(__u8 foreign)
{
	return foreign == FOREIGN_NOT || (WHOLE_STACK && foreign == FOREIGN_KERNEL);
}

/* The end of a request that was issued was missed. */
static __always_inline void lose_end(const struct request_state *old)
{
	if (is_counted(old->foreign))
		lose_request(old->op, LOST_RETURN);
}

static __always_inline void remember_request(__u64 address, const struct found_request *known,
					     const struct request_state *state)
{
	int failed = keep_request(address, known, state);

	if (failed && is_counted(state->foreign))
		lose_request(state->op, failed == -E2BIG ? LOST_TABLE_FULL : LOST_STORAGE);
}

/*
 * The group of a request that is issued: by the request itself, else by its submitter, which is known since its start,
 * or the submission of its bio.
 */
static __always_inline __u32 group_of_request(const struct request_view *view, __u8 op, const struct bio_state *stamp,
					      const struct request_state *started)
{
	if (config.group_by == BY_DISK)
		return group_of_disk(view->disk, view->gendisk);
	if (config.group_by == BY_FILE)
		return view->bio && op <= BLOCK_OP_WRITE ? group_of_page(as_number(view->bio)) : GROUP_NONE;
	if (stamp->queued_ns)
		return stamp->group;
	return block.has_starts && started && started->phase == REQUEST_STARTED ? started->group : GROUP_NONE;
}

/* A request starts, in the context of its submitter. */
static __always_inline int on_start(const struct request_view *view)
{
	struct request_state state = {};
	__u64 address = view->address;
	struct found_request old;

	if (control.stopped & STOP_REQUESTS)
		return 0;
	state.op = block_op(view->flags);
	old = find_request(address);
	/* Its end was missed: an address is only reused after the request has ended. */
	if (old.state && old.state->phase == REQUEST_ISSUED)
		lose_end(old.state);
	if (block.by_owner && !submitter_is_traced(current_id())) {
		bool is_kernel = is_kernel_thread();

		if (is_kernel)
			count_aside(state.op, ASIDE_BY_KERNEL);
		if (!block.neighbours) {
			forget_request(address, &old);
			return 0;
		}
		state.foreign = is_kernel ? FOREIGN_KERNEL : FOREIGN_PROCESS;
		state.neighbour = neighbour_of_current(is_kernel);
	}
	state.started_ns = bpf_ktime_get_ns();
	state.phase = REQUEST_STARTED;
	if (config.group_by && !state.foreign)
		state.group = group_of_current();
	remember_request(address, &old, &state);
	return 0;
}

/*
 * Removes a bio. A function of its own: the verifier checks it once, and not in each round of the loop that calls it.
 */
__noinline int forget_one_bio(__u64 bio)
{
	/* Without bios in a table the table does not exist, and this is verified nevertheless. */
	if (block.bio_stamps)
		drop_bio(bio);
	return 0;
}

/* Removes up to BIOS_AT_ONCE bios of a chain, for the same reason. Returns the next one. */
__noinline __u64 forget_some_bios(__u64 bio)
{
	for (int i = 0; i < BIOS_AT_ONCE && bio; i++) {
		forget_one_bio(bio);
		bio = (__u64)BPF_CORE_READ((struct bio *)bio, bi_next);
	}
	return bio;
}

/* Removes all bios of a chain. Not unrolled: 7.3 takes longer to read a long program than to follow the rounds. */
__noinline int forget_bios(__u64 bio)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < BIOS_OF_A_REQUEST / BIOS_AT_ONCE && bio; i++)
		bio = forget_some_bios(bio);
	return 0;
}

/* All 0. Its values are unknown to the verifier, so that a bio that is not in the table leads to no path of its own. */
struct bio_state no_bio;

/*
 * Removes the bios of a request from the table, as their addresses will be reused: the first one, and those from `next`
 * on. Returns the state of the first one.
 */
static __always_inline struct bio_state take_bios(__u64 first, __u64 next)
{
	struct bio_state stamp;
	struct found_bio found;

	/* 0 marks a free slot. */
	if (!first)
		return no_bio;
	found = find_bio(first);
	stamp = found.state ? *found.state : no_bio;
	forget_bio(first, &found);
	if (next)
		forget_bios(as_number(next));
	return stamp;
}

/*
 * Removes the bios of a request that was not issued in this run, which is rare. Returns the enum owner of the first one
 * in the lower half, and its thread in the upper. Out of line (compat.bpf.h): many paths lead on from here.
 */
__noinline __u64 take_bios_of_unissued(__u64 first)
{
	struct bio_state stamp = {};

	if (block.bio_stamps)
		stamp = take_bios(first, first ? (__u64)BPF_CORE_READ((struct bio *)first, bi_next) : 0);
	return (__u64)stamp.thread << 32 | stamp.owner;
}

/*
 * Whether a request needs flushes (not 0), so that it may end twice: with its data, and after them. Branchless: the
 * verifier follows what comes after it once for each path that leads there.
 */
static __always_inline __u16 needs_flush(__u32 flags, __u32 bytes)
{
	const __u32 asking = 1u << bpf_core_enum_value(enum req_flag_bits, __REQ_FUA) |
			     1u << bpf_core_enum_value(enum req_flag_bits, __REQ_PREFLUSH);
	__s64 has_data = -(__s64)bytes >> 63;
	__u64 asked;

	barrier_var(has_data);
	asked = flags & asking & has_data;
	return -asked >> 63;
}

static __always_inline int on_issue(const struct request_view *view)
{
	struct request_state *old, state = {};
	struct bio_state stamp = {};
	__u64 address = view->address;
	struct found_request known;

	if (control.stopped & STOP_REQUESTS)
		return 0;
	state.op = block_op(view->flags);
	state.bytes = view->bytes;
	state.needs_flush = needs_flush(view->bio_flags, view->bytes);
	state.rq_start_ns = view->rq_start_ns;
	state.phase = REQUEST_ISSUED;
	state.issued_ns = bpf_ktime_get_ns();

	/* Before the request is looked for: each way in which it is found leads to what follows. */
	if (block.bio_stamps)
		stamp = take_bios(view->bio, view->next_bio);
	known = find_request(address);
	old = known.state;
	if (old && old->phase == REQUEST_ISSUED) {
		if (old->rq_start_ns == view->rq_start_ns) {
			/* Requeued: the driver could not take it. The time until now is queue time. */
			old->issued_ns = state.issued_ns;
			return 0;
		}
		lose_end(old);
	}
	if (block.neighbours || config.records)
		state.submitted_ns = stamp.queued_ns;
	if (WHOLE_STACK || config.records) {
		state.thread = stamp.thread;
		state.tgid = stamp.tgid;
		state.origin = stamp.origin;
	}
	if (WHOLE_STACK && !view->bio)
		note_flush(view->queue, state.issued_ns);
	if (block.has_starts && old && old->phase == REQUEST_STARTED) {
		state.started_ns = old->started_ns;
		state.foreign = old->foreign;
		state.neighbour = old->neighbour;
	} else {
		if (block.by_owner && stamp.owner != OWNER_TRACED) {
			if (stamp.owner == OWNER_KERNEL)
				count_aside(state.op, ASIDE_BY_KERNEL);
			/* A flush has no single submitter: the kernel merges them. */
			else if (state.op == BLOCK_OP_FLUSH)
				count_aside(state.op, ASIDE_UNOWNED);
			if (!block.neighbours && (!WHOLE_STACK || stamp.owner != OWNER_KERNEL)) {
				/* Removes what an earlier request left at this address. */
				forget_request(address, &known);
				return 0;
			}
			state.foreign = stamp.owner == OWNER_KERNEL ? FOREIGN_KERNEL : FOREIGN_PROCESS;
			state.neighbour = stamp.neighbour;
		}
		if (state.op == BLOCK_OP_FLUSH || !view->bio)
			state.started_ns = state.issued_ns;
		else if (view->rq_start_ns)
			state.started_ns = view->rq_start_ns;
		else
			state.started_ns = stamp.queued_ns;
	}
	if (config.group_by && state.foreign != FOREIGN_PROCESS)
		state.group = group_of_request(view, state.op, &stamp, old);
	/* Found again: the verifier would follow all of the above once for each way in which it was found. */
	if (WHOLE_STACK)
		known = find_request(address);
	remember_request(address, &known, &state);
	return 0;
}

/* Of a request whose end was seen, and its issue was not: nothing more will be. */
#define REQUEST_FORGOTTEN 0

/*
 * Notes the phase of such a request. If it has ended, that is for the second program on its end; without one, it is
 * forgotten. Out of line, as count_aside().
 */
__noinline int leave_unissued(__u64 address, __u64 rq_start_ns, __u32 op, __u32 phase)
{
	struct request_state state = { .op = op, .rq_start_ns = rq_start_ns, .phase = phase };
	struct found_request known = find_request(address);

	if (phase == REQUEST_FLUSHING || (phase == REQUEST_ENDED && block.ends_have_second))
		remember_request(address, &known, &state);
	else
		forget_request(address, &known);
	return 0;
}

/*
 * Which program sees an end. The function runs before the tracepoint, which it calls; on the tracepoint,
 * END_BY_EVENT_SECOND is attached first and runs before END_BY_EVENT.
 */
enum end_seen {
	END_BY_FUNCTION,
	END_BY_EVENT,
	END_BY_EVENT_SECOND, /* the second program on the tracepoint */
};

/* Whether this is a request with data that began in this run, and of which nothing is known. */
static __always_inline bool has_no_state(const struct request_state *state, __u64 rq_start_ns, __u32 bytes)
{
	return (!state || state->phase == REQUEST_ENDED) && bytes && rq_start_ns && rq_start_ns >= control.began_ns;
}

/*
 * Whether this program counts the end of such a request, as one whose issue was missed: the first program that sees the
 * end does. With a selection of processes, only if its bio is still in the table, as no issue has removed it, and has a
 * traced owner.
 */
static __always_inline bool is_unseen_issue(struct request *rq, bool direct, enum end_seen by)
{
	struct found_bio first;
	__u64 bio;

	if (by == (block.by_both ? END_BY_EVENT_SECOND : END_BY_EVENT))
		return false;
	if (!block.by_owner)
		return true;
	bio = block.bio_stamps ? as_number((__u64)READ(direct, rq, bio)) : 0;
	if (!bio)
		return false;
	first = find_bio(bio);
	return first.state && first.state->owner == OWNER_TRACED;
}

/* The end of a request was seen, and its issue was not. Out of line, as count_aside(). */
__noinline int count_unseen_issue(__u32 op)
{
	struct op_stats *s = stats_of(block_index(op));

	if (s)
		__sync_fetch_and_add(&s->unmatched_ends, 1);
	return 0;
}

/*
 * The end of a request whose issue was not seen in this run, or, rarely, that the other program has counted. What is
 * kept of its address may be of an earlier request. Out of line (compat.bpf.h): rare and long.
 */
__noinline int on_unissued_end(__u64 address, __u64 rq_start_ns, __u32 bytes)
{
	struct request *rq = (void *)address;
	bool direct = TYPE_ONCE(rq), is_known, is_selected, is_flushing;
	struct request_view view = { .address = (__u64)rq };
	struct request_state *found = find_request(address).state, known = {};
	__u32 submitter, aside = ASIDE_KINDS, phase = REQUEST_ENDED;
	__u64 submitted = 0;
	__u8 op;

	/* Copied: the verifier would follow what is below once for each way in which it was found. */
	if (found)
		known = *found;
	/* The end of an earlier request was missed: an address is only reused after the request has ended. */
	if (known.phase == REQUEST_ISSUED) {
		lose_end(&known);
		leave_unissued(address, 0, 0, REQUEST_FORGOTTEN);
	}
	is_known = known.phase && known.rq_start_ns == rq_start_ns;
	is_flushing = is_known && known.phase == REQUEST_FLUSHING;
	if (!is_on_selected_disk(&view, direct))
		return 0;
	if (is_known && known.phase == REQUEST_ENDED) {
		leave_unissued(address, rq_start_ns, 0, REQUEST_FORGOTTEN);
		return 0;
	}
	read_request(rq, direct, &view);
	op = block_op(view.flags);
	if (block.bio_stamps)
		submitted = take_bios_of_unissued(as_number(view.bio));
	submitter = submitted >> 32;
	is_selected = !block.by_owner || (known.phase == REQUEST_STARTED && !known.foreign) ||
		      (__u32)submitted == OWNER_TRACED;
	/* A write without data only carries a flush, and is never issued itself. */
	if (bytes || op != BLOCK_OP_WRITE) {
		if (is_flushing)
			return 0;
		if (rq_start_ns && rq_start_ns >= control.began_ns) {
			if (!is_selected)
				return 0;
			if (READ(direct, rq, state) == MQ_RQ_IDLE)
				aside = ASIDE_NEVER_ISSUED;
			else
				count_unseen_issue(op);
			if (WHOLE_STACK && submitter)
				end_in_sleep(submitter, 0, bpf_ktime_get_ns());
		} else if (rq_start_ns || !block.by_owner) {
			/*
			 * Without a start time it can only be from before the run, if no selection of processes has
			 * excluded requests.
			 */
			aside = ASIDE_AT_START;
		} else {
			return 0;
		}
		if (needs_flush(view.bio_flags, bytes))
			phase = REQUEST_FLUSHING;
	} else {
		if (is_flushing)
			submitter = known.thread;
		else if (is_selected)
			aside = ASIDE_NEVER_ISSUED;
		else
			phase = REQUEST_FORGOTTEN;
		if (WHOLE_STACK && submitter)
			end_flushed(submitter, view.queue);
	}
	if (aside != ASIDE_KINDS)
		count_aside(op, aside);
	leave_unissued(address, rq_start_ns, op, phase);
	return 0;
}

/* Errnos of blk_status_t, as in blk_errors of block/blk-core.c; 0: as any other error, EIO. */
const volatile __u8 status_errnos[32] = {
	[1] = 95, /* NOTSUPP: EOPNOTSUPP */
	[2] = 110, /* TIMEOUT: ETIMEDOUT */
	[3] = 28, /* NOSPC: ENOSPC */
	[4] = 67, /* TRANSPORT: ENOLINK */
	[5] = 121, /* TARGET: EREMOTEIO */
	[6] = 52, /* RESV_CONFLICT: EBADE */
	[7] = 61, /* MEDIUM: ENODATA */
	[8] = 84, /* PROTECTION: EILSEQ */
	[9] = 12, /* RESOURCE: ENOMEM */
	[12] = 11, /* AGAIN: EAGAIN */
	[19] = 22, /* INVAL: EINVAL, since 6.11 */
};

#define EIO 5

/* The result of a completion as that of a call: bytes, or a negative errno. */
static __always_inline long result_of(long error, bool is_status, __u32 bytes)
{
	__u32 status = error;
	__u8 errno;

	if (!error)
		return bytes;
	if (!is_status)
		return (int)error;
	barrier_var(status);
	errno = status < sizeof(status_errnos) ? status_errnos[status] : 0;
	return -(long)(errno ? errno : EIO);
}

static __always_inline void record_block(__u8 op, __u32 group, __u64 from, __u64 queue_ns, __u64 now, long result)
{
	struct op_stats *s;

	if (now < from) {
		lose_request(op, LOST_CLOCK);
		return;
	}
	/*
	 * Inlined if the block layer is what is measured; out of line in the whole-stack view, where more paths lead
	 * here.
	 */
	if (WHOLE_STACK)
		record_out_of_line(block_index(op) | COUNTER_MOVES_BYTES | COUNTER_ATOMIC, now - from, result);
	else
		record_in(block_index(op), true, now - from, result, true);
	if (queue_ns) {
		s = stats_of(block_index(op));
		if (s)
			__sync_fetch_and_add(&s->queue_ns, queue_ns);
	}
	record_in_group(group, block_index(op), true, now - from, result, queue_ns);
}

/* The file of a page cache. `typed`: `mapping` is a typed pointer. */
static __always_inline void fill_inode_of(struct request_record *record, struct address_space *mapping, bool typed)
{
	struct inode *inode = inode_of_mapping(mapping, typed);
	struct super_block *sb;

	if (!inode)
		return;
	record->inode = READ(typed, inode, i_ino);
	sb = READ(typed, inode, i_sb);
	record->inode_device = READ(typed, sb, s_dev);
}

/* The file whose data a bio carries; without one, 0 in the inode of the record. */
static __always_inline void fill_inode(struct request_record *record, const struct bio *bio, bool direct)
{
	struct bio_vec *vector;
	struct page *first;
	__u64 page;

	record->inode = 0;
	record->inode_device = 0;
	if (!bio)
		return;
	vector = READ(direct, bio, bi_io_vec);
	first = READ(direct, vector, bv_page);
	/* Before 6.2 a number gets no type, but the head of a page, which usually is the page itself, comes with one. */
	if (direct && !PAGES_ARE_TYPED && may_be_kernels(first) && !is_tail_page(first)) {
		fill_inode_of(record, first->mapping, true);
		return;
	}
	/* With a number the head of the page is computed. */
	page = as_number_by(&record->inode, (__u64)first);
	if (PAGES_ARE_TYPED)
		fill_inode_of(record, mapping_of_page(page, true), true);
	else
		fill_inode_of(record, mapping_of_page(page, false), false);
}

static __always_inline __u32 disk_of_request(struct request *rq, bool direct)
{
	struct gendisk *disk;

	/* A request whose issue was noted is on the selected disk. */
	if (block.disk && !block.is_partition)
		return block.disk;
	if (bpf_core_field_exists(((struct request___rq_disk *)0)->rq_disk)) {
		struct request___rq_disk *old = (void *)rq;

		disk = READ(direct, old, rq_disk);
	} else {
		struct request_queue *queue = READ(direct, rq, q);

		disk = READ(direct, queue, disk);
	}
	return disk ? device_number(READ(direct, disk, major), READ(direct, disk, first_minor)) : 0;
}

/*
 * Records a bio that has ended, of a disk without requests. `submitter`: the process in the upper half, the thread in the
 * lower one; `ended`: its bytes in the upper half, then its status, origin and op.
 */
__noinline int record_bio(__u64 address, __u64 submitter, __u64 submitted, __u64 now, __u64 ended)
{
	long result = result_of(ended >> 16 & 0xff, true, ended >> 32);
	struct bio *bio = (void *)address;
	struct request_record *record;
	struct gendisk *disk;

	if (!config.records)
		return 0;
	record = reserve(RECORD_REQUEST, struct request_record);
	if (!record)
		return 0;
	record->kind = RECORD_REQUEST;
	record->op = ended;
	record->origin = ended >> 8;
	record->thread = submitter;
	record->tgid = submitter >> 32;
	record->submitted_ns = submitted;
	record->started_ns = submitted;
	record->issued_ns = submitted;
	record->ended_ns = now;
	record->partition = 0;
	if (bpf_core_field_exists(bio->bi_bdev)) {
		record->partition = BPF_CORE_READ(bio, bi_bdev, bd_dev);
		disk = BPF_CORE_READ(bio, bi_bdev, bd_disk);
	} else {
		disk = BPF_CORE_READ((struct bio___disk *)bio, bi_disk);
	}
	record->disk = device_number(BPF_CORE_READ(disk, major), BPF_CORE_READ(disk, first_minor));
	record->cmd_flags = BPF_CORE_READ(bio, bi_opf);
	record->bio_flags = record->cmd_flags;
	record->error = result < 0 ? -result : 0;
	record->bytes = result < 0 ? BPF_CORE_READ(bio, bi_iter.bi_size) : result;
	/* Its completion has moved the start to the end. */
	record->sector = BPF_CORE_READ(bio, bi_iter.bi_sector);
	if (!BPF_CORE_READ(bio, bi_iter.bi_size))
		record->sector -= record->bytes >> 9;
	record->cpu = bpf_get_smp_processor_id();
	fill_inode(record, bio, false);
	submit(record);
	return 0;
}

/* Writes the record of a request that ends with this state. `direct`: its fields can be read directly. */
static __always_inline void write_request(struct request *rq, bool direct, const struct request_state *state, __u64 now,
					  __s64 result)
{
	__u32 left, cpu = bpf_get_smp_processor_id();
	struct request_record *record;
	struct record_slot *slot;
	struct bio *bio;
	__u64 turn;

	slot = take_slot(cpu, &turn);
	if (likely(slot))
		record = (void *)slot->record;
	else
		record = reserve_on(cpu, RECORD_REQUEST, struct request_record);
	if (!record)
		return;
	bio = READ(direct, rq, bio);
	record->kind = RECORD_REQUEST;
	record->op = state->op;
	record->origin = state->origin;
	record->thread = state->thread;
	record->tgid = state->tgid;
	record->submitted_ns = state->submitted_ns;
	record->started_ns = state->started_ns;
	record->issued_ns = state->issued_ns;
	record->ended_ns = now;
	record->bytes = state->bytes;
	/* Parts that completed before have moved the start. */
	left = READ(direct, rq, __data_len);
	record->sector = READ(direct, rq, __sector) - ((record->bytes - left) >> 9);
	record->disk = disk_of_request(rq, direct);
	record->partition = partition_of(rq, bio, direct);
	record->cmd_flags = READ(direct, rq, cmd_flags);
	record->bio_flags = bio ? READ(direct, bio, bi_opf) : 0;
	record->error = result < 0 ? -result : 0;
	record->cpu = cpu;
	fill_inode(record, bio, direct);
	if (likely(slot))
		complete_slot(slot, turn);
	else
		submit(record);
}

/* The same, out of line (compat.bpf.h), for programs without typed pointers, while the state is in the table. */
__noinline int record_request(__u64 address, __u64 now, __s64 result)
{
	struct found_request known;

	if (!config.records)
		return 0;
	known = find_request(address);
	if (known.state)
		write_request((void *)address, false, known.state, now, result);
	return 0;
}

/* A request ends, or a part of it. `direct`: its fields can be read directly. */
static __always_inline int on_end(struct request *rq, bool direct, long error, bool is_status, __u32 bytes,
				  enum end_seen by)
{
	__u64 address = (__u64)rq, rq_start_ns = READ(direct, rq, start_time_ns), now, from;
	struct request_state *state, ended;
	struct found_request known;

	known = find_request(address);
	state = known.state;
	/* Usually another program has counted it, which is found out before anything else is read. */
	if (by != END_BY_FUNCTION && state && state->phase == REQUEST_ENDED && state->rq_start_ns == rq_start_ns) {
		forget_request(address, &known);
		return 0;
	}
	/* Stopped while /proc/diskstats is read for comparison. The completion of a part is no end. */
	if (control.stopped & STOP_REQUESTS || bytes < READ(direct, rq, __data_len))
		return 0;
	if (has_no_state(state, rq_start_ns, bytes) && !is_unseen_issue(rq, direct, by))
		return 0;
	if (!state || state->phase != REQUEST_ISSUED || state->rq_start_ns != rq_start_ns)
		return on_unissued_end(as_number(address), rq_start_ns, bytes);
	now = bpf_ktime_get_ns();
	/* Requests of kernel threads are counted by their origin, in the whole-stack view. */
	if (config.records && (!state->foreign || (WHOLE_STACK && state->foreign == FOREIGN_KERNEL))) {
		/* Typed pointers cost no probe reads: a record reads more than a dozen fields. */
		if (by != END_BY_FUNCTION || TYPE_OF(rq))
			write_request(rq, true, state, now, result_of(error, is_status, state->bytes));
		else
			record_request(as_number_by(&state->rq_start_ns, address), now,
				       result_of(error, is_status, state->bytes));
	}
	ended = *state;
	if (ended.needs_flush)
		state->phase = REQUEST_FLUSHING;
	/* Keeps the entry: the second program would take the end for one whose issue was missed. */
	else if (block.ends_have_second)
		state->phase = REQUEST_ENDED;
	else
		forget_request(address, &known);
	if (block.neighbours)
		note_end(&ended, (__u64)READ(direct, rq, q), now);
	if (WHOLE_STACK && is_counted(ended.foreign))
		end_of_request(&ended, now);
	if (ended.foreign)
		return 0;
	from = ended.issued_ns;
	if (block.queued) {
		if (!ended.started_ns) {
			count_aside(ended.op, ASIDE_UNTIMED);
			return 0;
		}
		/* Without a start before the issue there was no queue time. */
		if (ended.started_ns < from)
			from = ended.started_ns;
	}
	record_block(ended.op, ended.group, from, ended.issued_ns - from, now,
		     result_of(error, is_status, ended.bytes));
	return 0;
}

/* What is read of a bio. */
struct bio_view {
	__u64 address;
	__u32 flags;
	__u32 bytes;
	bool on_disk; /* on the selected disk, if that has no requests */
	bool is_stacked; /* its disk has no requests; whole-stack view only */
};

/* The group of a bio on the selected disk, which has no requests. */
static __always_inline __u32 group_of_bio(const struct bio_view *view, __u8 op)
{
	if (config.group_by == BY_DISK)
		return group_of_disk(block.disk, 0);
	if (config.group_by == BY_FILE)
		return op <= BLOCK_OP_WRITE ? group_of_page(as_number(view->address)) : GROUP_NONE;
	return group_of_current();
}

static __always_inline void read_bio(struct bio *bio, bool direct, struct bio_view *view)
{
	struct block_device *device = NULL;
	struct gendisk *disk;

	view->address = (__u64)bio;
	view->flags = READ(direct, bio, bi_opf);
	view->bytes = READ(direct, bio, bi_iter.bi_size);
	view->on_disk = false;
	view->is_stacked = false;
	if (!block.is_bio_based && !WHOLE_STACK)
		return;
	if (bpf_core_field_exists(((struct bio *)0)->bi_bdev)) {
		device = READ(direct, bio, bi_bdev);
		disk = READ(direct, device, bd_disk);
	} else {
		struct bio___disk *old = (void *)bio;

		disk = READ(direct, old, bi_disk);
	}
	if (WHOLE_STACK) {
		const struct block_device_operations *operations = READ(direct, disk, fops);

		view->is_stacked = READ(direct, operations, submit_bio) != NULL;
	}
	if (!block.is_bio_based)
		return;
	if (block.is_partition)
		view->on_disk = device && READ(direct, device, bd_dev) == block.disk;
	else
		view->on_disk = device_number(READ(direct, disk, major), READ(direct, disk, first_minor)) == block.disk;
}

/* The op of a bio. A flush without data has the flags of a write. */
static __always_inline __u8 bio_op(__u32 flags, __u32 bytes)
{
	const __u32 preflush = 1u << bpf_core_enum_value(enum req_flag_bits, __REQ_PREFLUSH);

	if ((flags & REQ_OP_MASK) == REQ_OP_WRITE && flags & preflush && !bytes)
		return BLOCK_OP_FLUSH;
	return block_op(flags);
}

/* Whether a bio is readahead. */
static __always_inline bool is_readahead(__u32 flags)
{
	return flags & 1u << bpf_core_enum_value(enum req_flag_bits, __REQ_RAHEAD);
}

/* A bio of such an owner was not kept. Out of line: it is rare, and reads what nothing else needs. */
__noinline int lose_bio(__u64 address, __u32 owner, enum lost_reason why)
{
	struct bio *bio = (void *)address;
	__u8 op;

	if (owner == OWNER_NEIGHBOUR)
		return 0;
	op = bio_op(BPF_CORE_READ(bio, bi_opf), BPF_CORE_READ(bio, bi_iter.bi_size));
	/* Of a kernel thread: its request would only be set aside. */
	if (!WHOLE_STACK && owner == OWNER_KERNEL)
		count_aside(op, ASIDE_BY_KERNEL);
	else
		lose_request(op, why);
	return 0;
}

static __always_inline void remember_bio(__u64 bio, const struct found_bio *known, const struct bio_state *state)
{
	int failed = keep_bio(bio, known, state);

	if (failed)
		lose_bio(as_number(bio), state->owner, failed == -E2BIG ? LOST_TABLE_FULL : LOST_STORAGE);
}

static __always_inline void note_submitter(struct bio_state *state)
{
	struct thread_id submitter = current_id();

	state->thread = submitter.thread;
	state->tgid = submitter.tgid;
}

/* Keeps who submits a bio, and when. `known`: what find_bio() returned. */
static __always_inline void stamp_bio(const struct bio_view *view, struct found_bio *known, bool has_request,
				      bool held)
{
	__u64 address = view->address;
	struct bio_state state;

	/* In words: the compiler would zero each field that is not set. */
	__builtin_memset(&state, 0, sizeof(state));
	state.queued_ns = bpf_ktime_get_ns();
	state.owner = OWNER_TRACED;
	if (has_request)
		state.has_request = true;
	if (WHOLE_STACK)
		state.is_stacked = view->is_stacked;
	if (held)
		state.held = true;

	if (block.by_owner && !submitter_is_traced(current_id())) {
		state.owner = is_kernel_thread() ? OWNER_KERNEL : OWNER_NEIGHBOUR;
		if (block.neighbours) {
			state.neighbour = neighbour_of_current(state.owner == OWNER_KERNEL);
		} else if (state.owner == OWNER_NEIGHBOUR) {
			/* Removes what an earlier bio left at this address. */
			forget_bio(address, known);
			return;
		}
	}
	if (config.group_by && state.owner != OWNER_NEIGHBOUR)
		state.group = group_of_current();
	if (WHOLE_STACK || config.records) {
		note_submitter(&state);
		state.origin = origin_of_submitter();
		if (WHOLE_STACK && state.origin == ORIGIN_KWORKER && bio_op(view->flags, view->bytes) && view->bytes &&
		    is_of_written(as_number(address)))
			state.origin = ORIGIN_WRITEBACK;
		if (WHOLE_STACK && state.origin == ORIGIN_OWN && is_readahead(view->flags))
			state.origin = ORIGIN_READAHEAD;
	}
	/* As in on_issue(). */
	if (WHOLE_STACK)
		*known = find_bio(address);
	remember_bio(address, known, &state);
}

/* Whether the current thread submits a throttled bio of another thread. */
static __always_inline bool is_held_for_another(const struct bio_state *state)
{
	return state && state->held && !state->has_request && state->thread != (__u32)bpf_get_current_pid_tgid();
}

/* A bio reaches the throttle of its cgroup, which may submit it later and from another thread. */
static __always_inline void hold_bio(struct bio *bio)
{
	__u64 address = (__u64)bio;
	struct found_bio known;
	struct bio_view view;
	struct breakdown *breakdown;

	read_bio(bio, false, &view);
	known = find_bio(address);
	if (control.stopped & STOP_REQUESTS || view.is_stacked || is_held_for_another(known.state))
		return;
	stamp_bio(&view, &known, false, true);
	breakdown = find_breakdown();
	if (breakdown)
		breakdown->own_bios = 1;
}

/*
 * Whether the bio whose state is found at the entry of submit_bio_noacct() is the one that enters: a driver submits it
 * once more, as a whole or what is left of it, inside its submission (and before 5.18 the throttle of a cgroup does).
 * Any other state is of an earlier bio at the address, which has ended without an event: the function itself ends a bio
 * beyond the end of the disk, or one that the disk does not support; and a request may have more than BIOS_OF_A_REQUEST.
 */
static __always_inline bool is_submitted_again(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	if (bpf_core_field_exists(((struct request___rq_disk *)0)->rq_disk))
		return true;
	return config.typed_task ? bpf_get_current_task_btf()->bio_list : BPF_CORE_READ(task, bio_list);
}

/*
 * A bio is submitted. `counts`: this program counts bios of kernel threads that are not traced; of two programs the one
 * on the function, which runs first, does.
 */
static __always_inline int on_bio_queue(const struct bio_view *view, bool counts)
{
	struct bio_state state = { .owner = OWNER_TRACED }, *seen;
	__u64 address = view->address;
	struct found_bio known;
	bool is_new;

	if (control.stopped & STOP_REQUESTS)
		return 0;
	known = find_bio(address);
	seen = known.state;
	is_new = !block.by_both || !seen || seen->has_request || seen->held ||
		 (counts && !is_submitted_again());
	if (WHOLE_STACK) {
		/* Submitted by the throttle. It still belongs to its submitter. */
		if (is_held_for_another(seen))
			return 0;
		submit_in_call(view->is_stacked);
	}
	if (!block.is_bio_based) {
		if (is_new)
			stamp_bio(view, &known, false, false);
		return 0;
	}
	if (!view->on_disk)
		return 0;
	state.bytes = view->bytes;
	state.op = bio_op(view->flags, view->bytes);
	if (block.by_owner && !submitter_is_traced(current_id())) {
		if (counts && is_kernel_thread())
			count_aside(state.op, ASIDE_BY_KERNEL);
		return 0;
	}
	state.queued_ns = bpf_ktime_get_ns();
	if (config.group_by)
		state.group = group_of_bio(view, state.op);
	if (WHOLE_STACK || config.records)
		note_submitter(&state);
	if (WHOLE_STACK)
		state.is_stacked = true;
	if (config.records)
		state.origin = origin_of_submitter();
	if (!seen || !block.by_both)
		remember_bio(address, &known, &state);
	return 0;
}

/*
 * A bio gets a request. A bio that was split off a larger one was never queued itself. A throttled bio gets its request
 * in the context of the throttle, and still belongs to its submitter. `is_second`: the second program on the event, for
 * when the kernel skips the first.
 */
static __always_inline int on_getrq(const struct bio_view *view, bool is_second)
{
	__u64 address = view->address;
	struct bio_state *state;
	struct found_bio known;

	if (control.stopped & STOP_REQUESTS)
		return 0;
	if (WHOLE_STACK)
		got_request();
	known = find_bio(address);
	state = known.state;
	if (state && !state->has_request) {
		if (WHOLE_STACK && state->thread != (__u32)bpf_get_current_pid_tgid())
			note_request_from_other(state->thread);
		state->has_request = true;
		if (is_second)
			__sync_fetch_and_add(&control.recovered, 1);
	} else if (!state || !is_second) {
		stamp_bio(view, &known, true, false);
	}
	return 0;
}

static __always_inline int on_bio_end(__u64 address, __u8 status)
{
	struct found_bio known = find_bio(address);
	__u64 now = bpf_ktime_get_ns();
	struct bio_state ended;

	if (!known.state)
		return 0;
	ended = *known.state;
	forget_bio(address, &known);
	/* Without waiting for a request: a bio with REQ_NOWAIT, when none was free. */
	if (WHOLE_STACK && !ended.has_request && !ended.is_stacked && ended.thread == (__u32)bpf_get_current_pid_tgid())
		got_request();
	/* A bio of a disk without requests: it gets the part of the sleep that no request below it has taken. */
	if (WHOLE_STACK && ended.is_stacked)
		end_in_sleep(ended.thread, ended.queued_ns, now);
	/* Otherwise its request counts it, or it never had one. */
	if (!block.is_bio_based)
		return 0;
	record_block(ended.op, ended.group, ended.queued_ns, 0, now, result_of(status, true, ended.bytes));
	if (config.records)
		record_bio(as_number(address), (__u64)ended.tgid << 32 | ended.thread, ended.queued_ns, now,
			   (__u64)ended.bytes << 32 | status << 16 | ended.origin << 8 | ended.op);
	return 0;
}

SEC("tp_btf/block_io_start")
int block_start_btf(void *ctx)
{
	struct request_view view;

	read_request_as((void *)CONTEXT_WORD(ctx, 0), true, &view);
	return is_on_selected_disk(&view, true) ? on_start(&view) : 0;
}

SEC("tp_btf/block_rq_issue")
int block_issue_btf(void *ctx)
{
	struct request_view view;

	if (block.issue_arg)
		read_request_as((void *)CONTEXT_WORD(ctx, 1), true, &view);
	else
		read_request_as((void *)CONTEXT_WORD(ctx, 0), true, &view);
	return is_on_selected_disk(&view, true) ? on_issue(&view) : 0;
}

SEC("tp_btf/block_rq_complete")
int block_end_btf(void *ctx)
{
	struct request *rq = (void *)CONTEXT_WORD(ctx, 0);

	return on_end(rq, true, CONTEXT_WORD(ctx, 1), block.has_status, CONTEXT_WORD(ctx, 2), END_BY_EVENT);
}

/* A request that was merged into another is never issued. */
static __always_inline int merge_event(__u64 address)
{
	disable_preemption();
	drop_request(address);
	enable_preemption();
	return 0;
}

SEC("tp_btf/block_rq_merge")
int block_merge_btf(void *ctx)
{
	return merge_event(CONTEXT_WORD(ctx, 0));
}

/* Second program on the event, for when the kernel skips the first. */
SEC("tp_btf/block_rq_merge")
int block_merge_second_btf(void *ctx)
{
	return merge_event(CONTEXT_WORD(ctx, 0));
}

/* Second program on the event, for when the kernel skips the first. */
SEC("tp_btf/block_rq_complete")
int block_end_second_btf(void *ctx)
{
	struct request *rq = (void *)CONTEXT_WORD(ctx, 0);

	return on_end(rq, true, CONTEXT_WORD(ctx, 1), block.has_status, CONTEXT_WORD(ctx, 2), END_BY_EVENT_SECOND);
}

/* Reads the bio of an event, whose index among the arguments is 0 or 1, depending on the kernel. */
static __always_inline void read_bio_of_event(void *ctx, bool is_second, struct bio_view *view)
{
	if (is_second)
		read_bio((void *)CONTEXT_WORD(ctx, 1), true, view);
	else
		read_bio((void *)CONTEXT_WORD(ctx, 0), true, view);
}

SEC("tp_btf/block_bio_queue")
int bio_queue_btf(void *ctx)
{
	struct bio_view view;

	disable_preemption();
	read_bio_of_event(ctx, block.bio_queue_arg, &view);
	on_bio_queue(&view, !block.by_both);
	enable_preemption();
	return 0;
}

static __always_inline int getrq_event(void *ctx, bool is_second)
{
	struct bio_view view;

	disable_preemption();
	read_bio_of_event(ctx, block.getrq_arg, &view);
	on_getrq(&view, is_second);
	enable_preemption();
	return 0;
}

SEC("tp_btf/block_getrq")
int bio_getrq_btf(void *ctx)
{
	return getrq_event(ctx, false);
}

SEC("tp_btf/block_getrq")
int bio_getrq_second_btf(void *ctx)
{
	return getrq_event(ctx, true);
}

/*
 * What is split off a bio is not queued itself. It is submitted with its bio, in the same thread, and its completion is
 * announced if that of its bio is (bio_split() of block/bio.c).
 */
static __always_inline int split_event(void *ctx)
{
	struct found_bio known;
	struct bio_view view;

	disable_preemption();
	read_bio_of_event(ctx, block.split_arg, &view);
	if (!(control.stopped & STOP_REQUESTS)) {
		known = find_bio(view.address);
		stamp_bio(&view, &known, false, false);
	}
	enable_preemption();
	return 0;
}

SEC("tp_btf/block_split")
int bio_split_btf(void *ctx)
{
	return split_event(ctx);
}

/* Second program on the event, for when the kernel skips the first; it stamps the bio once more if it does not. */
SEC("tp_btf/block_split")
int bio_split_second_btf(void *ctx)
{
	return split_event(ctx);
}

SEC("tp_btf/block_bio_complete")
int bio_end_btf(void *ctx)
{
	struct bio *bio = (void *)CONTEXT_WORD(ctx, 1);

	return on_bio_end((__u64)bio, bio->bi_status);
}

/* Second program on the event, for when the kernel skips the first. */
SEC("tp_btf/block_bio_complete")
int bio_end_second_btf(void *ctx)
{
	struct bio *bio = (void *)CONTEXT_WORD(ctx, 1);

	return on_bio_end((__u64)bio, bio->bi_status);
}

/* submit_bio_noacct(bio): every bio passes it, and what a driver has split off passes it again. */
SEC("kprobe")
int bio_submit_function(struct pt_regs *ctx)
{
	struct bio_view view;

	read_bio((void *)PT_REGS_PARM1(ctx), false, &view);
	/*
	 * The function ends a flush without data itself if the disk has no volatile cache, and no program would see that.
	 * One that goes on passes block_bio_queue and block_getrq.
	 */
	if (!block.is_bio_based && bio_op(view.flags, view.bytes) == BLOCK_OP_FLUSH)
		return 0;
	return on_bio_queue(&view, true);
}

/* bio_endio(bio): the end of a bio that was split is that of its last part. */
SEC("kprobe")
int bio_end_function(struct pt_regs *ctx)
{
	struct bio *bio = (void *)PT_REGS_PARM1(ctx);

	if (PROBED(bio, __bi_remaining.counter) != 1)
		return 0;
	return on_bio_end((__u64)bio, PROBED(bio, bi_status));
}

/* The function that accounts the start of a request, if it can be probed. */
SEC("kprobe")
int block_start_function(struct pt_regs *ctx)
{
	struct request *rq = (void *)PT_REGS_PARM1(ctx);
	bool direct = TYPE_ONCE(rq);
	struct request_view view;

	read_request(rq, direct, &view);
	return is_on_selected_disk(&view, direct) ? on_start(&view) : 0;
}

/* blk_mq_start_request(rq) */
SEC("kprobe")
int block_issue_function(struct pt_regs *ctx)
{
	struct request *rq = (void *)PT_REGS_PARM1(ctx);
	bool direct = TYPE_ONCE(rq);
	struct request_view view;

	read_request(rq, direct, &view);
	return is_on_selected_disk(&view, direct) ? on_issue(&view) : 0;
}

/* A request ends, seen at a function. */
static __always_inline int end_by_function(__u64 address, __u8 status, __u32 bytes)
{
	struct request *rq = (void *)address;
	bool direct = TYPE_ONCE(rq);

	return on_end(rq, direct, status, true, bytes, END_BY_FUNCTION);
}

/* A function of its own: older verifiers check it once, and not in each round of the loop that calls it. */
__noinline int end_out_of_line(__u64 address, __u32 status, __u32 bytes)
{
	return end_by_function(address, status, bytes);
}

/* Handles up to REQUESTS_AT_ONCE requests of a batch. Returns the next one. */
__noinline __u64 end_some_of_batch(__u64 address)
{
	for (int i = 0; i < REQUESTS_AT_ONCE && address; i++) {
		struct request *rq = (void *)address;

		end_out_of_line(address, 0, PROBED(rq, __data_len));
		address = (__u64)BPF_CORE_READ(rq, rq_next);
	}
	return address;
}

static __always_inline int end_batch(__u64 argument)
{
	__u64 address;

	if (bpf_core_type_exists(struct rq_list)) {
		struct io_comp_batch___rq_list *batch = (void *)argument;

		address = (__u64)BPF_CORE_READ(batch, req_list.head);
	} else {
		struct io_comp_batch *batch = (void *)argument;

		address = (__u64)BPF_CORE_READ(batch, req_list);
	}
	for (int i = 0; i < REQUESTS_OF_A_BATCH / REQUESTS_AT_ONCE && address; i++)
		address = end_some_of_batch(address);
	return 0;
}

/*
 * blk_update_request(rq, status, bytes). In the whole-stack view, where the code for an end is long, also
 * blk_mq_end_request_batch(), whose link has a cookie: one copy of the code starts sooner than two.
 */
SEC("kprobe")
int block_end_function(struct pt_regs *ctx)
{
	if (!WHOLE_STACK)
		return end_by_function(PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx));
	if (block.has_batches && bpf_get_attach_cookie(ctx))
		return end_batch(PT_REGS_PARM1(ctx));
	return end_out_of_line(PT_REGS_PARM1(ctx), PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx));
}

/*
 * blk_mq_end_request_batch(batch): a list of requests without errors, which do not pass blk_update_request (since
 * 5.16).
 */
SEC("kprobe")
int block_end_batch_function(struct pt_regs *ctx)
{
	return end_batch(PT_REGS_PARM1(ctx));
}

#endif
