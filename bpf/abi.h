/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Structures and numbers that the kernel side and the Rust side share, written once. Rust gets the structures from the
 * skeleton (kernel::interface) and the numbers from build/main.rs, which reads this file as text: one #define or
 * enumerator per line. The asserts at the end pin the layout.
 */
#ifndef __ABI_H__
#define __ABI_H__

/*
 * A point is an attach point in 32 bits: all that a program knows about the kernel function that it is attached to. It
 * fits the immediate of an instruction, into which the loader writes it.
 */
#define POINT_OP_SHIFT 0 /* 8 bits: index of the op's `struct op_stats` */
#define POINT_FRAME_SHIFT 8 /* 4 bits: index of the op's frame in `struct task_frames` */
#define POINT_SHAPE_SHIFT 12 /* 4 bits: enum shape */
/* 3 bits: number of arguments, which is where fexit finds the return value; 7 for more than 6. */
#define POINT_ARGS_SHIFT 16
#define POINT_RETURN_SHIFT 19 /* 3 bits: enum return_kind */
/* 1 bit: other file systems use this function too; the op's guard selects its own calls. */
#define POINT_SHARED_SHIFT 22
#define POINT_FILES_SHIFT 23 /* 3 bits: enum file_args, system calls only */
#define POINT_OUTERMOST_SHIFT 26 /* 1 bit: never called inside another call of its op by the same thread */
/*
 * 1 bit: an asynchronous entry point of a layer that is not measured, hooked only for the file systems below it; counts
 * nothing.
 */
#define POINT_SUPPRESSED_SHIFT 27
/*
 * 1 bit, system calls only: the file is not checked at the entry, but at the function of vfs that the call reaches, or
 * else at the return.
 */
#define POINT_CHECKED_AT_RETURN_SHIFT 28
/* 1 bit each, system calls only, whose points are in tables: what the record of the call needs. */
#define POINT_TAKES_POSITION_SHIFT 30 /* CALL_TAKES_POSITION */
#define POINT_NEEDS_ALL_SHIFT 31 /* CALL_NEEDS_ALL */

/* Properties of an op that hold for all its points (op_traits): a mask and two flags. */
#define OP_GUARD 3 /* 2 bits: enum guard, of its shared points */
#define OP_FILES_AND_DIRS 4 /* the file system has only regular files and directories behind these functions */
#define OP_ABOVE 8 /* a stacked file system (overlayfs), which calls others in the same thread */
#define OP_RECORDED 16 /* its calls are recorded, though they are no system calls: page faults */

/* The unspecialised point, as compiled. Its shape is SHAPE_NONE, so a program that was never specialised does nothing. */
#define POINT_UNSET 0x70000fa5
/*
 * Points of the programs on completions of asynchronous requests. COMPLETED: the function's second argument is the
 * result. FAILED: the function is io_rw_fail, and the result is in the request.
 */
#define POINT_COMPLETED 1
#define POINT_FAILED 2

/*
 * Kfuncs that the programs call. They are compiled as calls of helpers with numbers that no kernel has; the loader,
 * which reads the kernel's BTF for other reasons too, replaces each with the kfunc's BTF id (src/probe/program.rs).
 * libbpf would search the BTF of the kernel and of all its modules for each of them.
 */
#define KFUNC_RDONLY_CAST 0x10000 /* bpf_rdonly_cast(), 6.2 */
#define KFUNC_PREEMPT_DISABLE 0x10001 /* bpf_preempt_disable(), 6.10 */
#define KFUNC_PREEMPT_ENABLE 0x10002
#define KFUNC_SESSION_IS_RETURN 0x10003 /* bpf_session_is_return() without an argument, 6.10 to 6.x */
#define KFUNC_SESSION_IS_RETURN_CTX 0x10004 /* bpf_session_is_return(ctx), since 7.0 */
#define KFUNC_SESSION_COOKIE_CTX 0x10005 /* bpf_session_cookie(ctx), since 7.0 */
#define KFUNC_SESSION_COOKIE 0x10006 /* bpf_session_cookie() without an argument, before 7.0 */

/* Which argument of a function leads to the file. 9 and 11 are free. */
enum shape {
	SHAPE_NONE = 0,
	SHAPE_FILE_0 = 1, /* struct file * first */
	SHAPE_FILE_1 = 2, /* struct file * second */
	SHAPE_KIOCB_0 = 3, /* struct kiocb * first */
	SHAPE_PATH_0 = 4, /* struct path * first: an open, whose file has no inode yet */
	SHAPE_FD_0 = 5, /* a file descriptor first */
	SHAPE_SYSCALL = 6, /* the system call's registers; the number in them leads to the op */
	SHAPE_SYSCALL_FD_0 = 7, /* the system call's registers, a file descriptor first */
	SHAPE_FAULT_0 = 8, /* struct vm_fault * first, whose area maps the file */
	SHAPE_ROW = 10, /* a function that only the whole-stack view attaches to; POINT_OP holds its enum row */
	/* As SHAPE_ROW, struct bio * first, which may be throttled and submitted later by another thread. */
	SHAPE_ROW_BIO_0 = 12,
	/* struct inode * of the parent directory first: an open that may create its file (atomic_open). */
	SHAPE_DIR_0 = 13,
	SHAPE_SYSCALL_32_FD_0 = 14, /* as SHAPE_SYSCALL_FD_0, with the registers of a 32-bit program */
};

/* What a function's return value means when it is not negative. */
enum return_kind {
	RETURN_STATUS_INT = 0, /* int; a negative errno, or a number that is no byte count */
	RETURN_STATUS = 1, /* long; likewise */
	RETURN_BYTES = 2, /* long, bytes moved */
	RETURN_FD = 3, /* long, a new file descriptor: the file's kind is known only now */
	/* int, of io_uring's entry points: whether the request is done; leave_async() in async.bpf.h. */
	RETURN_ISSUED = 4,
	/* int, of AIO's entry points: whether the request was refused; leave_async() in async.bpf.h. */
	RETURN_SUBMITTED = 5,
	RETURN_FAULT = 6, /* vm_fault_t: flags, some of them errors */
};

/* How an attach point that several file systems share is narrowed to one of them. */
enum guard {
	GUARD_NONE = 0,
	GUARD_F_OP = 1, /* file->f_op equals guard_values[op] */
	GUARD_MAGIC = 2, /* the superblock's magic equals guard_values[op] */
};

/* Which arguments of a system call are descriptors of the files it works on. */
enum file_args {
	FILES_NONE = 0,
	FILES_0 = 1,
	FILES_0_OR_1 = 2,
	FILES_0_OR_2 = 3,
	FILES_0_WITHOUT_PATH = 4, /* the first one, if the path after it is empty or NULL (AT_EMPTY_PATH) */
	/* The others only occur in runs that record. */
	FILES_0_OF_COMMAND = 5, /* the first one, if the second one is among call_commands */
	FILES_4 = 6, /* the fifth one, unless the fourth one has MAP_ANONYMOUS */
	FILES_ENDS = 7, /* none, and the call never returns */
};

