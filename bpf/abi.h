/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the kernel side and the Rust side share. It is written once, here: Rust gets these types from the skeleton
 * that is generated out of the BPF object, and the asserts below pin the layout.
 */
#ifndef __ABI_H__
#define __ABI_H__

/*
 * A point is all that a program knows about the kernel function it is attached to, in 32 bits, so that it fits an
 * instruction's immediate.
 */
#define POINT_OP_SHIFT 0 /* 8 bits: index of the op's `struct op_stats` */
#define POINT_FRAME_SHIFT 8 /* 4 bits: index of the op's frame in `struct task_frames` */
#define POINT_SHAPE_SHIFT 12 /* 4 bits: enum shape */
#define POINT_ARGS_SHIFT 16 /* 3 bits: number of arguments, which is where fexit finds the return value; 7 for more than 6 */
#define POINT_RETURN_SHIFT 19 /* 3 bits: enum return_kind */
#define POINT_SHARED_SHIFT 22 /* 1 bit: others' calls come by, too; the op's guard narrows it */
#define POINT_FILES_SHIFT 23 /* 3 bits: enum file_args, system calls only */
#define POINT_OUTERMOST_SHIFT 26 /* 1 bit: never called inside another call of its op by the same thread */
#define POINT_SUPPRESSED_SHIFT 27 /* 1 bit: an asynchronous call's door whose layer was not asked for; for those below it */
#define POINT_CHECKED_AT_RETURN_SHIFT 28 /* 1 bit, system calls only: its file is judged by the function of vfs that it comes by */

/* What is the same for all points of an op, in `op_traits`. */
#define OP_GUARD 3 /* 2 bits: enum guard, of those that are shared */
#define OP_FILES_AND_DIRS 4 /* its files are regular ones and directories, and no others */
#define OP_ABOVE 8 /* its file system calls others in the same thread */

/* The unspecialised point, as compiled. Its shape is SHAPE_NONE, so a program that was never specialised does nothing. */
#define POINT_UNSET 0x70000fa5
/* What a program at the end of asynchronous requests is told: its function is given the result; or it is io_rw_fail, and is not. */
#define POINT_COMPLETED 1
#define POINT_FAILED 2

/*
 * Functions of the kernel's that programs call, as numbers of helpers that no kernel has: the loader, which has read the kernel's BTF
 * anyhow, writes the function's number there into the call. libbpf would look for each of them in all of it, and in all modules'.
 */
#define KFUNC_RDONLY_CAST 0x10000 /* bpf_rdonly_cast(), 6.2 */
#define KFUNC_PREEMPT_DISABLE 0x10001 /* bpf_preempt_disable(), 6.10 */
#define KFUNC_PREEMPT_ENABLE 0x10002
#define KFUNC_SESSION_IS_RETURN 0x10003 /* bpf_session_is_return(), 6.10 */
#define KFUNC_SESSION_IS_RETURN_CTX 0x10004 /* the same since 7.0, which takes the context */
#define KFUNC_SESSION_COOKIE_CTX 0x10005 /* bpf_session_cookie(), likewise */
#define KFUNC_SESSION_COOKIE 0x10006 /* before 7.0 */

/* Where a function's arguments name the file. */
enum shape {
	SHAPE_NONE = 0,
	SHAPE_FILE_0 = 1, /* struct file * first */
	SHAPE_FILE_1 = 2, /* struct file * second */
	SHAPE_KIOCB_0 = 3, /* struct kiocb * first */
	SHAPE_PATH_0 = 4, /* struct path * first: an open, whose file has no inode yet */
	SHAPE_FD_0 = 5, /* a file descriptor first */
	SHAPE_SYSCALL = 6, /* the system call's registers; its number says which op it is */
	SHAPE_SYSCALL_FD_0 = 7, /* the system call's registers, a file descriptor first */
	SHAPE_FAULT_0 = 8, /* struct vm_fault * first, whose area maps the file */
	SHAPE_SYSCALL_32 = 9, /* as SHAPE_SYSCALL, by the numbers of 32-bit programs */
	SHAPE_ROW = 10, /* of the whole stack's view alone: the op is the row (enum row) that the function's time is in */
	SHAPE_ROW_BIO_0 = 12, /* the same, struct bio * first, which may be held back and submitted by somebody else */
	SHAPE_DIR_0 = 13, /* struct inode * first, of the directory: an open, whose file may have to be made */
	SHAPE_SYSCALL_32_FD_0 = 14, /* as SHAPE_SYSCALL_FD_0, of a call that a 32-bit program makes */
};

