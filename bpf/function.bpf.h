/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Kernel functions: vfs, the file systems, and system calls by function. The programs are templates. One that is
 * loaded per function (fentry, fexit, kprobe, kretprobe) is specialised by rewriting its POINT_UNSET, and the verifier
 * throws away the shapes it does not have; one that serves many functions (kprobe.multi, kprobe.session) reads its
 * point from the attach cookie.
 */
#ifndef __FUNCTION_BPF_H__
#define __FUNCTION_BPF_H__

/* Which file a call works on, and whether it is one of those asked for. `ARG(n)` gives the function's arguments. */
#define DEFINE_JUDGE(NAME, CONTEXT, ARG, GET, JUDGE_INODE, REGISTER)                                                       \
	static __always_inline enum verdict NAME(CONTEXT *ctx, __u32 point)                                            \
	{                                                                                                              \
		__u32 shape = point_shape(point);                                                                      \
		struct inode *inode;                                                                                   \
		struct file *file;                                                                                     \
                                                                                                                       \
		if (shape == SHAPE_FD_0)                                                                               \
			return judge_descriptor(ARG(ctx, 0));                                                          \
		if (shape == SHAPE_SYSCALL_FD_0) {                                                                     \
			struct pt_regs *saved = (void *)ARG(ctx, 0);                                                   \
                                                                                                                       \
			return judge_descriptor(SYSCALL_ARG_0(saved, REGISTER));                                       \
		}                                                                                                      \
		if (shape == SHAPE_PATH_0) {                                                                           \
			struct path *path = (void *)ARG(ctx, 0);                                                       \
			struct dentry *dentry = GET(path, dentry);                                                     \
                                                                                                                       \
			inode = GET(dentry, d_inode);                                                                  \
			return JUDGE_INODE(inode);                                                                     \
		}                                                                                                      \
		if (shape == SHAPE_KIOCB_0) {                                                                          \
			struct kiocb *kiocb = (void *)ARG(ctx, 0);                                                     \
                                                                                                                       \
			file = GET(kiocb, ki_filp);                                                                    \
		} else if (shape == SHAPE_FILE_1) {                                                                    \
			file = (void *)ARG(ctx, 1);                                                                    \
		} else if (shape == SHAPE_FAULT_0) {                                                                   \
			struct vm_fault *fault = (void *)ARG(ctx, 0);                                                  \
			struct vm_area_struct *area = GET(fault, vma);                                                 \
                                                                                                                       \
			file = GET(area, vm_file);                                                                     \
		} else {                                                                                               \
			file = (void *)ARG(ctx, 0);                                                                    \
		}                                                                                                      \
		if (point_guard(point) == GUARD_F_OP && (__u64)GET(file, f_op) != config.f_op)                         \
			return FOREIGN;                                                                                \
		inode = GET(file, f_inode);                                                                            \
		if (point_guard(point) == GUARD_MAGIC) {                                                               \
			struct super_block *sb = GET(inode, i_sb);                                                     \
                                                                                                                       \
			if (GET(sb, s_magic) != config.magic)                                                          \
				return FOREIGN;                                                                        \
		}                                                                                                      \
		return JUDGE_INODE(inode);                                                                             \
	}

#define REGISTER_ARG(ctx, n) REGISTER_ARG_##n(ctx)
#define REGISTER_ARG_0(ctx) PT_REGS_PARM1(ctx)
#define REGISTER_ARG_1(ctx) PT_REGS_PARM2(ctx)

DEFINE_JUDGE(judge_direct, void, CONTEXT_WORD, DIRECT, judge_inode_direct, DIRECT_REGISTER)
DEFINE_JUDGE(judge_probed, struct pt_regs, REGISTER_ARG, PROBED, judge_inode_probed, PROBED_REGISTER)

/* Another attempt of a request that is traced, by a thread that is not: one of io_uring's has a name of its own. */
static __always_inline bool is_traced_request(__u32 point, __u64 kiocb)
{
	return point_shape(point) == SHAPE_KIOCB_0 && (point_is_door(point) || config.by_comm || config.by_cgroup) &&
	       bpf_map_lookup_elem(&asynchronous, &kiocb);
}