/* Histogram: 8 steps per power of two. 0..7 ns have a step each, the last step holds 2^40 ns (18 minutes) and more. */
#define STEP_BITS 3
#define TOP_BIT 40
#define STEPS (((TOP_BIT - STEP_BITS + 1) << STEP_BITS) + 1)
/*
 * Histogram in powers of two of a unit: slot i counts durations d with 2^i <= d / config.unit_ns < 2^(i + 1); the first
 * slot also those below a unit, the last one all longer ones. Only used if config.unit_ns is set.
 */
#define UNIT_SLOTS 32

/* Frames per thread: POINT_FRAME has 4 bits, and config.counted_frames a bit for each. */
#define MAX_FRAMES 16
/*
 * Slots of threads_by_slot, indexed by the thread number modulo this, a power of two. Reaching a slot needs no helper
 * call.
 */
#define THREAD_SLOTS 1024
#define SYSCALL_FRAME 0 /* the loader assigns the others */
#define MAX_SYSCALLS 512
/* The most file systems that share a program; a power of two. */
#define FILE_SYSTEMS 8
#define MAX_OPS 256
#define COMM_WORDS 2 /* a thread name has 16 bytes */

/* Why a sample is not in the histogram although its entry was seen. */
enum lost_reason {
	LOST_RETURN = 0, /* the return never came, or was not seen */
	LOST_STORAGE = 1, /* no task storage, or a table refused an entry for another reason than its size */
	LOST_TABLE_FULL = 2, /* the table of starts was full */
	LOST_CLOCK = 3, /* the return was earlier than the entry */
	LOST_REASONS = 4,
};

/* Requests of the block layer that are neither in the histogram nor lost; indices of op_stats.set_aside. */
enum set_aside {
	ASIDE_AT_START = 0, /* issued before the run began */
	/* Completed without having been issued: an empty flush, or a request that the driver refused. */
	ASIDE_NEVER_ISSUED = 1,
	ASIDE_BY_KERNEL = 2, /* submitted by a kernel thread, while only some processes are traced */
	ASIDE_UNOWNED = 3, /* with an unknown submitter, while only some processes are traced */
	ASIDE_UNTIMED = 4, /* with an unknown start of the queue time */
	ASIDE_KINDS = 5,
};

/* Calls on files of a kind that is not traced; indices of op_stats.set_aside too, for ops that are no requests. */
enum excluded {
	EXCLUDED_SOCKET = 0,
	EXCLUDED_PIPE = 1, /* named ones (FIFOs) too */
	EXCLUDED_CHARACTER = 2, /* devices: terminals, /dev/null */
	EXCLUDED_OTHER = 3, /* everything else: eventfd, epoll and other files without a type in i_mode */
};

/* Shortest and longest duration, of two generations; see control.epoch. */
#define GENERATIONS 2
struct extremes {
	__u64 epoch[GENERATIONS];
	__u64 min_ns[GENERATIONS];
	__u64 max_ns[GENERATIONS];
};
/*
 * An epoch is a multiple of EPOCH_STEP. epoch & EPOCH_STEP is the byte offset, in each of the arrays of struct
 * extremes, of the generation in use: 0 or 8.
 */
#define EPOCH_STEP 8

/* Different errnos that are counted separately per op and CPU. */
#define ERRNOS 8

struct errno_count {
	__u32 error; /* positive; 0: free */
	__u32 pad;
	__u64 calls;
};

/* One op on one CPU. Counters only grow; an interval is the difference of two readings. */
struct op_stats {
	__u64 total_ns;
	__u64 bytes;
	__u64 errors;
	__u64 queued; /* asynchronous: submitted (-EIOCBQUEUED), not timed */
	__u64 lost[LOST_REASONS];
	__u64 queue_ns; /* block layer: the part of total_ns from the start of the queue time to the issue */
	/*
	 * Calls whose start is in a cookie (session.bpf.h): entries minus returns. The sum over all CPUs is the number
	 * of calls in flight, plus those whose return was skipped. With bins, entries and returns that are counted in a
	 * bin are in struct binned instead, so the value of one CPU may wrap below 0.
	 */
	__u64 under_way;
	/* Returns whose entry was skipped, of traced processes or not; ends of requests whose issue was not seen. */
	__u64 unmatched_ends;
	__u64 set_aside[ASIDE_KINDS]; /* requests by enum set_aside, calls by enum excluded */
	__u64 pad; /* fills the last cache line */
	struct errno_count errnos[ERRNOS];
	/*
	 * Programs write the extremes first, then the step, then the totals, and readers copy the structure from its
	 * start: no reader finds a call in total_ns that is missing in the steps, or a step beyond the extremes. The
	 * order of all other members means nothing.
	 */
	__u64 steps[STEPS];
	struct extremes extremes;
	__u64 unit_slots[UNIT_SLOTS];
};

/*
 * A bin covers 16 ns, which from 128 ns on is a histogram step or a whole part of one. struct bin has 16 bytes too, so
 * a duration rounded down to 16 is the byte offset of its bin.
 */
#define BIN_WIDTH 16
#define BINS 512
#define BINS_FROM 128
#define BINS_BELOW (BINS * BIN_WIDTH)
/* Ops that have bins: reads and writes of vfs. */
#define BINNED_OPS 2

struct bin {
	__u64 total_ns;
	__u64 calls;
};

/*
 * Calls of one op on one CPU whose duration has a bin (bins.bpf.h); the others are in struct op_stats. Counters only
 * grow.
 */
struct binned {
	__u64 begun; /* all calls, with and without a bin */
	__u64 from_ns; /* a duration has a bin if from_ns <= duration < below_ns, */
	__u64 below_ns;
	__u64 epoch; /* in this epoch */
	__u64 bytes; /* precedes the calls, as in struct op_stats */
	__u64 pad[3];
	struct bin bins[BINS];
};

/* In place of the time of an entry: a call that --sample leaves out. Its frame shows which calls are inside it. */
#define ENTERED_LEFT_OUT 1

/* One call in flight: the outermost one of an op in a thread. */
struct frame {
	__u64 entered_ns; /* 0: no call in flight; ENTERED_LEFT_OUT */
	/*
	 * Stack address at the entry. A later entry at a higher address proves that this call has ended; is_inside().
	 */
	__u64 stack;
	__u32 point;
	__u32 depth;
	__u64 nested; /* calls taken for nested ones; lost with this call if its frame proves dead */
	__u64 kiocb; /* key in `asynchronous` of the request that the call works on; 0: none, or an unknown one */
	__u32 group; /* of `--by` */
	/*
	 * Lower half of the address of the function that was entered; 0 for fentry, whose trampolines have different
	 * stack addresses.
	 */
	__u32 function;
};

struct task_frames {
	struct frame frames[MAX_FRAMES];
	/* Key in `asynchronous` of the request with which the thread last entered an asynchronous entry point. */
	__u64 request;
	__u32 active; /* references to an entry of threads_by_number: frames in use, and 1 for the breakdown */
	__u32 thread; /* number of the thread that owns this slot of threads_by_slot; 0: a free slot, or no slot */
};