/* What a function's return value means when it is not negative. */
enum return_kind {
	RETURN_STATUS_INT = 0, /* int, nothing to count */
	RETURN_STATUS = 1, /* long, nothing to count */
	RETURN_BYTES = 2, /* long, bytes moved */
	RETURN_FD = 3, /* long, a new file descriptor: the file's kind is known only now */
	RETURN_ISSUED = 4, /* int, whether io_uring's request is done; async.bpf.h */
	RETURN_SUBMITTED = 5, /* int, whether an AIO request was refused; async.bpf.h */
	RETURN_FAULT = 6, /* vm_fault_t: flags, some of them errors */
};

/* An attach point that many file systems share is narrowed to one of them. */
enum guard {
	GUARD_NONE = 0,
	GUARD_F_OP = 1, /* file->f_op is the op's in guard_values */
	GUARD_MAGIC = 2, /* the super block's magic is */
};

/* Which arguments of a system call are descriptors of the files it works on. */
enum file_args {
	FILES_NONE = 0,
	FILES_0 = 1,
	FILES_0_OR_1 = 2,
	FILES_0_OR_2 = 3,
	FILES_0_WITHOUT_PATH = 4, /* the first one, where the path behind it is empty or missing (AT_EMPTY_PATH) */
};

/* Histogram: 8 steps per power of two. 0..7 ns have a step each, the last step holds 2^40 ns (18 minutes) and more. */
#define STEP_BITS 3
#define TOP_BIT 40
#define STEPS (((TOP_BIT - STEP_BITS + 1) << STEP_BITS) + 1)
/* Powers of two of `delta / config.unit_ns`; the last holds the rest. Only counted when a unit is set. */
#define UNIT_SLOTS 32

#define MAX_FRAMES 16
/* Threads that have a place in an array by their number, which is found without a call; a power of two. */
#define THREAD_SLOTS 1024
#define SYSCALL_FRAME 0 /* the others are given out by the loader */
#define MAX_SYSCALLS 512
#define MAX_OPS 256
#define COMM_WORDS 2 /* a thread name has 16 bytes */

/* Why a sample is not in the histogram although its entry was seen. */
enum lost_reason {
	LOST_RETURN = 0, /* the return never came, or was not seen */
	LOST_STORAGE = 1, /* the kernel gave no task storage */
	LOST_TABLE_FULL = 2, /* the table of starts was full */
	LOST_CLOCK = 3, /* the return was earlier than the entry */
	LOST_REASONS = 4,
};

/* Requests of the block layer that are not in the histogram, and are no loss; places in `apart` of an op. */
enum set_aside {
	ASIDE_AT_START = 0, /* issued before the run began */
	ASIDE_NEVER_ISSUED = 1, /* completed without having been issued: an empty flush, or what the driver refused */
	ASIDE_BY_KERNEL = 2, /* submitted by a kernel thread, where processes are asked for */
	ASIDE_UNOWNED = 3, /* whose submitter nothing tells, where processes are asked for */
	ASIDE_UNTIMED = 4, /* whose queue time began nobody knows when */
	ASIDE_KINDS = 5,
};

/* Calls on files of a kind that was not asked for: the same places, of an op of calls. */
enum excluded {
	EXCLUDED_SOCKET = 0,
	EXCLUDED_PIPE = 1, /* FIFOs that have a name, too */
	EXCLUDED_CHARACTER = 2, /* devices: terminals, /dev/null */
	EXCLUDED_OTHER = 3, /* eventfd, epoll and all else that lives on no file system */
};

/* Smallest and largest time of two generations; see control.epoch. */
#define GENERATIONS 2
struct extremes {
	__u64 epoch[GENERATIONS];
	__u64 min_ns[GENERATIONS];
	__u64 max_ns[GENERATIONS];
};
/* From one generation to the next: the lowest bit of an epoch says where its numbers are, in bytes. */
#define EPOCH_STEP 8

