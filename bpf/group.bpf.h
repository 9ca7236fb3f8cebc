/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Calls and requests by process, file, disk or cgroup (`--by`). Each is counted a second time, in a cell of its group,
 * which all CPUs share. So everything is added atomically, and the minimum and maximum of a cell may miss a call that
 * another CPU counts at the same time; readers correct them from the steps.
 *
 * A group is looked up when the call begins, or when it reaches vfs, as its file is known then; the call keeps the
 * group's number. A thread keeps the key of its last group: mostly the next call is of the same one. Numbers of
 * groups and cells come from queues that user space has filled: kernels before 5.12 have no atomic fetch-and-add. What
 * finds no room is counted in cells that always exist, so that the groups add up to all calls. All of it but the keys
 * is mapped into user space, for the reason given at `stats`.
 *
 * Most runs have no groups, so this is out of line (compat.bpf.h).
 */
#ifndef __GROUP_BPF_H__
#define __GROUP_BPF_H__

struct group_key {
	__u64 number;
	__u64 more;
};

/* Preallocated, as are all of these maps: requests are counted in interrupts. The loader sets the sizes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct group_key);
	__type(value, __u32);
} group_numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} free_groups SEC(".maps");

/* Indexed by group number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct group);
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct cell_key);
	__type(value, __u32);
} cell_numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} free_cells SEC(".maps");

/*
 * Indexed by cell number: the counters of one op of one group. Cells are allocated on first use, as most groups use few
 * ops. The first ones, in the order of the ops, count calls that found no room.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct op_stats);
} group_cells SEC(".maps");

/*
 * The key of each cell. Separate from group_cells, so that a reader that looks for used cells does not touch all of
 * them.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cell_key);
} cell_keys SEC(".maps");

/* Whole-stack view: by group number, then by family. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct family_stats);
} group_families SEC(".maps");

/* Whole-stack view: by group number, then by origin and direction. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct origin_stats);
} group_origins SEC(".maps");

#define ENOENT 2

/*
 * Set when a queue is empty: later calls skip it. A number only returns to a queue after a lost race, which does not
 * matter.
 */
volatile __u8 groups_are_full;
volatile __u8 cells_are_full;

/* The first thread of the current process, which stands for the process. */
static __always_inline struct task_struct *current_leader(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return BPF_CORE_READ(task, group_leader);
}

static __always_inline struct kernfs_node *current_cgroup(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct css_set *set = BPF_CORE_READ(task, cgroups);
	struct cgroup_subsys_state *state = NULL;
	struct cgroup *cgroup;
	__u32 subsystem = 0;

	if (config.cgroups_of == CGROUPS_UNIFIED)
		return BPF_CORE_READ(set, dfl_cgrp, kn);
	if (config.cgroups_of == CGROUPS_IO && bpf_core_enum_value_exists(enum cgroup_subsys_id, io_cgrp_id))
		subsystem = bpf_core_enum_value(enum cgroup_subsys_id, io_cgrp_id);
	if (config.cgroups_of == CGROUPS_MEMORY && bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id))
		subsystem = bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
	bpf_probe_read_kernel(&state, sizeof(state),
			      (void *)set + bpf_core_field_offset(struct css_set, subsys) + subsystem * sizeof(state));
	cgroup = BPF_CORE_READ(state, cgroup);
	return BPF_CORE_READ(cgroup, kn);
}

/* Of the current process or cgroup, as are groups. */
static __always_inline struct group_key key_of_current(void)
{
	struct group_key key = {};

	if (config.group_by == BY_PROCESS) {
		key.number = bpf_get_current_pid_tgid() >> 32;
		key.more = config.typed_task ? bpf_get_current_task_btf()->group_leader->start_boottime :
					       BPF_CORE_READ(current_leader(), start_boottime);
	} else if (config.typed_task && config.cgroups_of == CGROUPS_UNIFIED) {
		key.number = bpf_get_current_task_btf()->cgroups->dfl_cgrp->kn->id;
	} else {
		key.number = BPF_CORE_READ(current_cgroup(), id);
	}
	return key;
}

/*
 * Adds the next name of a new file or cgroup. Returns whether there may be more. Out of line (compat.bpf.h): the verifier
 * checks it once, and not in each round of the loop that calls it.
 */
__noinline int name_group(__u32 number)
{
	bool is_file = config.group_by == BY_FILE;
	struct group *group;
	const void *name;

	if (!is_file && config.group_by != BY_CGROUP)
		return 0;
	group = bpf_map_lookup_elem(&groups, &number);
	if (!group)
		return 0;
	name = is_file ? step_up(&group->walk) : step_up_cgroup(&group->walk);
	if (name && !add_name(group->names, NAMES, &group->names_length, name))
		return 0;
	if (!group->walk.kind)
		return 1;
	group->path = group->walk.kind;
	return 0;
}

