/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* What differs between kernels and architectures, each with the reason. */
#ifndef __COMPAT_BPF_H__
#define __COMPAT_BPF_H__

/*
 * Arguments and return value of a tracing program are 64-bit words behind its context. They are loaded one by one in
 * assembly: the compiler would turn a choice between two of them into a computed offset, and the verifier refuses
 * every access to a context at an offset that is not written in the instruction.
 */
#define CONTEXT_WORD(ctx, n)                                                                                           \
	({                                                                                                             \
		__u64 __word;                                                                                          \
		asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(__word) : "r"(ctx), "i"((n) * 8));                        \
		__word;                                                                                                \
	})

/* The point that this copy of the program is specialised to; the loader rewrites the immediate. */
#define SPECIALISED_POINT()                                                                                            \
	({                                                                                                             \
		__u32 __point;                                                                                         \
		asm volatile("%0 = %1" : "=r"(__point) : "i"(POINT_UNSET));                                            \
		__point;                                                                                               \
	})

/*
 * Tracing programs (tp_btf, fentry) have typed pointers and load through them. Other programs have untyped addresses:
 * they read through bpf_probe_read_kernel(), or since 6.2 (a35b9af4ec2c) give the address a type by bpf_rdonly_cast(),
 * which costs nothing, and load directly. Either way an unreadable field is 0.
 */
#define DIRECT(pointer, field) ((pointer)->field)
static void *(*const rdonly_cast)(const void *pointer, __u32 type) = (void *)KFUNC_RDONLY_CAST;

#define TYPE_OF(pointer)                                                                                               \
	_Generic((pointer),                                                                                            \
		struct file *: cast_types.file,                                                                        \
		struct inode *: cast_types.inode,                                                                      \
		struct kiocb *: cast_types.kiocb,                                                                      \
		struct pt_regs *: cast_types.pt_regs,                                                                  \
		struct super_block *: cast_types.super_block,                                                          \
		struct request *: cast_types.request,                                                                  \
		struct request_queue *: cast_types.request_queue,                                                      \
		struct bio *: cast_types.bio,                                                                          \
		struct block_device *: cast_types.block_device,                                                        \
		struct gendisk *: cast_types.gendisk,                                                                  \
		struct page *: cast_types.page,                                                                        \
		default: 0)
#define TYPED(pointer) ((typeof(pointer))rdonly_cast(pointer, TYPE_OF(pointer)))
#define PROBED(pointer, field) (TYPE_OF(pointer) ? TYPED(pointer)->field : BPF_CORE_READ(pointer, field))
/* `typed` has to be a constant in an inlined function, so that only one of the two is compiled. */
#define READ(typed, pointer, field) ((typed) ? DIRECT(pointer, field) : PROBED(pointer, field))

/*
 * The lower half of a pointer. The verifier does not allow arithmetic on a typed pointer; a 32-bit move makes it a
 * number.
 */
static __always_inline __u32 lower_half(__u64 pointer)
{
	__u32 low;

	asm volatile("%0 = %1" : "=w"(low) : "w"((__u32)pointer));
	return low;
}

/*
 * Whether a word may be an address of the kernel, which as a number is negative. Loads of older kernels through a typed
 * pointer do not fail at other addresses: they may read user memory.
 */
static __always_inline bool may_be_kernels(const void *address)
{
	return (__s64)address < 0;
}

static __always_inline __u64 read_word(const void *address)
{
	__u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), address);
	return word;
}

/* Saved registers have the layout of the architecture, so reading them needs no relocation. */
#define READ_REGISTER(direct, saved, field)                                                                            \
	((direct) ? SAVED_WORD(saved, field) : TYPE_OF(saved) ? SAVED_WORD(TYPED(saved), field) : read_word(&(saved)->field))
/* In assembly for the reason given at CONTEXT_WORD. */
#define SAVED_WORD(saved, field) CONTEXT_WORD(saved, __builtin_offsetof(struct pt_regs, field) / 8)

/* A thread, and its process. */
struct thread_id {
	__u32 thread, tgid;
	__u64 both; /* the process in the upper half, as from bpf_get_current_pid_tgid() */
};