/* The phase of a request, from its start to its end. */
enum request_phase {
	REQUEST_STARTED = 1, /* not issued yet */
	REQUEST_ISSUED = 2,
	/* Its data is done; it may end a second time, without data, after the flush that it needs. */
	REQUEST_FLUSHING = 3,
	REQUEST_ENDED = 4, /* its end is counted; a second program may still see it */
};

/*
 * Who submitted a request that is not traced. Such requests are in no op's histogram; in the whole-stack view those of
 * kernel threads may be in the op's losses.
 */
enum foreign {
	FOREIGN_NOT = 0,
	FOREIGN_KERNEL = 1, /* a kernel thread; the whole-stack view counts the request by its origin */
	FOREIGN_PROCESS = 2, /* another process */
};

/* One request in flight. */
struct request_state {
	__u64 started_ns; /* 0: unknown */
	__u64 issued_ns;
	/*
	 * start_time_ns of the request: distinguishes it from an earlier request at the same address; 0: the kernel
	 * keeps none.
	 */
	__u64 rq_start_ns;
	__u32 bytes;
	__u8 op;
	__u8 phase; /* enum request_phase */
	__u8 origin; /* enum origin; whole-stack view and records only */
	__u8 foreign; /* enum foreign */
	__u32 thread; /* number of the submitting thread; 0: unknown, or not needed */
	__u32 tgid; /* its process; 0 as above */
	__u32 group; /* of `--by` */
	__u16 neighbour; /* index in `neighbours`, if it is not traced */
	__u16 needs_flush; /* not 0: it needs flushes, so it may end twice: with its data, and after them */
	__u64 submitted_ns; /* when its first bio was submitted; 0: unknown */
};

struct request_slot {
	__u64 address; /* 0: free */
	struct request_state state;
};

/* Who submitted a bio. */
enum owner {
	OWNER_TRACED = 1,
	OWNER_KERNEL = 2, /* a kernel thread that is not traced */
	OWNER_NEIGHBOUR = 3, /* another process; neighbour.bpf.h */
};

/* One bio in flight. */
struct bio_state {
	__u64 queued_ns;
	__u32 bytes;
	__u8 op;
	__u8 owner; /* enum owner */
	__u8 has_request; /* it got a request, or was merged into one */
	__u8 is_stacked; /* its disk has no requests (dm, md) */
	__u32 thread; /* number of the submitting thread; 0: not needed */
	__u32 tgid; /* its process; 0 as above */
	__u8 origin; /* enum origin */
	/* It passed a throttle (blk-throttle or a policy of rq_qos), which may submit it from another thread. */
	__u8 held;
	__u16 neighbour; /* index in `neighbours`, if its owner is not traced */
	__u32 group; /* of `--by` */
};

struct bio_slot {
	__u64 address; /* 0: free */
	struct bio_state state;
};

/* How the block layer is measured. */
struct block_config {
	__u32 disk; /* dev_t of the selected disk, as device_number() packs it; 0: all disks */
	__u8 op_base; /* index of the first op of blk */
	/* Index of the argument of block_rq_issue that is the request: 0 or 1, depending on the kernel. */
	__u8 issue_arg;
	__u8 bio_queue_arg; /* index of the argument of block_bio_queue that is the bio */
	__u8 getrq_arg; /* likewise of block_getrq */
	__u8 is_partition;
	__u8 is_bio_based; /* the disk has no requests */
	__u8 by_owner; /* only the requests of some processes are traced */
	__u8 queued; /* durations include the queue time */
	/* An event announces the start of a request: block_io_start, or a probe on the function that accounts it. */
	__u8 has_starts;
	__u8 bio_stamps; /* bios are kept in a table from their submission on */
	__u8 has_status; /* completions have a blk_status_t, not an errno */
	__u8 ends_have_second; /* a second program sees each end too; the first to run counts it */
	__u8 by_both; /* bios are seen by a kprobe and by a tracepoint; the second event of a bio changes nothing */
	__u8 neighbours; /* requests of processes that are not traced are seen too; neighbour.bpf.h */
	__u8 has_batches; /* some requests end in batches, at a function that is probed */
	__u8 split_arg; /* as bio_queue_arg, of block_split */
};

/* Processes and kernel threads that are counted separately as neighbours. */
#define NEIGHBOURS 1024
/* The index of all that have none of their own, and of requests without a known submitter. */
#define NEIGHBOUR_REST 0
/* Not a neighbour: the traced requests. */
#define NEIGHBOUR_OWN 1
#define NEIGHBOUR_FIRST 2
/* Ends of requests that are kept per disk, a power of two, and disks (request queues) that have such a list. */
#define ENDS_KEPT 128
#define ENDS_DISKS 64

/* One neighbour. Counters only grow. */
struct neighbour {
	__u64 ns; /* device time spent on its requests while a traced request waited */
	__u64 requests;
	__u64 bytes;
	__u64 comm[COMM_WORDS];
	__u32 tgid;
	__u32 is_kernel;
	__u64 pad[2];
};

/* The end of a request. The disk worked for it since the end before it, or since its issue if that was later. */
struct served {
	__u64 from_ns;
	__u64 ended_ns;
	/*
	 * Of this end, counted from 1; 0 while the entry is written. Written last, so that a reader detects a torn
	 * entry.
	 */
	__u64 number;
	__u32 bytes;
	__u32 neighbour; /* NEIGHBOUR_OWN: a traced request */
};

struct disk_ends {
	__u64 ends; /* so far */
	__u64 last_ns;
	__u64 accounted_ns; /* waits up to here are accounted */
	__u64 zero; /* always 0, which the verifier does not know; see account_wait() */
	__u64 queue; /* its own key */
	struct served kept[ENDS_KEPT];
};

/* Time in which at least one traced request waited, summed over disks. Counters only grow. */
struct waits {
	__u64 ns; /* all of it */
	__u64 untold_ns; /* the part before the oldest end that is kept */
	__u64 disks_full; /* ends on disks beyond ENDS_DISKS */
	__u64 slots_taken; /* slots of `neighbours` that were requested; more than there are if some were refused */
};

/* Ops of the block layer that the programs have to know; src/catalog/blk.rs has the table. */
#define BLOCK_OP_WRITE 1 /* read is the one before it */
#define BLOCK_OP_FLUSH 2
#define BLOCK_OP_OTHER 10

/* Codes of request operations: REQ_OP_BITS is 8 (include/linux/blk_types.h). */
#define BLOCK_CODES 256
#define BLOCK_REQUESTS 32768
/* Slots of requests, and of bios, by a hash of the address. Reaching one needs no search in a hash map. */
#define BLOCK_SLOTS_BITS 12
#define BLOCK_SLOTS (1 << BLOCK_SLOTS_BITS)

/* An asynchronous request has a time at each of these layers. */
#define ASYNC_ENTRY 0 /* vfs: from the entry point (io_read, aio_read, ...) on */
#define ASYNC_BELOW 1 /* the file system that does the I/O */
#define ASYNC_ABOVE 2 /* a stacked file system (overlayfs) between the two */
#define ASYNC_LAYERS 3