/* Different errnos of one op on one CPU that are told apart. */
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
	 * Of calls whose start is in a cookie (session.bpf.h): entries less returns. Of all CPUs together these are the calls under
	 * way, and those whose return was skipped. Entries, and returns of usual calls, may be in `struct binned` instead.
	 */
	__u64 under_way;
	__u64 unmatched_ends; /* returns of calls whose entry was skipped, whosever they were; ends of requests whose issue was not seen */
	__u64 set_aside[ASIDE_KINDS]; /* by enum set_aside those of requests, by enum excluded those of calls */
	__u64 pad; /* to a whole number of cache lines */
	struct errno_count errnos[ERRNOS];
	/* In this order: they are counted the other way round, so that who reads in between finds no part without its whole. */
	__u64 steps[STEPS];
	struct extremes extremes;
	__u64 unit_slots[UNIT_SLOTS];
};

/* Bins of 16 ns, as wide as a step of the histogram from 128 ns on, or a part of one; and of as many bytes, so that a time is a place. */
#define BIN_WIDTH 16
#define BINS 512
#define BINS_FROM 128
#define BINS_BELOW (BINS * BIN_WIDTH)
/* Ops that have some: reads and writes of vfs. */
#define BINNED_OPS 2

struct bin {
	__u64 total_ns;
	__u64 calls;
};

/* Usual calls of one op on one CPU (bins.bpf.h); what is not here is in `struct op_stats`. Counters only grow. */
struct binned {
	__u64 begun; /* calls, be they usual or not when they end */
	/* Times that are usual: from the first to below the second, in an epoch. */
	__u64 from_ns;
	__u64 below_ns;
	__u64 epoch;
	__u64 bytes; /* before the calls, as in `struct op_stats` */
	__u64 pad[3];
	struct bin bins[BINS];
};

/* One call under way: the outermost one of an op in a thread. */
struct frame {
	__u64 entered_ns; /* 0: no call under way */
	__u64 stack; /* stack address at the entry: the entry of an inner function that is above it proves this frame dead */
	__u32 point;
	__u32 depth;
	__u64 nested; /* calls taken for nested ones since, so that they can be told lost if this frame proves dead */
	__u64 kiocb; /* key in `asynchronous` of the request that the call works on; 0: it works on none, or none that is known */
	__u32 group; /* of `--by` */
	__u32 function; /* address of the function that was entered, its lower half; 0: its entry has a stack address of its own */
};

struct task_frames {
	struct frame frames[MAX_FRAMES];
	__u64 request; /* key in `asynchronous` of the request with which the thread last entered an asynchronous entry point */
	__u32 active; /* calls under way, of the frames and of the breakdown, in an entry of a table */
	__u32 thread; /* whose place it is, if it is one */
};

/* Where a request is between its start and its end. */
enum request_phase {
	REQUEST_STARTED = 1, /* not issued so far */
	REQUEST_ISSUED = 2,
	REQUEST_FLUSHING = 3, /* its data is done; it may end once more, without any, after the flush it asked for */
	REQUEST_ENDED = 4, /* its end is counted, and may be seen by another program */
};

/* Requests of those that were not asked for are in no op's counters. */
enum foreign {
	FOREIGN_NOT = 0,
	FOREIGN_KERNEL = 1, /* a kernel thread's, which the whole stack's view has among what nobody waited for */
	FOREIGN_PROCESS = 2, /* somebody else's */
};

/* One request under way. */
struct request_state {
	__u64 started_ns; /* 0: not known */
	__u64 issued_ns;
	__u64 rq_start_ns; /* the request's own start_time_ns, which tells it from another one at the same address; may be 0 */
	__u32 bytes;
	__u8 op;
	__u8 phase; /* enum request_phase */
	__u8 origin; /* enum origin, for the whole stack's view */
	__u8 foreign; /* enum foreign */
	__u32 thread; /* that submitted it; 0: not known, or not asked */
	__u32 group; /* of `--by` */
	__u32 neighbour; /* a foreign one's place in `neighbours` */
	__u8 flushes; /* it asked for flushes, and so may end twice: with its data, and after them */
	__u8 pad[3];
	__u64 submitted_ns; /* its first bio, where that is known; else 0 */
};

struct request_slot {
	__u64 address; /* 0: it is free */
	struct request_state state;
};