/*
 * Those of the current task. Since 6.2 (3f00c5239344) the pointer to it is trusted, and two loads through it are cheaper
 * than the helper. cast_types.file stands for 6.2 or newer.
 */
static __always_inline struct thread_id current_id(void)
{
	struct task_struct *task;
	struct thread_id id;

	if (cast_types.file) {
		task = bpf_get_current_task_btf();
		id.thread = task->pid;
		id.tgid = task->tgid;
		id.both = (__u64)id.tgid << 32 | id.thread;
	} else {
		id.both = bpf_get_current_pid_tgid();
		id.thread = id.both;
		id.tgid = id.both >> 32;
	}
	return id;
}

/* task_struct.flags of the current thread: PF_... of include/linux/sched.h. */
static __always_inline __u32 task_flags(void)
{
	if (config.typed_task)
		return bpf_get_current_task_btf()->flags;
	return BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), flags);
}

/* thread_info.status: a system call of the 32-bit table (arch/x86/include/asm/thread_info.h). */
#define TS_COMPAT 2
/* thread_info.flags: a 32-bit program (arch/arm64/include/asm/thread_info.h). */
#define TIF_32BIT 22

/* Whether the current system call is one of the 32-bit table, which has other numbers and other argument registers. */
#if defined(__TARGET_ARCH_x86)
#define IN_32BIT_CALL(task, GET) (GET(task, thread_info.status) & TS_COMPAT)
#else
#define IN_32BIT_CALL(task, GET) (GET(task, thread_info.flags) & 1ul << TIF_32BIT)
#endif

static __always_inline bool in_32bit_call(void)
{
	/* Loads through a typed pointer, where there is one. */
	if (config.typed_task)
		return IN_32BIT_CALL(bpf_get_current_task_btf(), DIRECT);
	return IN_32BIT_CALL((struct task_struct *)bpf_get_current_task(), PROBED);
}

#if defined(__TARGET_ARCH_x86)
#define SYSCALL_NUMBER(direct, saved) READ_REGISTER(direct, saved, orig_ax)
#define SYSCALL_ARG_0(direct, saved) READ_REGISTER(direct, saved, di)
#define SYSCALL_ARG_1(direct, saved) READ_REGISTER(direct, saved, si)
#define SYSCALL_ARG_2(direct, saved) READ_REGISTER(direct, saved, dx)
#define SYSCALL_ARG_3(direct, saved) READ_REGISTER(direct, saved, r10)
#define SYSCALL_ARG_4(direct, saved) READ_REGISTER(direct, saved, r8)
#define SYSCALL_ARG_5(direct, saved) READ_REGISTER(direct, saved, r9)
#define COMPAT_SYSCALL_ARG_0(direct, saved) READ_REGISTER(direct, saved, bx)
#define COMPAT_SYSCALL_ARG_1(direct, saved) READ_REGISTER(direct, saved, cx)
#define COMPAT_SYSCALL_ARG_2(direct, saved) READ_REGISTER(direct, saved, dx)
#define COMPAT_SYSCALL_ARG_3(direct, saved) READ_REGISTER(direct, saved, si)
#define COMPAT_SYSCALL_ARG_4(direct, saved) READ_REGISTER(direct, saved, di)
#define COMPAT_SYSCALL_ARG_5(direct, saved) READ_REGISTER(direct, saved, bp)
#else
/* 32 bits: through a typed pointer, the verifier allows no load of more than the field. */
#define SAVED_NUMBER(saved)                                                                                            \
	({                                                                                                             \
		__u64 __number;                                                                                        \
		asm volatile("%0 = *(u32 *)(%1 + %2)"                                                                  \
			     : "=r"(__number)                                                                          \
			     : "r"(saved), "i"(__builtin_offsetof(struct pt_regs, syscallno)));                        \
		__number;                                                                                              \
	})