/* An asynchronous request as one layer sees it. */
struct async_start {
	__u64 entered_ns; /* the first call; further attempts do not change it */
	__u64 left_ns; /* when the layer's last call returned without queuing the request; 0: none has */
	__s64 value; /* what its calls returned: the sum of bytes, or an error */
	__u32 point; /* 0: the request did not reach this layer */
	__u32 group; /* of `--by` */
};

/* The state of an asynchronous request. */
enum async_state {
	ASYNC_RUNNING = 0, /* its entry point has not returned */
	ASYNC_QUEUED = 1, /* it waits for its completion */
	ASYNC_PARKED = 2, /* the last attempt returned -EAGAIN; io_uring will make another one */
};

/* One asynchronous request in flight. */
struct async_call {
	struct async_start starts[ASYNC_LAYERS];
	__u64 parked_ns; /* when the last attempt ended */
	__u32 tgid; /* of the process that it belongs to */
	__u32 thread; /* that is, or was last, inside an entry point */
	__u32 state; /* enum async_state */
	__u8 is_aio; /* of libaio, which makes one attempt only */
	__u8 nowait; /* the caller wants -EAGAIN, not another attempt */
	__u8 direct; /* queued with IOCB_DIRECT: its completion comes before any other attempt */
	__u8 pad;
};

/*
 * The whole-stack view. Every moment of a system call is in one of these rows: the first ones are where the thread ran,
 * the others what it waited for.
 */
enum row {
	ROW_SYSCALL = 0,
	ROW_VFS = 1,
	ROW_FS = 2, /* 2 to 8: the file systems that this run measures, in their order */
	/* What the thread waits for, from here on. */
	ROW_QUEUE = 9, /* an own request, from its bio's submission to its issue */
	ROW_DEVICE = 10, /* an own request, from its issue to the end of the sleep */
	ROW_OTHERS = 11, /* I/O, while no own request ended in the sleep */
	ROW_JOURNAL = 12,
	ROW_LOCK = 13,
	ROW_OTHER = 14, /* a sleep for something else */
	ROW_RUN_QUEUE = 15, /* ready to run */
	ROWS = 16, /* a power of two: charge() masks the row; and struct family_stats fills whole cache lines */
};

#define FAMILIES 6 /* src/catalog/family.rs has the table */
#define FAMILY_READ 0
#define FAMILY_WRITE 1
#define FAMILY_ASYNCHRONOUS 5

/* How a read got its data. */
enum read_class {
	READ_CACHED = 0, /* no own bio, and no sleep for I/O */
	READ_WAITED_OWN = 1, /* an own request ended in a sleep of it */
	READ_WAITED_OTHERS = 2, /* it slept for I/O, and no own request ended in it */
	READ_AHEAD = 3, /* it submitted bios and did not sleep for I/O */
	READ_DIRECT = 4, /* bypassed the page cache */
	READ_CLASSES = 5,
};

/* Events without their counterpart. The rows still add up; some time may be in an adjacent row. */
enum unbalanced {
	UNBALANCED_ENTRY = 0, /* an entry whose return was not seen */
	UNBALANCED_RETURN = 1, /* a return whose entry was not seen */
	UNBALANCED_DEPTH = 2, /* a function beyond OPEN_FUNCTIONS */
	UNBALANCED_SLEEP = 3, /* a sleep whose end was not seen, or that found no room in `sleepers` */
	UNBALANCED_KINDS = 4,
};

/* What became of a slow call; slow.bpf.h. */
enum slow_kind {
	SLOW_REPORTED = 0, /* written to the ring */
	SLOW_LIMITED = 1, /* over SLOW_PER_SECOND */
	SLOW_NO_ROOM = 2, /* the ring was full */
	SLOW_KINDS = 3,
};

/*
 * One family of system calls on one CPU. Counters only grow, and each change is one of a counter in the first cache line,
 * which is all that a reader looks at if there was none.
 */
struct family_stats {
	__u64 slow[SLOW_KINDS]; /* by enum slow_kind: calls of at least config.slower_ns */
	__u64 unbalanced[UNBALANCED_KINDS];
	__u64 reached[ROWS]; /* calls that entered a function of the row, that of ROW_SYSCALL first */
	__u64 rows[ROWS]; /* nanoseconds */
	__u64 bytes;
	__u64 errors;
	__u64 class_calls[READ_CLASSES];
	__u64 class_bytes[READ_CLASSES];
	struct extremes extremes;
	/* As in struct op_stats. */
	__u64 steps[STEPS];
	__u64 pad[6];
};

/* Who submitted a request that no traced call waited for. */
enum origin {
	ORIGIN_UNKNOWN = 0, /* unknown: flushes, which the kernel sends for several submitters */
	/* A traced thread; requests that end while it sleeps for them are in the rows of its calls instead. */
	ORIGIN_OWN = 1,
	ORIGIN_ASYNCHRONOUS = 2, /* a traced thread, by io_uring or AIO */
	ORIGIN_KWORKER = 3, /* kworkers */
	ORIGIN_JOURNAL = 4, /* jbd2 */
	ORIGIN_KERNEL = 5, /* other kernel threads */
	ORIGIN_WRITEBACK = 6, /* kworkers, for a file that a traced thread has written */
	ORIGIN_READAHEAD = 7, /* a traced thread, by readahead */
	ORIGINS = 8,
};

/* Requests of one origin and direction on one CPU. */
struct origin_stats {
	__u64 requests;
	__u64 bytes;
	__u64 queue_ns;
	__u64 device_ns;
	__u64 pad[4];
};

/* Of each origin: reads, and all other operations. */
#define DIRECTIONS 2

/* Depth to which the functions of a call are tracked, the system call included; a power of two. */
#define OPEN_FUNCTIONS 16

struct open_function {
	__u16 key; /* its op, or ROW_KEY | row if it has none */
	__u8 row;
	__u8 pad;
};

/* The file systems that share session_file_systems, in the order of the addresses of their functions. */
struct file_systems {
	__u64 later[FILE_SYSTEMS - 1]; /* the first address of each but the first; 0: there are no more */
	__u8 rows[FILE_SYSTEMS];
	__u8 frame; /* of their counted calls */
	__u8 pad[7];
};

/* What a call waited for, in struct breakdown. */
#define WAITED_OWN 1 /* an own request */
#define WAITED_OTHERS 2 /* I/O of others */

/* Why a thread is off the CPU. */
enum off {
	OFF_NOT = 0,
	OFF_READY = 1, /* preempted, or otherwise ready to run */
	OFF_ASLEEP = 2,
};

/* Slow calls that are reported per second, by all CPUs together. */
#define SLOW_PER_SECOND 1000

/* Arguments of a call that are kept for the report of a slow call. */
#define CALL_ARGUMENTS 4