/* Who submitted a bio, as far as the filters care. */
enum owner {
	OWNER_TRACED = 1,
	OWNER_KERNEL = 2, /* a kernel thread that is not asked for */
	OWNER_NEIGHBOUR = 3, /* another process; neighbour.bpf.h */
};

/* One bio under way. */
struct bio_state {
	__u64 queued_ns;
	__u32 bytes;
	__u8 op;
	__u8 owner; /* enum owner */
	__u8 has_request; /* a request was made of it */
	__u8 is_stacked; /* on a disk that has no requests (dm, md) */
	__u32 thread; /* that submitted it; 0: not asked */
	__u8 origin; /* enum origin */
	__u8 held; /* a throttle has it, and may be the one that submits it */
	__u16 neighbour; /* of an owner that is not traced: its place in `neighbours` */
	__u32 group; /* of `--by` */
	__u32 pad;
};

struct bio_slot {
	__u64 address; /* 0: it is free */
	struct bio_state state;
};

/* How the block layer is looked at. */
struct block_config {
	__u32 disk; /* dev_t of the only one asked for; 0: all */
	__u8 op_base; /* place of its first op among all ops */
	__u8 issue_arg; /* which argument of the tracepoint is the request */
	__u8 bio_queue_arg; /* which is the bio */
	__u8 getrq_arg;
	__u8 is_partition;
	__u8 is_bio_based; /* the disk has no requests */
	__u8 by_owner; /* only the requests that some processes submitted */
	__u8 queued; /* times include the queue */
	__u8 has_starts; /* requests announce themselves: block_io_start, or a probe on the function that accounts them */
	__u8 bio_stamps; /* bios are remembered from their submission on */
	__u8 has_status; /* completions have a blk_status_t, not an errno */
	__u8 ends_have_second; /* ends are seen by two programs */
	__u8 by_both; /* bios are seen by function and by tracepoint, and what comes second changes nothing */
	__u8 neighbours; /* others' requests are looked at, too; neighbour.bpf.h */
	__u8 pad[2];
};

/* Processes and kernel threads whose requests are told apart from those that were asked for. */
#define NEIGHBOURS 1024
/* The first place is that of all for whom there is no other, and of requests that nobody is known of. */
#define NEIGHBOUR_REST 0
/* Not a neighbour: the requests that were asked for. */
#define NEIGHBOUR_OWN 1
#define NEIGHBOUR_FIRST 2
/* Ends of requests that are kept of each disk. */
#define ENDS_KEPT 128
#define ENDS_DISKS 64

/* What a disk did for one of them while requests that were asked for waited. Counters only grow. */
struct neighbour {
	__u64 ns;
	__u64 requests;
	__u64 bytes;
	__u64 comm[COMM_WORDS];
	__u32 tgid;
	__u32 is_kernel;
	__u64 pad[2];
};

/* The end of a request. A disk worked for it from the end before, or from its issue if that was later. */
struct served {
	__u64 from_ns;
	__u64 ended_ns;
	__u64 number; /* of this end, from 1; written last */
	__u32 bytes;
	__u32 neighbour; /* NEIGHBOUR_OWN: of those that were asked for */
};

struct disk_ends {
	__u64 ends; /* so far */
	__u64 last_ns;
	__u64 accounted_ns; /* up to here all waits are told */
	__u64 zero; /* always, which the verifier does not know */
	__u64 queue; /* its own key */
	struct served kept[ENDS_KEPT];
};

/* What becomes of the time in which requests that were asked for waited. Counters only grow. */
struct waits {
	__u64 ns; /* of each disk, moments in which one or more did */
	__u64 untold_ns; /* before the ends that are kept */
	__u64 disks_full; /* ends on disks for which there was no room */
	__u64 slots_taken; /* taken in `neighbours` */
};

/* Of the block layer's ops, those that the programs have to know; src/catalog/blk.rs has the table. */
#define BLOCK_OP_WRITE 1 /* the one before is read */
#define BLOCK_OP_FLUSH 2
#define BLOCK_OP_OTHER 10

/* Codes of request operations that are told apart; REQ_OP_BITS is 8, those in use are below this. */
#define BLOCK_CODES 64
#define BLOCK_REQUESTS 32768
/* Requests and bios that have a place of their own, which is found without a call. */
#define BLOCK_SLOTS_BITS 12
#define BLOCK_SLOTS (1 << BLOCK_SLOTS_BITS)

