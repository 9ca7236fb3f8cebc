/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the kernel side and the Rust side share. It is written once, here: Rust gets these types from the skeleton
 * that is generated out of the BPF object, and the asserts below pin the layout.
 */
#ifndef __INTERFACE_H__
#define __INTERFACE_H__

/*
 * A point is all that a program knows about the kernel function it is attached to, in 32 bits, so that it fits both
 * an instruction's immediate (programs loaded per function) and an attach cookie (one program on many functions).
 */
#define POINT_OP_SHIFT 0 /* 8 bits: index of the op's `struct op_stats` */
#define POINT_FRAME_SHIFT 8 /* 4 bits: index of the op's frame in `struct task_frames` */
#define POINT_SHAPE_SHIFT 12 /* 4 bits: enum shape */
#define POINT_ARGS_SHIFT 16 /* 4 bits: number of arguments, which is where fexit finds the return value */
#define POINT_RETURN_SHIFT 20 /* 3 bits: enum return_kind */
#define POINT_GUARD_SHIFT 23 /* 2 bits: enum guard */
#define POINT_FILES_SHIFT 25 /* 2 bits: enum file_args, system calls only */
#define POINT_OUTERMOST_SHIFT 27 /* 1 bit: never called inside another call of its op by the same thread */
#define POINT_SILENT_SHIFT 28 /* 1 bit: an asynchronous call's door whose layer was not asked for; for those below it */

/* The unspecialised point, as compiled. Its shape is SHAPE_NONE, so a program that was never specialised does nothing. */
#define POINT_UNSET 0x70000fa5

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
	GUARD_F_OP = 1, /* file->f_op is config.f_op */
	GUARD_MAGIC = 2, /* the super block's magic is config.magic */
};

/* Which arguments of a system call are descriptors of the files it works on. */
enum file_args {
	FILES_NONE = 0,
	FILES_0 = 1,
	FILES_0_OR_1 = 2,
	FILES_0_OR_2 = 3,
};

/* Histogram: 8 steps per power of two. 0..7 ns have a step each, the last step holds 2^40 ns (18 minutes) and more. */
#define STEP_BITS 3
#define TOP_BIT 40
#define STEPS (((TOP_BIT - STEP_BITS + 1) << STEP_BITS) + 1)
/* Powers of two of `delta / config.unit_ns`; the last holds the rest. Only counted when a unit is set. */
#define UNIT_SLOTS 32

#define MAX_FRAMES 16
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

/* Requests of the block layer that are not in the histogram, and are no loss. */
enum apart {
	APART_AT_START = 0, /* issued before the run began */
	APART_NEVER_ISSUED = 1, /* completed without having been issued: an empty flush */
	APART_BY_KERNEL = 2, /* submitted by a kernel thread, where processes are asked for */
	APART_UNOWNED = 3, /* whose submitter nothing tells, where processes are asked for */
	APART_UNTIMED = 4, /* whose queue time began nobody knows when */
	APART_KINDS = 7, /* so that the structure fills whole cache lines */
};

/* Smallest and largest time of one generation; see control.epoch. */
struct extremes {
	__u64 epoch;
	__u64 min_ns;
	__u64 max_ns;
};

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
	__u64 excluded; /* calls on files of a kind that was not asked for */
	__u64 queued; /* asynchronous: submitted (-EIOCBQUEUED), not timed */
	__u64 lost[LOST_REASONS];
	__u64 queue_ns; /* block layer: the part of total_ns from the start of the queue time to the issue */
	__u64 apart[APART_KINDS];
	struct extremes extremes[2];
	struct errno_count errnos[ERRNOS];
	__u64 steps[STEPS];
	__u64 unit_slots[UNIT_SLOTS];
};

/* One call under way: the outermost one of an op in a thread. */
struct frame {
	__u64 entered_ns; /* 0: no call under way */
	__u64 stack; /* stack address at the entry: an inner function's entry that is not deeper proves this frame dead */
	__u32 point;
	__u32 depth;
	__u64 nested; /* calls taken for nested ones since, so that they can be told lost if this frame proves dead */
	__u64 kiocb; /* key in `asynchronous` of the request that the call works on; 0: it works on none, or none that is known */
};

struct task_frames {
	struct frame frames[MAX_FRAMES];
	__u32 active; /* frames with a call under way */
	__u32 pad;
};

/* Where a request is between its start and its end. */
enum request_phase {
	REQUEST_STARTED = 1, /* not issued so far */
	REQUEST_ISSUED = 2,
	REQUEST_FLUSHING = 3, /* its data is done; it may end once more, without any, after the flush it asked for */
	REQUEST_ENDED = 4, /* its end is counted, and may be seen by another program */
};