/* Which arguments of a system call are the path, the file offset and the size, counted from 1; 0: none. */
struct call_shape {
	__u8 path;
	__u8 offset; /* or CALL_POSITION */
	__u8 size;
	__u8 effect; /* CALL_OPENS, CALL_CLOSES, CALL_WRITES, CALL_HAS_ARGUMENTS, CALL_CHANGES_FOLDER, CALL_NEEDS_ALL */
	/* The others are for records. */
	__u8 second_path;
	__u8 second_fd; /* of calls on two files; the first one is the first argument */
	__u8 base; /* the descriptor of the folder that a relative path starts from */
	__u8 second_base;
	__u8 extra; /* the argument that is particular to the op: flags, a mode, a number of buffers */
	__u8 recorded_size; /* the size that is recorded: also where it is that of a whole file */
	__u8 has; /* CALL_HAS_OFFSET, CALL_HAS_SIZE, CALL_TAKES_POSITION: what the reader of a record adds to it */
	/* Arguments that point to an offset: in the first file, and of copy_file_range() in the second one. */
	__u8 offset_pointer;
	__u8 second_offset_pointer;
	__u8 pad[3];
};

/* A command of a call that is recorded with some of its commands only: its second argument. */
struct call_command {
	__u32 op;
	__u32 mask; /* 0: none */
	__u32 value; /* of the bits in the mask */
};

#define COMMANDS 8

/* The call returns a new descriptor of the file. */
#define CALL_OPENS 1
/* The call closes its descriptor. */
#define CALL_CLOSES 2
/* The call writes to its file. */
#define CALL_WRITES 4
/* The record of the call has all arguments. */
#define CALL_HAS_ARGUMENTS 8
/* The call changes the working or the root directory of its process. */
#define CALL_CHANGES_FOLDER 16
/* The record of the call takes something from other arguments than the third and the fourth. */
#define CALL_NEEDS_ALL 32

/* The offset is the position of the open file, which the call moves. */
#define CALL_POSITION 255

/* Slow calls reported in the second that began at since_ns. */
struct slow_rate {
	__u64 since_ns;
	__u64 reported;
};

/* What the names of a path are. */
enum path_kind {
	PATH_NONE = 0, /* no names */
	PATH_WHOLE = 1, /* from the file up to the root, each ending with a 0 */
	PATH_CUT = 2, /* as PATH_WHOLE, but the upper directories are missing */
	PATH_ALONE = 3, /* of a file in no directory: a pipe, a socket */
	PATH_GIVEN = 4, /* one string: the path that the call was given */
	PATH_INSIDE = 5, /* up to the root of the file system, wherever that is mounted; or of a cgroup hierarchy */
};

/* Bytes for all names of a path, bytes for one name (NAME_MAX + 1), and the most names that are read. */
#define NAMES_ROOM 1024
#define NAME_ROOM 256
#define NAMES_MOST 48

#define SLOW_HAS_FILE 1
#define SLOW_HAS_OFFSET 2
#define SLOW_HAS_SIZE 4

/* One slow call. */
struct slow_call {
	__u64 ended_ns;
	__u64 total_ns;
	__u64 rows[ROWS];
	__s64 value; /* what it returned */
	/* offset, size, and inode to mode are only set if `has` says so. */
	__u64 offset;
	__u64 size; /* as requested */
	__u64 inode;
	__u64 comm[COMM_WORDS];
	__u32 tgid;
	__u32 thread;
	__u32 device; /* s_dev of its file system, as device_number() packs it */
	__u32 names_length;
	__u16 mode; /* i_mode */
	__u8 op;
	__u8 has; /* SLOW_HAS_... */
	__u8 path; /* enum path_kind */
	__u8 pad[3];
	__u8 names[NAMES_ROOM + NAME_ROOM];
};

/*
 * Records: one per call, request, sleep, ... at its end, and definitions of what they name; events.bpf.h. Each begins
 * with its kind. The numbers up to RECORD_THREAD are those of the Rust side's `Kind`.
 */
enum record_kind {
	RECORD_CALL = 0,
	RECORD_REQUEST = 1,
	RECORD_SLEEP = 2,
	RECORD_ASYNC = 3,
	RECORD_FAULT = 4,
	RECORD_FILE = 5,
	RECORD_FOLDER = 6,
	RECORD_THREAD = 7,
	RECORD_PATH = 8,
	/* No kind: counts the open files of a CPU that were defined, where that needs a counter per CPU. */
	RECORD_FILES_DEFINED = 15,
	RECORD_KINDS = 16, /* a power of two, with kinds that are free */
};

/*
 * What a record of a call has, besides what all have. CALL_HAS_OFFSET and CALL_HAS_SIZE: among its arguments, as its op
 * says; in no record.
 */
#define CALL_HAS_OFFSET 1
#define CALL_HAS_SIZE 2
#define CALL_HAS_FD 4
#define CALL_HAS_PATH 8 /* records of its paths precede it, perhaps in another ring */
#define CALL_IS_COMPAT 16 /* by the 32-bit table */
#define CALL_IS_DIRECT 32
#define CALL_TAKES_POSITION 64 /* it uses the position of its file, if that has one */
#define CALL_HAS_POSITION 128 /* its file has a position, which it uses */

/* The rows of a call, behind its record. */
enum call_rows {
	CALL_ROWS_NONE = 0, /* not measured */
	/* 32 bits for ROW_VFS, and for the file system's row `row`; the rest is in ROW_SYSCALL. */
	CALL_ROWS_FEW = 1,
	CALL_ROWS_ALL = 2, /* ROWS numbers of 32 bits */
	CALL_ROWS_WIDE = 3, /* ROWS numbers of 64 bits */
	CALL_ROWS_ARGUMENTS = 4, /* not measured; the arguments follow */
};

#define RECORD_ARGUMENTS 6
/* Slots for arguments that are counted from 1: a power of two, so that any index is made one of them by its lower bits. */
#define RECORDER_ARGUMENTS 8

/* A call, at its end. */
struct call_record {
	__u8 kind;
	__u8 op;
	__u8 has; /* CALL_HAS_..., CALL_IS_... */
	__u8 rows; /* enum call_rows */
	__u32 thread;
	__u64 begin_ns;
	__u64 end_ns;
	__s64 value; /* what it returned */
	/*
	 * Offset, size and extra of a call with CALL_NEEDS_ALL. Of any other call, which is every usual read and write:
	 * the third argument, the fourth, and the position of its file. The reader knows what these arguments are.
	 */
	__u64 numbers[3];
	__u32 tgid;
	__s32 fd;
	__u32 files[2]; /* numbers of open files; 0: none */
	__u16 cpus[2]; /* at its begin, and at its end */
	__u8 read_class; /* enum read_class; READ_CLASSES: of no class */
	__u8 row; /* with CALL_ROWS_FEW */
	__u16 number; /* of its thread's calls with CALL_HAS_PATH: of which one its paths are */
};

struct call_record_arguments {
	struct call_record call;
	__s64 arguments[RECORD_ARGUMENTS];
};

struct call_record_few {
	struct call_record call;
	__u32 rows[2];
};

struct call_record_all {
	struct call_record call;
	__u32 rows[ROWS];
};

struct call_record_wide {
	struct call_record call;
	__u64 rows[ROWS];
};