/* An asynchronous request has a time at each of these layers. */
#define ASYNC_ENTRY 0 /* vfs: from the function that took the request */
#define ASYNC_BELOW 1 /* the file system: from its function that the door called */
#define ASYNC_ABOVE 2 /* the file system between the two, where there is one */
#define ASYNC_LAYERS 3

/* An asynchronous request as one layer sees it. */
struct async_start {
	__u64 entered_ns; /* the first call; calls that try again change nothing */
	__u64 left_ns; /* the last call returned with the request done; 0: it has not */
	__s64 value; /* what its calls returned: bytes together, or an error */
	__u32 point; /* 0: the request was not seen here */
	__u32 group; /* of `--by` */
};

/* What is expected of a request next. */
enum async_state {
	ASYNC_RUNNING = 0, /* the door's return */
	ASYNC_QUEUED = 1, /* its completion */
	ASYNC_PARKED = 2, /* another attempt: the last one would have had to wait (-EAGAIN) */
};

/* One asynchronous request under way. */
struct async_call {
	struct async_start starts[ASYNC_LAYERS];
	__u64 parked_ns; /* when the last attempt ended */
	__u32 tgid; /* of the process that it belongs to */
	__u32 thread; /* that is or was last inside the door */
	__u32 state; /* enum async_state */
	__u8 is_aio; /* libaio's, which has one attempt only */
	__u8 nowait; /* the caller wants -EAGAIN, not another attempt */
	__u8 direct; /* queued at the device: no other attempt comes before its completion */
	__u8 pad;
};

/*
 * The whole stack's view. Every moment of a system call is in one of these rows: the first ones are where the thread ran,
 * the others what it waited for.
 */
enum row {
	ROW_SYSCALL = 0,
	ROW_VFS = 1,
	ROW_FS = 2, /* to 8: file systems that this run measures, in their order */
	/* What it waits for, from here on. */
	ROW_QUEUE = 9, /* an own request, from its bio's submission to its issue */
	ROW_DEVICE = 10, /* the same from its issue to the end of the sleep */
	ROW_OTHERS = 11, /* I/O, and no own request ended in the sleep */
	ROW_JOURNAL = 12,
	ROW_LOCK = 13,
	ROW_OTHER = 14, /* slept, for something else */
	ROW_RUN_QUEUE = 15, /* ready to run */
	ROWS = 16, /* so that the structure fills whole cache lines */
};

#define FAMILIES 6 /* src/catalog/family.rs has the table */
#define FAMILY_READ 0
#define FAMILY_WRITE 1
#define FAMILY_ASYNCHRONOUS 5

/* How a read came by its data. */
enum read_class {
	READ_CACHED = 0, /* no own bio, and no sleep for I/O */
	READ_WAITED_OWN = 1, /* an own request ended in a sleep of it */
	READ_WAITED_OTHERS = 2, /* it slept for I/O, and no own request ended in it */
	READ_AHEAD = 3, /* it submitted bios and did not sleep for I/O */
	READ_DIRECT = 4, /* past the page cache */
	READ_CLASSES = 5,
};

/* What did not go in pairs. The rows add up all the same; a stretch may be in the row of its neighbour. */
enum unbalanced {
	UNBALANCED_ENTRY = 0, /* an entry whose return was not seen */
	UNBALANCED_RETURN = 1, /* a return whose entry was not seen */
	UNBALANCED_DEPTH = 2, /* a function deeper than there is room for */
	UNBALANCED_SLEEP = 3, /* a sleep whose end was not seen, or for which there was no room */
	UNBALANCED_KINDS = 4,
};

/* What became of a slow call; slow.bpf.h. */
enum slow_kind {
	SLOW_REPORTED = 0,
	SLOW_LIMITED = 1, /* more in a second than are told */
	SLOW_NO_ROOM = 2, /* the reader was late */
	SLOW_KINDS = 3,
};

/* One family of system calls on one CPU. Counters only grow. */
struct family_stats {
	__u64 bytes;
	__u64 errors;
	__u64 unbalanced[UNBALANCED_KINDS];
	__u64 rows[ROWS]; /* nanoseconds */
	__u64 reached[ROWS]; /* calls that had any function of the row's */
	__u64 class_calls[READ_CLASSES];
	__u64 class_bytes[READ_CLASSES];
	/* As in struct op_stats. */
	__u64 steps[STEPS];
	struct extremes extremes;
	__u64 slow[SLOW_KINDS]; /* calls that took as long as asked for */
	__u64 pad[6];
};

