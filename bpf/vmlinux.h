/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The kernel's types, cut down by hand to the fields that are read. Offsets are not taken from here: every access is
 * relocated against the running kernel's BTF (CO-RE), so a line is a name, not a layout.
 */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

/* include/uapi/linux/bpf.h, the few values that the programs use. */
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};
enum {
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
};
enum {
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_RING_SIZE = 1,
};
enum {
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_QUEUE = 22,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_CGROUP_ARRAY = 8,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum {
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1024,
};

/* A probe's context: the registers as the architecture saves them. Not relocated: it is the program's own context. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp, pc, pstate;
};
struct pt_regs {
	struct user_pt_regs user_regs;
	__u64 orig_x0;
	__s32 syscallno;
};
/* As the BTF of Debian's 6.12 for arm64 has them. */
_Static_assert(__builtin_offsetof(struct pt_regs, orig_x0) == 272, "31 registers and three more");
_Static_assert(__builtin_offsetof(struct pt_regs, syscallno) == 280, "behind the first argument");
#else
#error "this architecture has no register layout yet"
#endif

/* include/linux/blk_types.h; the values here are anything, CO-RE puts in the kernel's. */
enum req_flag_bits {
	__REQ_FUA = 17,
	__REQ_PREFLUSH = 18,
	__REQ_RAHEAD = 19,
	__REQ_SYNC = 11,
	__REQ_META = 12,
};

/* include/linux/blkdev.h, include/linux/blk-mq.h: a request that no driver has started. */
enum mq_rq_state {
	MQ_RQ_IDLE = 0,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct file_system_type {
	const char *name;
};

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
	struct file_system_type *s_type;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

struct address_space {
	struct inode *host;
};

struct inode {
	__u16 i_mode;
	__u32 i_rdev;
	unsigned long i_ino;
	struct super_block *i_sb;
	struct address_space *i_mapping;
	struct hlist_head i_dentry;
	__u32 i_generation;
	unsigned int i_nlink;
	long long i_size;
	__u64 i_blocks;
};

struct qstr {
	__u32 hash;
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	union {
		struct hlist_node d_alias;
	} d_u;
};

/* In 7.2 the union has no name. */
struct dentry___unnamed {
	struct hlist_node d_alias;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
	int mnt_id;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file_operations;

struct file {
	unsigned int f_mode;
	unsigned int f_flags;
	long long f_pos;
	struct path f_path;
	struct inode *f_inode;
	struct address_space *f_mapping;
	const struct file_operations *f_op;
};

struct kiocb {
	struct file *ki_filp;
	void (*ki_complete)(struct kiocb *kiocb, long res);
	void *private;
	long long ki_pos;
	int ki_flags;
};

/* With the field that it had from 6.6 to 6.18. */
struct kiocb___deferred {
	long (*dio_complete)(void *data);
};

struct iomap_dio {
	long long size;
	int error;
};

struct io_rw {
	unsigned int flags;
};

/* Before 6.0, without flags of its own. */
struct io_cmd_data {
	struct file *file;
};

struct io_cqe {
	__s32 res;
};

/* A request of io_uring. It begins with its kiocb where it has one. */
struct io_kiocb {
	unsigned int flags;
	struct io_cqe cqe;
	void *async_data;
	void *ctx;
};

struct kioctx {
	unsigned long user_id;
};

/* A request of AIO. It begins with its kiocb. */
struct aio_kiocb {
	struct kioctx *ki_ctx;
};

struct iov_iter {
	unsigned long count;
};

struct io_async_rw {
	unsigned long bytes_done;
};

struct vm_area_struct {
	struct file *vm_file;
};

struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long pgoff;
	unsigned int flags;
};

/* An enum on 6.1 and later, an integer on 5.10 (include/linux/mm_types.h). */
enum fault_flag {
	FAULT_FLAG_WRITE = 1 << 0,
};

struct vm_fault___enum {
	enum fault_flag flags;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct signal_struct {
	atomic_t live;
};

/* An element of an array whose index is not constant: its size is not relocated, and has to be the kernel's. */
struct upid {
	int nr;
	void *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct thread_info {
	unsigned long flags;
	__u32 status; /* of x86 */
};

struct block_device_operations {
	void *submit_bio; /* since 5.9; of disks that have bios and no requests */
};

struct gendisk {
	int major;
	int first_minor;
	char disk_name[32];
	const struct block_device_operations *fops;
};

struct block_device {
	__u32 bd_dev;
	struct gendisk *bd_disk;
};

struct request_queue {
	struct gendisk *disk;
};

struct bvec_iter {
	__u64 bi_sector;
	unsigned int bi_size;
};

struct page {
	struct address_space *mapping;
	unsigned long compound_head;
};

/* The field's name where it may be a mask. */
struct page___info {
	unsigned long compound_info;
};

struct bio_vec {
	struct page *bv_page;
};

struct bio {
	struct bio *bi_next;
	struct bio_vec *bi_io_vec;
	struct block_device *bi_bdev;
	unsigned int bi_opf;
	__u8 bi_status;
	atomic_t __bi_remaining;
	struct bvec_iter bi_iter;
};

/* Before 5.12 (309dca309fc3 "block: store a block_device pointer in struct bio"). */
struct bio___disk {
	struct gendisk *bi_disk;
};

struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int __data_len;
	__u64 __sector;
	struct bio *bio;
	struct request *rq_next;
	struct block_device *part;
	__u64 start_time_ns;
	enum mq_rq_state state;
};

/* Before 5.17 (f3fa33acca9f "block: remove the ->rq_disk field in struct request"). */
struct request___rq_disk {
	struct gendisk *rq_disk;
};

struct device {
	__u32 devt;
};

/* Before 5.11 (0d02129e76ed "block: merge struct block_device and struct hd_struct"). */
struct hd_struct {
	struct device __dev;
};

struct request___hd_struct {
	struct hd_struct *part;
};

struct io_comp_batch {
	struct request *req_list;
};

struct rq_list {
	struct request *head;
};

/* Since 6.14 (a3396b99990d "block: add a rq_list type"). */
struct io_comp_batch___rq_list {
	struct rq_list req_list;
};

struct kernfs_node {
	__u64 id;
	const char *name;
	struct kernfs_node *parent;
};

/* Since 6.15 (633488947ef6 "kernfs: Use RCU to access kernfs_node::parent"). */
struct kernfs_node___rcu {
	struct kernfs_node *__parent;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

/* The length of the array is not relocated: it is never looked at. */
struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};

/* include/linux/cgroup_subsys.h; the values here are anything, CO-RE puts in the kernel's. */
enum cgroup_subsys_id {
	memory_cgrp_id = 1,
	io_cgrp_id = 2,
};

typedef struct {
	__u32 val;
} kuid_t;

struct cred {
	kuid_t uid;
};

struct fs_struct {
	struct path root;
	struct path pwd;
};

struct task_struct {
	struct thread_info thread_info;
	struct fs_struct *fs;
	unsigned int __state;
	unsigned int flags;
	unsigned int in_iowait : 1;
	int pid;
	int tgid;
	struct files_struct *files;
	struct signal_struct *signal;
	struct pid *thread_pid;
	struct task_struct *group_leader;
	__u64 start_boottime;
	char comm[16];
	struct css_set *cgroups;
	struct task_struct *real_parent;
	const struct cred *cred;
	void *bio_list;
};

/* Before 5.14 (2f064a59a11f "sched: Change task_struct::state"). */
struct task_struct___state {
	long state;
};

struct linux_binprm;

struct trace_event_raw_sched_process_fork {
	int child_pid;
};

struct trace_event_raw_sched_process_exec {
	int old_pid;
};

struct trace_event_raw_sys_enter {
	long id;
	unsigned long args[6];
};

struct trace_event_raw_sys_exit {
	long id;
	long ret;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

#endif