/* A request, or a bio of a disk without requests, at its end. */
struct request_record {
	__u8 kind;
	__u8 op; /* counted from 0 in the order of the ops of blk */
	__u8 origin; /* enum origin */
	__u8 pad;
	__u32 thread; /* that submitted it; 0: unknown */
	__u32 tgid; /* the process of `thread` */
	/* bi_opf of its first bio: the kernel removes FUA and PREFLUSH from a request if the disk does not support them. */
	__u32 bio_flags;
	__u64 submitted_ns; /* 0: unknown */
	__u64 started_ns; /* 0: unknown */
	__u64 issued_ns; /* 0: never issued itself */
	__u64 ended_ns;
	__u64 sector;
	__u64 inode; /* of the file of its first page; 0: of no file */
	__u32 inode_device; /* as device_number() packs it; so are the next two */
	__u32 disk;
	__u32 partition;
	__u32 bytes;
	__u32 cmd_flags;
	__u16 error; /* an errno */
	__u16 cpu;
};

/* An asynchronous request, at its end. */
struct async_record {
	__u8 kind;
	__u8 op;
	__u8 has; /* CALL_HAS_OFFSET, CALL_HAS_SIZE, CALL_IS_DIRECT */
	__u8 is_aio;
	__u32 thread; /* that made the first attempt */
	__u64 begin_ns; /* of the first attempt */
	__u64 attempt_end_ns; /* of the last attempt; 0: it ended with the request, or later */
	__u64 end_ns;
	__u64 key; /* address of its kiocb */
	__u64 context; /* address of the kernel's ring; number of an AIO context */
	__u64 offset;
	__u64 size;
	__s64 value;
	__u32 tgid;
	__u32 file; /* number of the open file; 0: unknown */
	__u32 flags; /* of the submission: IOSQE_...; 0 for AIO */
	__u32 attempts;
};

/* A page fault on a mapped file, at its end. */
struct fault_record {
	__u8 kind;
	__u8 op;
	__u16 error; /* an errno */
	__u32 thread;
	__u64 begin_ns;
	__u64 end_ns;
	__u64 offset; /* of the page */
	__u32 tgid;
	__u32 file; /* number of the open file; 0: unknown */
	__u32 is_write;
	__u32 pad;
};

/* A time off the CPU inside a call, when the thread gets a CPU again. */
struct sleep_record {
	__u8 kind;
	__u8 row; /* enum row */
	__u16 cpus[2]; /* that it left, and got */
	__u16 pad;
	__u32 thread;
	__u32 waker; /* thread that woke it; 0: unknown, or an interrupt */
	__u32 waker_tgid;
	__u32 pad2;
	__u64 out_ns;
	__u64 woken_ns; /* 0: it was ready to run all the time */
	__u64 in_ns;
};

/* Bytes for all names of a path, and for one of them, in the short form of a file's definition. */
#define FEW_NAMES_ROOM 160
#define FEW_NAME_ROOM 64

/* Defines an open file. */
struct file_record {
	__u8 kind;
	__u8 path; /* enum path_kind */
	__u16 mode; /* i_mode */
	__u32 number;
	__u64 at_ns;
	__u64 inode;
	__u64 size;
	__u64 blocks;
	__u64 position;
	__u32 device; /* as device_number() packs it */
	__u32 generation;
	__u32 links;
	__u32 flags; /* f_flags */
	__u32 mount;
	__u32 names_length;
	__u8 file_system[16]; /* ends with a 0 */
};

struct file_record_few {
	struct file_record file;
	__u8 names[FEW_NAMES_ROOM + FEW_NAME_ROOM];
};

struct file_record_all {
	struct file_record file;
	__u8 names[NAMES_ROOM + NAME_ROOM];
};

/* Defines the working or the root directory of a process. */
struct folder_record {
	__u8 kind;
	__u8 path; /* enum path_kind */
	__u8 is_root;
	__u8 pad;
	__u32 tgid;
	__u64 at_ns;
	__u32 names_length;
	__u32 pad2;
};

struct folder_record_all {
	struct folder_record folder;
	__u8 names[NAMES_ROOM + NAME_ROOM];
};

/* Defines a thread. */
struct thread_record {
	__u8 kind;
	__u8 has_ended;
	__u8 pad[2];
	__u32 thread;
	__u32 tgid;
	__u32 parent; /* process */
	__u64 at_ns;
	__u64 started_ns; /* of the process, since boot */
	__u64 cgroup;
	__u64 comm[COMM_WORDS];
	__u32 uid;
	__u32 pad2;
};

/* Bytes for the text of a path, in the short form of its record and in the long one (PATH_MAX). */
#define FEW_TEXT_ROOM 104
#define TEXT_ROOM 4096

/* A path that a call was given. */
struct path_record {
	__u8 kind;
	__u8 which; /* 0 or 1: its first or second path */
	__u16 length; /* of the text, with the 0 at its end */
	__u32 thread;
	__u32 base; /* number of the open folder that it starts from; 0: the working directory */
	__u16 number; /* that of the call */
	__u16 pad;
};

struct path_record_few {
	struct path_record path;
	__u8 text[FEW_TEXT_ROOM];
};

struct path_record_all {
	struct path_record path;
	__u8 text[TEXT_ROOM];
};

/* Has a call of CALL_ROWS_FEW or CALL_ROWS_NONE, or a request. */
struct record_slot {
	__u64 record[11];
	__u64 turn; /* the position of the record that is complete in it, counted from 1; 0: none */
};

/*
 * A CPU's ring of slots for records, which has config.ring_slots of them behind it. Its positions count slots since the start,
 * and are in cache lines of their own: programs write the first, the reader the second.
 */
struct slot_ring {
	__u64 taken;
	__u64 pad[7];
	__u64 read;
	__u64 pad2[7];
};

/* Records of a kind that one CPU could not store. */
struct lost_records {
	__u64 records; /* only grows */
	__u64 drain; /* control.drain at first_ns */
	__u64 first_ns; /* the first one since the rings were last drained */
	__u64 last_ns;
};

/* A walk from a file up to the root (step_up()), or from a cgroup (step_up_cgroup()). */
struct walk {
	__u64 dentry; /* the next one, by its address; of a cgroup, its kernfs_node */
	__u64 mount; /* that it is on, as a struct mount; 0: not known */
	__u64 top; /* the dentry that the mount begins with */
	__u32 kind; /* enum path_kind, when the walk has ended; until then 0 */
	__u32 pad;
};