/* Whose requests nobody waited for. */
enum origin {
	ORIGIN_NONE = 0, /* not known: flushes, which the kernel sends for whoever asked */
	ORIGIN_OWN = 1, /* of a thread that is traced; those that end while it sleeps for them are in its calls' rows */
	ORIGIN_ASYNCHRONOUS = 2, /* the same, by io_uring or AIO */
	ORIGIN_WORKER = 3, /* kworkers */
	ORIGIN_JOURNAL = 4, /* jbd2 */
	ORIGIN_KERNEL = 5, /* other kernel threads */
	ORIGIN_WRITEBACK = 6, /* kworkers, of files that a traced thread has written */
	ORIGIN_READAHEAD = 7, /* of a thread that is traced, read ahead of it */
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

/* Of each origin: reads, writes. */
#define DIRECTIONS 2

/* Functions of a call under way that are told apart, the system call itself among them. */
#define OPEN_FUNCTIONS 16

struct open_function {
	__u16 key; /* its op; above those, the row of one that has none */
	__u8 row;
	__u8 pad;
};

/* Why a thread is off the CPU. */
enum off {
	OFF_NOT = 0,
	OFF_READY = 1, /* it could run */
	OFF_ASLEEP = 2,
};

/* Slow calls that are told in a second, by all CPUs together. */
#define SLOW_PER_SECOND 1000

/* Arguments of a call that are kept. */
#define CALL_ARGUMENTS 4

/* What a system call's arguments say of its place in the file. Arguments are counted from 1; 0: none says it. */
struct call_shape {
	__u8 path;
	__u8 offset; /* or CALL_POSITION */
	__u8 size;
	__u8 does; /* CALL_OPENS, CALL_CLOSES */
};

/* It returns a new descriptor of the file. */
#define CALL_OPENS 1
/* The descriptor is none any more when it returns. */
#define CALL_CLOSES 2

/* The offset is the position of the open file, which the call moves. */
#define CALL_POSITION 255

struct slow_rate {
	__u64 since_ns;
	__u64 reported;
};

/* What the names of a file are. */
enum path_kind {
	PATH_NONE = 0, /* there are none */
	PATH_WHOLE = 1, /* from the file up to the root, each with a 0 at its end */
	PATH_CUT = 2, /* the same, and there are more */
	PATH_ALONE = 3, /* of a file that is in no directory: a pipe, a socket */
	PATH_GIVEN = 4, /* one string: what the call was given */
	PATH_INSIDE = 5, /* up to the root of its file system, wherever that is mounted; or of a control group */
};

/* Room for names, of which each may be as long as the longest, and how many are looked up at most. */
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
	__u64 offset;
	__u64 size; /* that was asked for */
	__u64 inode;
	__u64 comm[COMM_WORDS];
	__u32 tgid;
	__u32 thread;
	__u32 device; /* s_dev of its file system */
	__u32 names_length;
	__u16 mode; /* i_mode */
	__u8 op;
	__u8 has; /* SLOW_HAS_... */
	__u8 path; /* enum path_kind */
	__u8 pad[3];
	__u8 names[NAMES_ROOM + NAME_ROOM];
};

/* What calls and requests are told apart by; group.bpf.h. */
enum group_by {
	BY_NOTHING = 0,
	BY_PROCESS = 1,
	BY_FILE = 2,
	BY_DISK = 3,
	BY_CGROUP = 4,
};

/* The hierarchy whose control groups count. */
enum cgroups_of {
	CGROUPS_UNIFIED = 0, /* version 2 */
	CGROUPS_IO = 1, /* version 1, blkio */
	CGROUPS_MEMORY = 2,
};

/* What is known of the group that a call is counted in. Groups of their own have the numbers from GROUP_FIRST on. */
#define GROUP_NO_ROOM 0 /* there is no room for more groups */
#define GROUP_NONE 1 /* it is of no file, or no submitter */
#define GROUP_FIRST 2