#define SYSCALL_NUMBER(direct, saved)                                                                                  \
	((direct)	  ? SAVED_NUMBER(saved) :                                                                      \
	 TYPE_OF(saved) ? SAVED_NUMBER(TYPED(saved)) :                                                                 \
			  (__u32)read_word(&(saved)->syscallno))
#define SYSCALL_ARG_0(direct, saved) READ_REGISTER(direct, saved, orig_x0)
#define SYSCALL_ARG_1(direct, saved) READ_REGISTER(direct, saved, user_regs.regs[1])
#define SYSCALL_ARG_2(direct, saved) READ_REGISTER(direct, saved, user_regs.regs[2])
#define SYSCALL_ARG_3(direct, saved) READ_REGISTER(direct, saved, user_regs.regs[3])
#define SYSCALL_ARG_4(direct, saved) READ_REGISTER(direct, saved, user_regs.regs[4])
#define SYSCALL_ARG_5(direct, saved) READ_REGISTER(direct, saved, user_regs.regs[5])
#define COMPAT_SYSCALL_ARG_0 SYSCALL_ARG_0
#define COMPAT_SYSCALL_ARG_1 SYSCALL_ARG_1
#define COMPAT_SYSCALL_ARG_2 SYSCALL_ARG_2
#define COMPAT_SYSCALL_ARG_3 SYSCALL_ARG_3
#define COMPAT_SYSCALL_ARG_4 SYSCALL_ARG_4
#define COMPAT_SYSCALL_ARG_5 SYSCALL_ARG_5
#endif

/* include/uapi/asm-generic/fcntl.h on x86; arm64 has a value of its own for O_DIRECT. */
#define O_APPEND 00002000
#if defined(__TARGET_ARCH_x86)
#define O_DIRECT 00040000
#else
#define O_DIRECT 00200000
#endif

/*
 * Code that few runs need is in __noinline functions, which are never static. The verifier checks a global function
 * once, by itself. It checks a static one at each call, and some kernels (since be2ef8161572 in 6.2, and its backport
 * to 5.10; until fde2a3882bd0 in 6.4) then take a write to the callee's r6 to r9 for one to the caller's: they treat
 * different states as equal, and prune branches of the caller that are taken (docs/dev/kernels.md).
 *
 * To the verifier a global function takes numbers only; an address that was read from the arguments of a traced
 * function is a pointer, hence as_number().
 */
static __always_inline __u64 as_number(__u64 address)
{
	__u64 number;

	bpf_probe_read_kernel(&number, sizeof(number), &address);
	return number;
}

/* The same without a helper, by a word of a map's value or record, which nothing else looks at meanwhile, and which it keeps. */
static __always_inline __u64 as_number_by(__u64 *word, __u64 address)
{
	__u64 kept = *word, number;

	*word = address;
	barrier();
	number = *word;
	*word = kept;
	return number;
}

/*
 * Memory accesses before it precede those after it for other CPUs, too; barrier() orders them for the compiler alone.
 * x86 keeps the order of stores, and that of loads. On arm64 an atomic instruction that returns the old value is a full
 * barrier (Documentation/atomic_t.txt); kernels without such instructions get none (src/probe/atomics.rs). `word`: any
 * 8 bytes that this program may change.
 */
#if defined(__TARGET_ARCH_arm64)
#define order_for_all(word) asm volatile("" ::"r"(__sync_fetch_and_add(word, 0)) : "memory")
#else
#define order_for_all(word) barrier()
#endif

/*
 * Since 7.0 programs on tracepoints run with preemption enabled, and while a task is preempted inside a program the
 * kernel skips that program for all other tasks of the CPU. These kfuncs exist since 6.10 (fc7566ad0a82).
 */
static void (*const bpf_preempt_disable)(void) = (void *)KFUNC_PREEMPT_DISABLE;
static void (*const bpf_preempt_enable)(void) = (void *)KFUNC_PREEMPT_ENABLE;

static __always_inline void disable_preemption(void)
{
	if (kfuncs.preempt_disable)
		bpf_preempt_disable();
}

static __always_inline void enable_preemption(void)
{
	if (kfuncs.preempt_disable)
		bpf_preempt_enable();
}

#endif