/* What is kept of a thread for its records. */
struct recorder {
	/* The call in flight, as far as it is known. Its begin is 0: there is none; its thread: the slot is free. */
	struct call_record call;
	__u64 arguments[RECORDER_ARGUMENTS]; /* of a call with CALL_NEEDS_ALL, counted from 1; slots of no argument are 0 */
	/* The file that the thread used last, and its number. The dentry and the inode distinguish files at one address. */
	__u64 file;
	__u64 dentry;
	__u64 inode; /* its number; so that of a pipe or a socket is never the same */
	__u64 comm[COMM_WORDS]; /* the name of the thread; empty until its first call */
	struct walk walk; /* to define a file or a directory */
	__u64 fault_offset; /* of the page fault in flight, as the next two */
	__u32 fault_file;
	__u32 fault_is_write;
	__u32 number;
	__u32 files_reopened; /* when the number was looked up */
	__u32 pad;
	__u32 bases[2]; /* the folders that the paths of the call start from, as given; 0: the working directory */
	__u32 waker; /* of the current sleep */
	__u32 waker_tgid;
	__u16 cpu_left; /* at the start of the sleep */
	__u8 at_end; /* AT_END_... */
	__u8 definition; /* enum definition, of the thread */
};

/* Whether records have a definition of a thread. */
enum definition {
	DEFINED_NEVER = 0,
	DEFINED = 1,
	DEFINED_BY_OLD_NAME = 2,
};

/* What is left to do for a call when it returns, which few calls need. */
#define AT_END_PATH 1 /* this path could not be read at the begin */
#define AT_END_SECOND_PATH 2
#define AT_END_FOLDERS 4 /* it may have changed the working or the root directory */
#define AT_END_APPENDED 8 /* it went to where the end of the file was, whatever the position */

/* An open file that was defined. */
struct known_file {
	__u64 dentry;
	__u64 inode; /* its number */
	__u32 number;
	__u32 pad;
};

/* What calls and requests are grouped by (--by); group.bpf.h. */
enum group_by {
	BY_NOTHING = 0,
	BY_PROCESS = 1,
	BY_FILE = 2,
	BY_DISK = 3,
	BY_CGROUP = 4,
};

/* The hierarchy whose cgroups are the groups. */
enum cgroups_of {
	CGROUPS_UNIFIED = 0, /* version 2 */
	CGROUPS_IO = 1, /* version 1, blkio */
	CGROUPS_MEMORY = 2,
};

/* Reserved group numbers; all others are from GROUP_FIRST on. */
#define GROUP_NO_ROOM 0 /* all groups beyond the limit */
#define GROUP_NONE 1 /* calls without a file, requests without a known file or submitter */
#define GROUP_FIRST 2

/* One process, file, disk or cgroup. */
struct group {
	__u64 number; /* number of the process, inode, device or cgroup */
	/*
	 * Distinguishes numbers in reuse. BY_FILE: device << 32 | hash of the name; BY_PROCESS: start in ns since boot;
	 * else 0.
	 */
	__u64 more;
	__u64 is_known; /* set last: the other members are complete */
	__u64 comm[COMM_WORDS]; /* of a process */
	__u32 names_length;
	__u8 path; /* enum path_kind */
	__u8 pad[11];
	struct walk walk; /* while names are added */
	__u8 names[NAMES_ROOM + NAME_ROOM];
};

/* The key of a cell: one op of one group. */
struct cell_key {
	__u32 group;
	__u32 counter;
};

/* The breakdown of the call that a thread is in: the time of each row so far, and which row is current. */
struct breakdown {
	__u64 entered_ns;
	__u64 last_ns; /* the time up to here is in the rows */
	__u64 rows[ROWS]; /* of the call, in ns */
	struct open_function open[OPEN_FUNCTIONS];
	/* With config.reports_slow: arguments and file of the call. */
	__u64 arguments[CALL_ARGUMENTS];
	__u64 file; /* address of the open file; 0: none */
	__u64 dentry; /* of a call that closes its file; else 0 */
	__u64 mount;
	__u64 inode;
	struct walk walk; /* to report the call */
	__s64 value; /* what the call has returned */
	__u32 fd; /* also while is_unchecked is set */
	__u32 depth; /* open functions; 0: no call in flight */
	__u32 untracked; /* open functions beyond OPEN_FUNCTIONS */
	__u32 reached; /* a bit per row */
	__u8 family;
	__u8 off; /* enum off */
	__u8 sleeps_in; /* the row of the sleep unless an own request ends in it */
	__u8 getting_request; /* a bio was submitted and has no request yet */
	__u8 has_slept; /* the thread is in `sleepers` */
	__u8 own_bios;
	__u8 waited; /* WAITED_OWN, WAITED_OTHERS */
	__u8 direct;
	__u32 group; /* of `--by` */
	__u8 has_waited; /* rows from ROW_QUEUE on may be non-zero */
	__u8 is_unchecked; /* the call's file has not been checked against the filters yet */
	__u8 fs_row; /* with config.records: the last row of a file system that the call reached */
	__u8 class; /* enum read_class of a call that has ended */
};

/* The group that a thread looked up last, and its key; 0: none. */
struct last_group {
	__u64 number;
	__u64 more;
	__u32 group;
	__u32 pad;
};

/* The state of a thread. */
struct thread_state {
	struct task_frames calls;
	struct last_group last_group;
	struct breakdown breakdown; /* whole-stack view only */
};

/* A thread that is off the CPU inside a call, as programs in other contexts see it. */
struct sleeper {
	__u64 slept_ns; /* 0: not asleep */
	__u64 woken_ns; /* 0: not woken yet */
	__u64 mark_ns; /* start of the sleep, or the last own completion in it */
	__u64 queue_ns; /* time of the sleep in which its own requests were queued */
	__u64 completed; /* slept_ns of the sleep in which an own request completed; 0: none did */
	__u64 released; /* another thread (a throttle) got the request that this thread waited for */
};

/* Set before the programs are loaded: the verifier sees constants and drops the code that they switch off. */
struct config {
	__u64 comm[COMM_WORDS]; /* padded with zeros */
	__u64 slower_ns; /* calls of at least this duration are reported one by one */
	__u64 file_inode; /* with by_file: the selected file */
	/*
	 * Mask that bounds the CPU's index in stats_by_cpu for the verifier; all ones where it knows the range of
	 * bpf_get_smp_processor_id().
	 */
	__u64 cpu_mask;
	__u32 file_device;
	__u32 tgid; /* the only process that is traced; 0: see traced_set */
	__u32 self_tgid; /* never traced */
	__u32 unit_ns; /* 0, 1000 or 1000000 */
	__u32 counters; /* op_stats per CPU: one per op, then one per op with asynchronous completions */
	__u32 cpu_bytes; /* their size in bytes if the counters are in stats_by_cpu; 0: they are in `stats` */
	__u8 traced_set; /* only processes in `traced` are traced */
	__u8 follow; /* their children are added to it */
	__u8 by_cgroup;
	__u8 by_comm;
	__u8 by_disk;
	__u8 all_files;
	__u8 atomic; /* programs that share a CPU's counters can preempt each other */
	/* Starts are in a hash map by thread number: these programs have no task storage, or not always. */
	__u8 hash_starts;
	__u8 slots; /* threads_by_slot, requests_by_slot and bios_by_slot exist */
	__u8 typed_task; /* bpf_get_current_task_btf() exists (5.11) */
	/*
	 * Below the system calls only the time of rows is measured, and no op; except at functions that asynchronous
	 * requests pass.
	 */
	__u8 rows_only;
	__u8 reports_slow; /* slow calls are reported; slow.bpf.h */
	__u8 by_file;
	__u8 cookies; /* some starts are in cookies; session.bpf.h */
	__u8 group_by; /* enum group_by */
	__u8 cgroups_of; /* enum cgroups_of */
	__u16 stack_rows; /* a bit for each row before ROW_QUEUE that has functions */
	__u16 counted_frames; /* a bit for each frame in which calls of functions are counted */
	/*
	 * There is one report, at the end: the epoch stays EPOCH_STEP, the second index of the arrays of struct
	 * extremes.
	 */
	__u8 one_epoch;
	__u8 bins; /* calls whose start is in a cookie are counted in bins; bins.bpf.h */
	__u8 records; /* calls, requests and sleeps are recorded one by one; events.bpf.h */
	/* Atomic instructions that return the old value exist (5.12). */
	__u8 answering_atomics;
	/* With --sample 1/N: 2^32 / N; a call is measured if a random number of 32 bits is below. 0: all calls are. */
	__u32 sample;
	__u32 ring_slots; /* of each ring of slots (slot_ring.bpf.h): a power of two; 0: there are no such rings */
	__u32 ring_cpus; /* CPUs that have one: those with lower numbers */
	__u32 pad;
};