/*
 * Fills in a new group. `dentry` and `mount` are used with BY_FILE, where `mount` may be NULL; `disk` with BY_DISK: a
 * disk that is a path to another one (NVMe multipath) is listed nowhere by its number.
 */
static __always_inline void describe_group(struct group *group, __u32 number, const struct group_key *key,
					   struct dentry *dentry, struct vfsmount *mount, struct gendisk *disk)
{
	bool has_names = false;

	group->number = key->number;
	group->more = key->more;
	group->path = PATH_NONE;
	group->names_length = 0;
	if (config.group_by == BY_PROCESS) {
		struct task_struct *leader = current_leader();

		BPF_CORE_READ_INTO(&group->comm, leader, comm);
	}
	if (config.group_by == BY_FILE && dentry) {
		begin_walk(&group->walk, dentry, mount);
		has_names = true;
	}
	if (config.group_by == BY_DISK && disk) {
		int length = bpf_core_read_str(group->names, sizeof(disk->disk_name), &disk->disk_name);

		group->names_length = length > 0 ? length : 0;
	}
	if (config.group_by == BY_CGROUP) {
		group->walk.dentry = (__u64)current_cgroup();
		group->walk.kind = PATH_NONE;
		has_names = true;
	}
	if (has_names) {
		group->path = PATH_CUT;
		for (int i = 0; i < NAMES_MOST && name_group(number); i++)
			;
	}
	order_for_all(&group->is_known);
	group->is_known = 1;
}

/* dentry, mount, disk: addresses, or 0; a global function takes numbers. */
__noinline __u32 find_or_make_group(__u64 identity, __u64 more, __u64 dentry, __u64 mount, __u64 disk)
{
	const struct group_key key = { .number = identity, .more = more };
	__u32 *found, number;
	struct group *group;
	int failed;

	if (!config.group_by)
		return GROUP_NO_ROOM;
	found = bpf_map_lookup_elem(&group_numbers, &key);
	if (found)
		return *found;
	if (groups_are_full)
		return GROUP_NO_ROOM;
	failed = bpf_map_pop_elem(&free_groups, &number);
	if (failed) {
		groups_are_full = failed == -ENOENT;
		return GROUP_NO_ROOM;
	}
	__sync_fetch_and_add(&control.groups_taken, 1);
	group = bpf_map_lookup_elem(&groups, &number);
	if (!group)
		return GROUP_NO_ROOM;
	describe_group(group, number, &key, (void *)dentry, (void *)mount, (void *)disk);
	if (!bpf_map_update_elem(&group_numbers, &key, &number, BPF_NOEXIST))
		return number;
	/* Another CPU was faster. */
	group->is_known = 0;
	bpf_map_push_elem(&free_groups, &number, BPF_ANY);
	found = bpf_map_lookup_elem(&group_numbers, &key);
	return found ? *found : GROUP_NO_ROOM;
}

/* The group of the current task; GROUP_NONE if groups are neither processes nor cgroups. */
__noinline __u32 group_of_current(void)
{
	struct group_key key;

	if (config.group_by != BY_PROCESS && config.group_by != BY_CGROUP)
		return GROUP_NONE;
	key = key_of_current();
	return find_or_make_group(key.number, key.more, 0, 0, 0);
}

/* `disk`: address of the disk, 0 if not known. */
static __always_inline __u32 group_of_disk(__u32 device, __u64 disk)
{
	return device ? find_or_make_group(device, 0, 0, 0, as_number(disk)) : GROUP_NONE;
}

/* Whether the group of a call is found by its file. */
static __always_inline bool groups_are_of_files(void)
{
	return config.group_by == BY_FILE || config.group_by == BY_DISK;
}

/*
 * The key of the group of a file. A block device file belongs to its disk, any other file to the disk that its file
 * system is on. `typed`: the pointers have types; `dentry`: NULL if its name is not known.
 */
static __always_inline struct group_key key_of_inode(struct inode *inode, struct dentry *dentry, bool typed)
{
	struct super_block *sb = READ(typed, inode, i_sb);
	struct group_key key = { .number = READ(typed, sb, s_dev) };

	if (config.group_by == BY_DISK) {
		if ((READ(typed, inode, i_mode) & S_IFMT) == S_IFBLK)
			key.number = READ(typed, inode, i_rdev);
		return key;
	}
	/* An inode number may be reused after the file is deleted; the hash of the name distinguishes the two. */
	key.more = key.number << 32;
	if (dentry)
		key.more |= typed ? DIRECT(dentry, d_name.hash) : BPF_CORE_READ(dentry, d_name.hash);
	key.number = READ(typed, inode, i_ino);
	return key;
}

