/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Which processes and files are traced. These checks run first: a call that is not traced should cost a comparison. */
#ifndef __FILTER_BPF_H__
#define __FILTER_BPF_H__

#define S_IFMT 0170000
#define S_IFIFO 0010000
#define S_IFCHR 0020000
#define S_IFBLK 0060000
#define S_IFDIR 0040000
#define S_IFREG 0100000
#define S_IFSOCK 0140000

/* include/linux/sched.h */
#define PF_EXITING 0x00000004

/* Traced processes, by number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8);
} traced SEC(".maps");

/*
 * Threads of the processes in `traced`, by thread number modulo THREAD_SLOTS: ~both, so that no thread matches an unused
 * element. A process stays traced until it exits, so a thread that is found here needs no lookup of its process. Of two
 * threads with the same element, the one that was looked up last has it.
 */
__u64 traced_threads[THREAD_SLOTS];

/* Selected disks, as the kernel's dev_t (12 bits major, 20 bits minor). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8);
} disks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} cgroup SEC(".maps");

static __always_inline __u64 *element_of_thread(__u64 both)
{
	return traced_threads + (both & (THREAD_SLOTS - 1));
}

/* Looks up the process of the current thread. Out of line (compat.bpf.h), since it is rare. */
__noinline int look_up_process(__u64 both)
{
	__u32 tgid = both >> 32;

	if (!config.traced_set || !bpf_map_lookup_elem(&traced, &tgid))
		return 0;
	/* The thread may already have been forgotten at its exit, and its number be reused. */
	if (!(task_flags() & PF_EXITING))
		*element_of_thread(both) = ~both;
	return 1;
}

/* At the exit of a thread. */
static __always_inline void forget_traced_thread(struct thread_id id)
{
	if (*element_of_thread(id.both) == ~id.both)
		*element_of_thread(id.both) = 0;
}

/* Whether the process is traced; a return checks nothing else. */
static __always_inline bool process_is_traced(struct thread_id id)
{
	if (config.tgid)
		return id.tgid == config.tgid;
	if (config.traced_set)
		return *element_of_thread(id.both) == ~id.both || look_up_process(id.both);
	return id.tgid != config.self_tgid;
}

/* Whether a thread of a traced process is traced. */
static __always_inline bool thread_is_selected(void)
{
	if (config.by_comm) {
		__u64 comm[COMM_WORDS] = {};

		bpf_get_current_comm(comm, sizeof(comm));
		if (comm[0] != config.comm[0] || comm[1] != config.comm[1])
			return false;
	}
	if (config.by_cgroup && bpf_current_task_under_cgroup(&cgroup, 0) != 1)
		return false;
	return true;
}

static __always_inline bool thread_is_traced(struct thread_id id)
{
	return process_is_traced(id) && thread_is_selected();
}

/*
 * The same of the thread that submits a bio or a request. In the whole stack its system call has noted it already, so that it is
 * not noted here.
 */
static __always_inline bool submitter_is_traced(struct thread_id id)
{
	if (WHOLE_STACK && config.traced_set)
		return (*element_of_thread(id.both) == ~id.both || bpf_map_lookup_elem(&traced, &id.tgid)) &&
		       thread_is_selected();
	return thread_is_traced(id);
}

/*
 * Whether a thread may have a state, which only traced threads get. Where a set of processes is traced, finding the state takes no
 * longer than finding out.
 */
static __always_inline bool may_have_state(struct thread_id id)
{
	return config.traced_set || process_is_traced(id);
}

enum verdict {
	TRACED,
	NOT_SELECTED, /* another file or disk than the selected ones, or no file */
	OTHER_FILE_SYSTEM, /* a shared function, called by another file system, which may have a point of its own on it */
	EXCLUDED, /* plus the file's kind, i_mode >> KIND_SHIFT: a socket, a pipe, a terminal; counted */
};
#define KIND_SHIFT 12 /* of S_IFMT */

#define INDEX_BITS 2 /* of an index of enum excluded */
/*
 * INDEX_BY_KIND packs an index of enum excluded for each kind of file. It starts as all ones, EXCLUDED_OTHER for each
 * kind; AT_INDEX is subtracted to get another index.
 */
#define AT_INDEX(kind, index) ((__u32)(EXCLUDED_OTHER - (index)) << ((kind) >> KIND_SHIFT) * INDEX_BITS)
#define INDEX_BY_KIND                                                                                                  \
	(~0u - AT_INDEX(S_IFSOCK, EXCLUDED_SOCKET) - AT_INDEX(S_IFIFO, EXCLUDED_PIPE) -                                \
	 AT_INDEX(S_IFCHR, EXCLUDED_CHARACTER))