/* One request under way. */
struct request_state {
	__u64 started_ns; /* 0: not known */
	__u64 issued_ns;
	__u64 stamp; /* the request's own start_time_ns, which tells it from another one at the same address; may be 0 */
	__u32 bytes;
	__u8 op;
	__u8 phase; /* enum request_phase */
	__u16 pad;
};

/* Who submitted a bio, as far as the filters care. */
enum owner {
	OWNER_TRACED = 1,
	OWNER_KERNEL = 2, /* a kernel thread that is not asked for */
};

/* One bio under way. */
struct bio_state {
	__u64 queued_ns;
	__u32 bytes;
	__u8 op;
	__u8 owner; /* enum owner */
	__u8 has_request; /* a request was made of it */
	__u8 pad;
};

/* How the block layer is looked at. */
struct block_config {
	__u32 disk; /* dev_t of the only one asked for; 0: all */
	__u8 op_base; /* place of its first op among all ops */
	__u8 issue_arg; /* which argument of the tracepoint is the request */
	__u8 bio_queue_arg; /* which is the bio */
	__u8 getrq_arg;
	bool is_partition;
	bool is_bio_based; /* the disk has no requests */
	bool by_owner; /* only the requests that some processes submitted */
	bool queued; /* times include the queue */
	bool starts; /* requests announce themselves: block_io_start, or a probe on the function that accounts them */
	bool bio_stamps; /* bios are remembered from their submission on */
	bool has_status; /* completions have a blk_status_t, not an errno */
	bool ends_twice; /* ends are seen by two programs */
	bool twice; /* bios are seen by function and by tracepoint, and what comes second changes nothing */
	__u8 pad[3];
};

/* Of the block layer's ops, those that the programs have to know; src/layer/blk.rs has the table. */
#define BLOCK_OP_FLUSH 2
#define BLOCK_OP_OTHER 10

/* Codes of request operations that are told apart; REQ_OP_BITS is 8, those in use are below this. */
#define BLOCK_CODES 64
#define BLOCK_REQUESTS 32768

/* An asynchronous request has a time at each of two layers. */
#define ASYNC_DOOR 0 /* vfs: from the function that took the request */
#define ASYNC_BELOW 1 /* the file system: from its function that the door called */
#define ASYNC_LAYERS 2

/* An asynchronous request as one layer sees it. */
struct async_start {
	__u64 entered_ns; /* the first call; calls that try again change nothing */
	__u64 left_ns; /* the last call returned with the request done; 0: it has not */
	__s64 value; /* what its calls returned: bytes together, or an error */
	__u32 point; /* 0: the request was not seen here */
	__u32 pad;
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

/* Set before the programs are loaded; the verifier sees constants and drops what is switched off. */
struct config {
	__u64 f_op; /* address of the guarded file system's file_operations */
	__u64 magic;
	__u64 comm[COMM_WORDS]; /* padded with zeros */
	__u32 tgid; /* the one process traced; 0: see below */
	__u32 self_tgid; /* never traced */
	__u32 unit_ns; /* 0, 1000 or 1000000 */
	__u32 rows; /* the length of a CPU's part of `stats`: ops measured, and completions of some of them */
	bool traced_set; /* trace what is in `traced` */
	bool follow; /* and add the children of what is in it */
	bool by_cgroup;
	bool by_comm;
	bool by_disk;
	bool all_files;
	bool atomic; /* programs that share a CPU's slots can preempt each other */
	bool hash_starts; /* starts are in a hash by thread: this kernel has no task storage for these programs */
};

/* Changed while the programs run. */
struct control {
	__u64 epoch; /* generation of the extremes in use */
	__u32 stopped; /* no new calls are looked at; those under way are finished */
	__u32 command_tgid; /* traced from its next exec on */
	__u64 not_followed; /* children that did not fit into `traced` */
	__u64 began_ns; /* when measuring began, by the programs' clock */
};

_Static_assert(STEPS == 305, "the Rust side prints these steps");
_Static_assert(sizeof(struct frame) == 40, "no padding");
_Static_assert(sizeof(struct op_stats) == 8 * (6 + LOST_REASONS + APART_KINDS + 6 + 2 * ERRNOS + STEPS + UNIT_SLOTS), "no padding");
_Static_assert(sizeof(struct op_stats) % 64 == 0, "no cache line is shared by two CPUs");
_Static_assert(sizeof(struct request_state) == 32, "no padding");
_Static_assert(sizeof(struct bio_state) == 16, "no padding");
_Static_assert(sizeof(struct block_config) == 20, "no padding");
_Static_assert(sizeof(struct async_call) == 32 * ASYNC_LAYERS + 24, "no padding");
_Static_assert(sizeof(struct task_frames) == 40 * MAX_FRAMES + 8, "no padding");

#endif