/* Addresses, or 0. */
__noinline __u32 group_of_inode(__u64 address, __u64 dentry, __u64 mount)
{
	struct group_key key;

	if (!groups_are_of_files())
		return group_of_current();
	if (!address)
		return GROUP_NONE;
	key = key_of_inode((void *)address, (void *)dentry, false);
	if (config.group_by == BY_DISK)
		return group_of_disk(key.number, 0);
	return find_or_make_group(key.number, key.more, dentry, mount, 0);
}

__noinline __u32 group_of_file(__u64 address)
{
	struct file *file = (void *)address;

	if (!groups_are_of_files())
		return group_of_current();
	return group_of_inode((__u64)BPF_CORE_READ(file, f_inode), (__u64)BPF_CORE_READ(file, f_path.dentry),
			      (__u64)BPF_CORE_READ(file, f_path.mnt));
}

/*
 * The group with this key, which the thread looks up from now on. `address`: of the open file, if groups are files. Out of
 * line (compat.bpf.h): mostly it is the last one.
 */
__noinline __u32 find_group_of_thread(__u32 thread, __u64 number, __u64 more, __u64 address)
{
	struct thread_state *state = config.group_by ? find_thread(thread) : NULL;
	struct file *file = (void *)address;
	__u64 dentry = 0, mount = 0;
	__u32 group;

	if (!state)
		return GROUP_NO_ROOM;
	if (config.group_by == BY_DISK && !number)
		return GROUP_NONE;
	if (config.group_by == BY_FILE) {
		dentry = (__u64)BPF_CORE_READ(file, f_path.dentry);
		mount = (__u64)BPF_CORE_READ(file, f_path.mnt);
	}
	group = find_or_make_group(number, more, dentry, mount, 0);
	state->last_group.group = 0;
	if (group >= GROUP_FIRST) {
		state->last_group.number = number;
		state->last_group.more = more;
		state->last_group.group = group;
	}
	return group;
}

static __always_inline __u32 group_of_thread(const struct thread_state *state, __u32 thread, struct group_key key,
					     struct file *file)
{
	const struct last_group *last = &state->last_group;

	if (likely(last->group && last->number == key.number && last->more == key.more))
		return last->group;
	return find_group_of_thread(thread, key.number, key.more, file ? as_number((__u64)file) : 0);
}

/* The group of a call on an open file. `typed`: `file` is a typed pointer. */
static __always_inline __u32 group_of_open_file(const struct thread_state *state, __u32 thread, struct file *file,
						bool typed)
{
	struct inode *inode = READ(typed, file, f_inode);
	struct dentry *dentry = READ(typed, file, f_path.dentry);

	return group_of_thread(state, thread, key_of_inode(inode, dentry, typed), file);
}

/*
 * The group of a request, by the file whose page its first bio carries. Direct I/O carries memory of a process, and
 * metadata of a file system belongs to no file.
 */
__noinline __u32 group_of_page(__u64 address)
{
	const struct bio *bio = (void *)address;
	struct inode *inode = inode_of_bio(bio);
	struct dentry *dentry = NULL;
	struct hlist_node *alias;
	__u16 kind;

	if (!inode)
		return GROUP_NONE;
	kind = BPF_CORE_READ(inode, i_mode) & S_IFMT;
	if (kind != S_IFREG && kind != S_IFDIR)
		return GROUP_NONE;
	alias = BPF_CORE_READ(inode, i_dentry.first);
	if (alias && bpf_core_field_exists(dentry->d_u.d_alias))
		dentry = (void *)alias - bpf_core_field_offset(struct dentry, d_u.d_alias);
	else if (alias && bpf_core_field_exists(((struct dentry___unnamed *)0)->d_alias))
		dentry = (void *)alias - bpf_core_field_offset(struct dentry___unnamed, d_alias);
	return group_of_inode((__u64)inode, (__u64)dentry, 0);
}

/* The group of a call of the current thread; `file`: the one that it works on, or NULL. `typed`: it is a typed pointer. */
static __always_inline __u32 group_of_call(const struct thread_state *state, __u32 thread, struct file *file, bool typed)
{
	if (!config.group_by)
		return GROUP_NO_ROOM;
	if (!groups_are_of_files())
		return group_of_thread(state, thread, key_of_current(), NULL);
	if (!file)
		return GROUP_NONE;
	if (typed || !cast_types.file)
		return group_of_open_file(state, thread, file, typed);
	return group_of_open_file(state, thread, TYPED(file), true);
}

/*
 * The group of a call of a function without a file as argument; `address`: the argument that leads to its file, as
 * point_shape() says.
 */