/* One process, file, disk or control group. */
struct group {
	__u64 number; /* process, inode, device, or control group; with `more`, unlike any other's */
	__u64 more; /* of a file its device and what its name comes to, of a process when it began, in nanoseconds since boot */
	__u64 is_known; /* all else is written */
	__u64 comm[COMM_WORDS]; /* of a process */
	__u32 names_length;
	__u8 path; /* enum path_kind */
	__u8 pad[11];
	__u8 names[NAMES_ROOM + NAME_ROOM];
};

/* Whose counters a cell has: one op's of one group. */
struct cell_key {
	__u32 group;
	__u32 row;
};

/* The breakdown of one thread: which row its time goes to, and since when. */
struct breakdown {
	__u64 entered_ns;
	__u64 last_ns; /* up to here all time is in a row */
	__u64 rows[ROWS]; /* of the call under way */
	struct open_function open[OPEN_FUNCTIONS];
	/* Where slow calls are told: what the one under way was given. */
	__u64 arguments[CALL_ARGUMENTS];
	__u64 file; /* address of the open file; 0: it has none, or another thread's */
	__u64 dentry; /* of a call that closes it; else 0 */
	__u64 mount;
	__u64 inode;
	__s64 value; /* what it has returned */
	__u32 fd; /* also of a call that is not judged so far */
	__u32 depth; /* functions open; 0: no call is under way */
	__u32 untracked; /* functions for which there was no room */
	__u32 reached; /* a bit per row */
	__u8 family;
	__u8 off; /* enum off */
	__u8 sleeps_in; /* the row of the sleep, if no own request ends in it */
	__u8 getting_request; /* a bio is submitted, and has no request yet */
	__u8 has_slept; /* the thread is in `sleepers` */
	__u8 own_bios;
	__u8 waited; /* 1: for an own request, 2: for others' */
	__u8 direct;
	__u32 group; /* of `--by` */
	__u8 has_waited; /* rows of what a thread waits for may have something */
	__u8 is_unchecked; /* nobody knows so far whether the call's file was asked for */
	__u8 pad[2];
};

/* All that is kept of a thread. */
struct thread_state {
	struct task_frames calls;
	struct breakdown breakdown; /* where the whole stack is looked at */
};

/* A thread that is off the CPU inside a call, as others see it. */
struct sleeper {
	__u64 slept_ns; /* 0: it is not asleep */
	__u64 woken_ns; /* 0: it was not woken so far */
	__u64 mark_ns; /* the sleep, or the last own completion in it */
	__u64 queue_ns; /* the part of the sleep that its own requests were queued */
	__u64 completed; /* own completions in the sleep that began at this time; 0: none */
	__u64 released; /* the bio that it waited for a request for got one from somebody else: a throttle */
};

/* Set before the programs are loaded; the verifier sees constants and drops what is switched off. */
struct config {
	__u64 comm[COMM_WORDS]; /* padded with zeros */
	__u64 slower_ns; /* calls of this length and more are told one by one */
	__u64 file_inode; /* looked at when by_file */
	__u64 cpu_mask; /* which bits of a CPU's number say which part of `stats_by_cpu` is its */
	__u32 file_device;
	__u32 tgid; /* the one process traced; 0: see below */
	__u32 self_tgid; /* never traced */
	__u32 unit_ns; /* 0, 1000 or 1000000 */
	__u32 rows; /* the length of a CPU's part of `stats`: ops measured, and completions of some of them */
	__u32 cpu_bytes; /* the same in bytes, where the counters are in `stats_by_cpu`; 0: they are in `stats` */
	__u8 traced_set; /* trace what is in `traced` */
	__u8 follow; /* and add the children of what is in it */
	__u8 by_cgroup;
	__u8 by_comm;
	__u8 by_disk;
	__u8 all_files;
	__u8 atomic; /* programs that share a CPU's slots can preempt each other */
	__u8 hash_starts; /* starts are in a hash by thread: these programs get no task storage, or not always */
	__u8 slots; /* threads get places by their number, as far as they are free */
	__u8 typed_task; /* there is a typed pointer to the current task (5.11) */
	__u8 whole_stack; /* every moment of a call is given to a row; breakdown.bpf.h */
	__u8 reports_slow; /* and slow calls are told; slow.bpf.h */
	__u8 by_file;
	__u8 cookies; /* some starts are in cookies; session.bpf.h */
	__u8 group_by; /* enum group_by */
	__u8 cgroups_of; /* enum cgroups_of */
	__u16 stack_rows; /* a bit for each row of those before ROW_QUEUE that functions run in */
	__u16 counted_frames; /* a bit for each frame that functions' calls are counted by */
	__u8 rows_only; /* of the functions inside a system call nothing is told but the rows' time, if no request can come by them */
	__u8 one_epoch; /* there is one report, at the end: extremes have one generation, the first */
	__u8 bins; /* usual calls whose start is in a cookie have bins; bins.bpf.h */
	__u8 pad[9];
};