/* BTF type ids for bpf_rdonly_cast(); 0: not available. */
struct cast_types {
	__u32 file;
	__u32 inode;
	__u32 kiocb;
	__u32 super_block;
	__u32 request;
	__u32 request_queue;
	__u32 bio;
	__u32 block_device;
	__u32 gendisk;
	__u32 pt_regs;
	__u32 page;
};

/* Kfuncs that this kernel has. */
struct kfuncs {
	__u8 preempt_disable;
	__u8 session_is_return_ctx;
	__u8 session_cookie_ctx;
};

/* control.stopped. CALLS: new calls are ignored, calls in flight are finished. REQUESTS: no request is counted. */
#define STOP_CALLS 1
#define STOP_REQUESTS 2
/* A layer is being detached, so events without their counterpart are expected. */
#define STOP_PAIRS 4

#define NO_PROCESS 0xffffffff /* no process has this number */

/* Changed while the programs run. */
struct control {
	__u64 epoch; /* of the extremes in use, a multiple of EPOCH_STEP */
	__u32 stopped; /* STOP_CALLS, STOP_REQUESTS, STOP_PAIRS */
	__u32 active_tgid; /* config.tgid while calls are measured, else NO_PROCESS: one comparison checks both */
	__u32 command_tgid; /* traced from its next exec on */
	__u64 not_followed; /* children that did not fit into `traced` */
	__u64 recovered; /* block_getrq events that the first program missed and the second one handled */
	__u64 began_ns; /* when measuring began, by the programs' clock */
	__u64 drain; /* how often the rings of records were drained */
	/* Numbers of groups that were taken, in ascending order; those that are given back are taken again after all others. */
	__u64 groups_taken;
};

_Static_assert(STEPS == 305, "the Rust side prints these steps");
_Static_assert(BINS_FROM >> STEP_BITS == BIN_WIDTH, "no step begins inside a bin");
_Static_assert(sizeof(struct bin) == BIN_WIDTH, "a duration is the byte offset of its bin");
_Static_assert((BINS & (BINS - 1)) == 0, "BINS is a mask");
_Static_assert(sizeof(struct binned) % 64 == 0, "no cache line is shared by two CPUs");
_Static_assert(sizeof(struct frame) == 48, "no padding");
_Static_assert(sizeof(struct op_stats) == 8 * (8 + LOST_REASONS + ASIDE_KINDS + 6 + 2 * ERRNOS + STEPS + UNIT_SLOTS), "no padding");
_Static_assert(sizeof(struct op_stats) % 64 == 0, "no cache line is shared by two CPUs");
_Static_assert(sizeof(struct request_state) == 56, "no padding");
_Static_assert(sizeof(struct bio_state) == 32, "no padding");
_Static_assert(sizeof(struct request_slot) == 64, "a cache line");
_Static_assert(sizeof(struct family_stats) % 64 == 0, "no cache line is shared by two CPUs");
_Static_assert(sizeof(struct origin_stats) == 64, "no cache line is shared by two CPUs");
_Static_assert(sizeof(struct breakdown) == 8 * (2 + ROWS) + 4 * OPEN_FUNCTIONS + 8 * (CALL_ARGUMENTS + 5) + 32 + 16 + 16, "no padding");
_Static_assert(sizeof(struct slow_call) == 8 * (6 + ROWS + COMM_WORDS) + 16 + 8 + NAMES_ROOM + NAME_ROOM, "no padding");
_Static_assert(sizeof(struct block_config) == 20, "no padding");
_Static_assert(sizeof(struct neighbour) == 64, "no padding");
_Static_assert(sizeof(struct served) == 32, "no padding");
_Static_assert(sizeof(struct async_call) == 32 * ASYNC_LAYERS + 24, "no padding");
_Static_assert(sizeof(struct task_frames) == 48 * MAX_FRAMES + 16, "no padding");
_Static_assert(sizeof(struct last_group) == 24, "no padding");
_Static_assert(sizeof(struct group) == 8 * (3 + COMM_WORDS) + 16 + 32 + NAMES_ROOM + NAME_ROOM, "no padding");
_Static_assert(sizeof(struct config) == 104, "no padding");
_Static_assert(sizeof(struct call_shape) == 16, "no padding");
_Static_assert(sizeof(struct call_record) == 80, "no padding");
_Static_assert(sizeof(struct call_record_few) == 88, "no padding");
_Static_assert(sizeof(struct call_record_arguments) == 128, "no padding");
_Static_assert(sizeof(struct call_command) == 12, "no padding");
_Static_assert(sizeof(struct request_record) == 88, "no padding");
_Static_assert(sizeof(struct async_record) == 88, "no padding");
_Static_assert(sizeof(struct fault_record) == 48, "no padding");
_Static_assert(sizeof(struct sleep_record) == 48, "no padding");
_Static_assert(sizeof(struct file_record) == 88, "no padding");
_Static_assert(sizeof(struct folder_record) == 24, "no padding");
_Static_assert(sizeof(struct thread_record) == 64, "no padding");
_Static_assert(sizeof(struct path_record) == 16, "no padding");
_Static_assert(sizeof(struct slot_ring) == 128, "no padding");
_Static_assert(sizeof(struct record_slot) == 96, "no padding");
_Static_assert(sizeof(struct call_record_few) <= sizeof(((struct record_slot *)0)->record), "it fits");
_Static_assert(sizeof(struct request_record) <= sizeof(((struct record_slot *)0)->record), "it fits");
_Static_assert(sizeof(struct lost_records) == 32, "no padding");
_Static_assert(sizeof(struct walk) == 32, "no padding");
_Static_assert(sizeof(struct recorder) == 80 + 32 + 8 * (4 + RECORDER_ARGUMENTS + COMM_WORDS) + 4 * 10, "no padding");
_Static_assert(sizeof(struct known_file) == 24, "no padding");

#endif