__noinline __u32 group_of_argument(__u32 point, __u64 address)
{
	void *argument = (void *)address;
	struct path *path = argument;

	if (!groups_are_of_files())
		return group_of_current();
	switch (point_shape(point)) {
	case SHAPE_DIR_0:
		return group_of_inode(address, 0, 0);
	case SHAPE_PATH_0:
		return group_of_inode((__u64)BPF_CORE_READ(path, dentry, d_inode), (__u64)BPF_CORE_READ(path, dentry),
				      (__u64)BPF_CORE_READ(path, mnt));
	case SHAPE_FD_0:
		argument = file_of_descriptor(address);
		break;
	case SHAPE_SYSCALL_FD_0:
		argument = file_of_descriptor(SYSCALL_ARG_0(false, (struct pt_regs *)argument));
		break;
	case SHAPE_SYSCALL_32_FD_0:
		argument = file_of_descriptor(COMPAT_SYSCALL_ARG_0(false, (struct pt_regs *)argument));
		break;
	case SHAPE_FAULT_0:
		argument = BPF_CORE_READ((struct vm_fault *)argument, vma, vm_file);
		break;
	}
	return group_of_file(as_number((__u64)argument));
}

/* The number of a new cell, or of the cell of calls without room. */
__noinline __u32 make_cell(__u32 group, __u32 counter)
{
	const struct cell_key key = { .group = group, .counter = counter };
	struct cell_key *known;
	__u32 number, *found;
	int failed;

	if (!config.group_by || WHOLE_STACK || cells_are_full)
		return counter;
	failed = bpf_map_pop_elem(&free_cells, &number);
	if (failed) {
		cells_are_full = failed == -ENOENT;
		return counter;
	}
	known = bpf_map_lookup_elem(&cell_keys, &number);
	if (known)
		*known = key;
	if (!bpf_map_update_elem(&cell_numbers, &key, &number, BPF_NOEXIST))
		return number;
	/* Another CPU was faster. */
	if (known)
		known->group = GROUP_NO_ROOM;
	bpf_map_push_elem(&free_cells, &number, BPF_ANY);
	found = bpf_map_lookup_elem(&cell_numbers, &key);
	return found ? *found : counter;
}

static __always_inline struct op_stats *cell_of(__u32 group, __u32 counter)
{
	struct cell_key key = { .group = group, .counter = counter };
	__u32 *found, number = counter;

	if (group != GROUP_NO_ROOM) {
		found = bpf_map_lookup_elem(&cell_numbers, &key);
		number = found ? *found : make_cell(group, counter);
	}
	return bpf_map_lookup_elem(&group_cells, &number);
}

/*
 * Counts a finished call or request, after record_in(). `counter`: its op, and COUNTER_MOVES_BYTES if it moves bytes.
 */
__noinline int count_in_group(__u32 group, __u32 counter, __u64 ns, long value, __u64 queue_ns)
{
	struct op_stats *cell;

	/* Groups of the whole-stack view have families, and no ops. */
	if (!config.group_by || WHOLE_STACK || value == -EIOCBQUEUED)
		return 0;
	cell = cell_of(group, counter & ~COUNTER_MOVES_BYTES);
	if (!cell)
		return 0;
	count_call(cell, counter & COUNTER_MOVES_BYTES, ns, step_of(ns), value, true);
	if (queue_ns)
		__sync_fetch_and_add(&cell->queue_ns, queue_ns);
	return 0;
}

static __always_inline void record_in_group(__u32 group, __u32 counter, bool moves_bytes, __u64 ns, long value,
					    __u64 queue_ns)
{
	if (config.group_by && !WHOLE_STACK)
		count_in_group(group, moves_bytes ? counter | COUNTER_MOVES_BYTES : counter, ns, value, queue_ns);
}

static __always_inline struct family_stats *group_family_of(__u32 group, __u32 family)
{
	__u32 element = group * FAMILIES + family;

	return bpf_map_lookup_elem(&group_families, &element);
}

static __always_inline struct origin_stats *group_origin_of(__u32 group, __u32 origin)
{
	__u32 element = group * ORIGINS * DIRECTIONS + origin;

	return bpf_map_lookup_elem(&group_origins, &element);
}

/* A process is reported with the last name it had, which is that of its first thread; `name`: the new one of `task`. */
static __always_inline void rename_group(struct task_struct *task, const void *name)
{
	struct group_key key = { .number = task->tgid, .more = task->start_boottime };
	struct group *group;
	__u32 *number;

	if (task->pid != task->tgid)
		return;
	number = bpf_map_lookup_elem(&group_numbers, &key);
	group = number ? bpf_map_lookup_elem(&groups, number) : NULL;
	if (group)
		bpf_probe_read_kernel_str(group->comm, sizeof(group->comm), name);
}

#endif