/* Numbers of types in the kernel's BTF, for bpf_rdonly_cast(); 0 where there is none. */
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
};

/* Which functions of the kernel's there are, where programs do without or have another. */
struct kfuncs {
	__u8 preempt_disable;
	__u8 session_is_return_ctx;
	__u8 session_cookie_ctx;
};

/* Of calls no new ones are looked at, and those under way are finished; of requests nothing is counted any more. */
#define STOP_CALLS 1
#define STOP_REQUESTS 2
/* A layer is being detached: what does not go in pairs meanwhile is no fault. */
#define STOP_PAIRS 4

#define NO_PROCESS 0xffffffff /* no process has this number */

/* Changed while the programs run. */
struct control {
	__u64 epoch; /* generation of the extremes in use, a multiple of EPOCH_STEP */
	__u32 stopped; /* STOP_CALLS, STOP_REQUESTS, STOP_PAIRS */
	__u32 active_tgid; /* config.tgid while calls are looked at, else NO_PROCESS: one comparison for two */
	__u32 command_tgid; /* traced from its next exec on */
	__u64 not_followed; /* children that did not fit into `traced` */
	__u64 recovered; /* requests of which the second program on block_getrq saw that the first one was skipped, and did its work */
	__u64 began_ns; /* when measuring began, by the programs' clock */
};

_Static_assert(STEPS == 305, "the Rust side prints these steps");
_Static_assert(BINS_FROM >> STEP_BITS == BIN_WIDTH, "no step begins inside a bin");
_Static_assert(sizeof(struct bin) == BIN_WIDTH, "a time is a place");
_Static_assert((BINS & (BINS - 1)) == 0, "the bits of a bin's place are masked");
_Static_assert(sizeof(struct binned) % 64 == 0, "no cache line is shared by two CPUs");
_Static_assert(sizeof(struct frame) == 48, "no padding");
_Static_assert(sizeof(struct op_stats) == 8 * (8 + LOST_REASONS + ASIDE_KINDS + 6 + 2 * ERRNOS + STEPS + UNIT_SLOTS), "no padding");
_Static_assert(sizeof(struct op_stats) % 64 == 0, "no cache line is shared by two CPUs");
_Static_assert(sizeof(struct request_state) == 56, "no padding");
_Static_assert(sizeof(struct bio_state) == 32, "no padding");
_Static_assert(sizeof(struct request_slot) == 64, "a cache line");
_Static_assert(sizeof(struct family_stats) % 64 == 0, "no cache line is shared by two CPUs");
_Static_assert(sizeof(struct origin_stats) == 64, "no cache line is shared by two CPUs");
_Static_assert(sizeof(struct breakdown) == 8 * (2 + ROWS) + 4 * OPEN_FUNCTIONS + 8 * (CALL_ARGUMENTS + 5) + 16 + 16, "no padding");
_Static_assert(sizeof(struct slow_call) == 8 * (6 + ROWS + COMM_WORDS) + 16 + 8 + NAMES_ROOM + NAME_ROOM, "no padding");
_Static_assert(sizeof(struct block_config) == 20, "no padding");
_Static_assert(sizeof(struct neighbour) == 64, "no padding");
_Static_assert(sizeof(struct served) == 32, "no padding");
_Static_assert(sizeof(struct async_call) == 32 * ASYNC_LAYERS + 24, "no padding");
_Static_assert(sizeof(struct task_frames) == 48 * MAX_FRAMES + 16, "no padding");
_Static_assert(sizeof(struct group) == 8 * (3 + COMM_WORDS) + 16 + NAMES_ROOM + NAME_ROOM, "no padding");
_Static_assert(sizeof(struct config) == 96, "no padding");

#endif