/* `verdict`: EXCLUDED plus the kind of the file. Branchless: each branch would be one more path for the verifier. */
static __always_inline void count_excluded(__u32 op, __u32 verdict)
{
	struct op_stats *s = stats_of(op);
	__u32 index = INDEX_BY_KIND >> (verdict - EXCLUDED) * INDEX_BITS;

	barrier_var(index);
	if (s)
		add(&s->set_aside[index & EXCLUDED_OTHER], 1);
}

/* The same for any verdict, out of line (compat.bpf.h), where it is rare. */
__noinline int count_if_excluded(__u32 op, __u32 verdict)
{
	if (verdict >= EXCLUDED)
		count_excluded(op, verdict);
	return 0;
}

/* Regular files, directories and block devices only, unless all kinds are traced; on the selected disks. */
static __always_inline enum verdict check_inode(struct inode *inode, bool direct)
{
	__u32 kind = READ(direct, inode, i_mode) & S_IFMT;

	if (!config.all_files && unlikely(kind != S_IFREG)) {
		/* Keeps the order of the comparisons: the compiler would test the rarest kind first. */
		barrier_var(kind);
		if (kind != S_IFDIR && kind != S_IFBLK)
			return EXCLUDED + (kind >> KIND_SHIFT);
	}
	if (config.by_file) {
		struct super_block *sb = READ(direct, inode, i_sb);

		if (READ(direct, inode, i_ino) != config.file_inode || READ(direct, sb, s_dev) != config.file_device)
			return NOT_SELECTED;
	}
	if (config.by_disk) {
		struct super_block *sb = READ(direct, inode, i_sb);
		__u32 disk = kind == S_IFBLK ? READ(direct, inode, i_rdev) : READ(direct, sb, s_dev);

		return bpf_map_lookup_elem(&disks, &disk) ? TRACED : NOT_SELECTED;
	}
	return TRACED;
}

/*
 * include/linux/fs.h. do_dentry_open() sets it for regular files and directories only, so one load replaces those of
 * the inode; stream_open() clears it, and then the inode decides.
 */
#define FMODE_ATOMIC_POS 0x8000

/* Whether all files are traced, of any kind and anywhere. */
static __always_inline bool all_files_are_traced(void)
{
	return config.all_files && !config.by_file && !config.by_disk;
}

/* `direct`: `file` is a typed pointer; else the kernel has no bpf_rdonly_cast(). */
static __always_inline enum verdict check_file_as(struct file *file, bool direct)
{
	if (all_files_are_traced())
		return TRACED;
	if (!config.by_file && !config.by_disk &&
	    (direct ? DIRECT(file, f_mode) : BPF_CORE_READ(file, f_mode)) & FMODE_ATOMIC_POS)
		return TRACED;
	return check_inode(direct ? DIRECT(file, f_inode) : BPF_CORE_READ(file, f_inode), direct);
}

/* Casts the pointer once, and not at each field. */
static __always_inline enum verdict check_file_probed(struct file *file)
{
	return cast_types.file ? check_file_as(TYPED(file), true) : check_file_as(file, false);
}

/* The file of a descriptor of the current task; NULL if the descriptor is not open. */
static __always_inline struct file *file_of_descriptor(__u32 fd)
{
	struct file *file = NULL, **all;
	struct fdtable *table;
	__u32 descriptors;

	if (config.typed_task) {
		table = bpf_get_current_task_btf()->files->fdt;
		descriptors = table->max_fds;
		all = table->fd;
	} else {
		struct task_struct *task = (void *)bpf_get_current_task();

		table = BPF_CORE_READ(task, files, fdt);
		descriptors = BPF_CORE_READ(table, max_fds);
		all = BPF_CORE_READ(table, fd);
	}
	if (fd >= descriptors)
		return NULL;
	/* An entry of the table is read as the first of the saved registers: as a number, which functions can return. */
	if (cast_types.pt_regs)
		return (struct file *)CONTEXT_WORD(TYPED((struct pt_regs *)(all + fd)), 0);
	bpf_probe_read_kernel(&file, sizeof(file), all + fd);
	return file;
}

/*
 * A call on a descriptor that is not open is traced: it fails, and that should be visible; unless files or disks are
 * selected.
 */
static __always_inline enum verdict check_file(struct file *file)
{
	if (!file)
		return config.by_file || config.by_disk ? NOT_SELECTED : TRACED;
	return check_file_probed(file);
}

/*
 * The same two, where a call looks at descriptors only if vfs does not check its file, in the whole-stack view. Out of line
 * (compat.bpf.h): more paths lead on from there.
 */
__noinline __u64 file_of_rare_descriptor(__u32 fd)
{
	return WHOLE_STACK ? (__u64)file_of_descriptor(fd) : 0;
}

__noinline __u32 check_rare_file(__u64 file)
{
	return WHOLE_STACK ? check_file((void *)file) : TRACED;
}

static __always_inline enum verdict check_descriptor(__u32 fd)
{
	return check_file(file_of_descriptor(fd));
}

#endif