#define DEFINE_ENTER(NAME, CONTEXT, ARG, GET, JUDGE, REGISTER, ENTER_SYSCALL)                                          \
	static __always_inline int NAME(CONTEXT *ctx, __u32 point, __u64 stack)                                        \
	{                                                                                                              \
		enum verdict verdict;                                                                                  \
		struct kiocb *kiocb;                                                                                   \
		struct frame *frame;                                                                                   \
                                                                                                                       \
		if (point_shape(point) == SHAPE_NONE || control.stopped)                                               \
			return 0;                                                                                      \
		if (!thread_is_traced() && !is_traced_request(point, ARG(ctx, 0)))                                     \
			return 0;                                                                                      \
		if (point_shape(point) == SHAPE_SYSCALL) {                                                             \
			struct pt_regs *regs = (void *)ARG(ctx, 0);                                                    \
                                                                                                                       \
			point = syscall_point(SYSCALL_NUMBER(regs, REGISTER));                                         \
			return point ? ENTER_SYSCALL(point, regs) : 0;                                                 \
		}                                                                                                      \
		verdict = JUDGE(ctx, point);                                                                           \
		if (verdict == EXCLUDED && !point_silent(point))                                                       \
			count_excluded(point_op(point));                                                               \
		if (verdict != TRACED)                                                                                 \
			return 0;                                                                                      \
		frame = begin(point, stack);                                                                           \
		if (!frame || point_shape(point) != SHAPE_KIOCB_0)                                                     \
			return 0;                                                                                      \
		kiocb = (void *)ARG(ctx, 0);                                                                           \
		if (point_is_door(point))                                                                              \
			frame->kiocb = enter_door(point, (__u64)kiocb, frame->entered_ns);                             \
		else if (GET(kiocb, ki_complete))                                                                      \
			frame->kiocb = enter_below(point, (__u64)kiocb, frame->entered_ns);                            \
		return 0;                                                                                              \
	}

DEFINE_ENTER(enter_direct, void, CONTEXT_WORD, DIRECT, judge_direct, DIRECT_REGISTER, enter_syscall_direct)
DEFINE_ENTER(enter_probed, struct pt_regs, REGISTER_ARG, PROBED, judge_probed, PROBED_REGISTER, enter_syscall_probed)

/* The errno that a fault's result stands for, 0 when it is none: include/linux/mm_types.h, vm_fault_to_errno(). */
static __always_inline long value_of_fault(__u32 result)
{
	const __u32 oom = 0x1, sigbus = 0x2, hwpoison = 0x10 | 0x20, sigsegv = 0x40, fallback = 0x800;

	if (result & oom)
		return -ENOMEM;
	if (result & hwpoison)
		return -EHWPOISON;
	return result & (sigbus | sigsegv | fallback) ? -EFAULT : 0;
}

static __always_inline int leave(__u32 point, long value, __u64 now)
{
	struct ended call;

	if (point_shape(point) == SHAPE_NONE || (!point_is_door(point) && !process_is_traced()))
		return 0;
	if (point_shape(point) == SHAPE_SYSCALL)
		return leave_syscall(value, now);
	if (point_return(point) == RETURN_STATUS_INT || point_is_door(point))
		value = (int)value;
	if (point_return(point) == RETURN_FAULT)
		value = value_of_fault(value);
	if (!end(point, now, &call))
		return 0;
	if (!point_is_door(call.point) && !call.kiocb)
		record(call.point, call.ns, value);
	else if (point_is_door(call.point) && call.kiocb)
		leave_door(call.point, call.kiocb, now, value);
	else if (call.kiocb)
		leave_below(call.kiocb, now, value);
	return 0;
}

SEC("fentry")
int fentry_enter(void *ctx)
{
	/* The context lies in the trampoline's frame on the task's stack, below the caller and above the function. */
	return enter_direct(ctx, SPECIALISED_POINT(), (__u64)ctx);
}

SEC("fexit")
int fexit_leave(void *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 point = SPECIALISED_POINT();
	__u64 value;

	/* The return value stands behind the arguments. */
	switch (point_args(point)) {
	case 1:
		value = CONTEXT_WORD(ctx, 1);
		break;
	case 2:
		value = CONTEXT_WORD(ctx, 2);
		break;
	case 3:
		value = CONTEXT_WORD(ctx, 3);
		break;
	case 4:
		value = CONTEXT_WORD(ctx, 4);
		break;
	case 5:
		value = CONTEXT_WORD(ctx, 5);
		break;
	case 6:
		value = CONTEXT_WORD(ctx, 6);
		break;
	default:
		return 0;
	}
	return leave(point, value, now);
}

SEC("kprobe")
int kprobe_enter(struct pt_regs *ctx)
{
	return enter_probed(ctx, SPECIALISED_POINT(), PT_REGS_SP(ctx));
}

SEC("kretprobe")
int kretprobe_leave(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns();

	return leave(SPECIALISED_POINT(), PT_REGS_RC(ctx), now);
}

SEC("kprobe.multi")
int multi_enter(struct pt_regs *ctx)
{
	return enter_probed(ctx, bpf_get_attach_cookie(ctx), PT_REGS_SP(ctx));
}

SEC("kretprobe.multi")
int multi_leave(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns();

	return leave(bpf_get_attach_cookie(ctx), PT_REGS_RC(ctx), now);
}

/* It got the context as an argument in 7.0. */
extern bool bpf_session_is_return(void) __ksym __weak;
extern bool bpf_session_is_return___context(void *ctx) __ksym __weak;

static __always_inline bool session_is_return(void *ctx)
{
	if (bpf_ksym_exists(bpf_session_is_return___context))
		return bpf_session_is_return___context(ctx);
	return bpf_session_is_return();
}

SEC("kprobe.session")
int session(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 point = bpf_get_attach_cookie(ctx);

	if (session_is_return(ctx))
		return leave(point, PT_REGS_RC(ctx), now);
	enter_probed(ctx, point, PT_REGS_SP(ctx));
	return 0;
}

#endif
