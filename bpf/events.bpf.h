/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Records: one for each call, request and sleep, written at its end to a ring of its CPU, and definitions of the
 * threads and open files that they name, written at first use. A run that does not record has none of this.
 *
 * A program never wakes the reader, which drains the rings at regular times, unless a ring fills up. A record for which
 * there is no room is counted as lost, by CPU and kind, with the first and the last moment; the counters of the run are
 * exact nevertheless.
 */
#ifndef __EVENTS_BPF_H__
#define __EVENTS_BPF_H__

/* Per CPU, by kind; mapped into user space for the reason given at `stats`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lost_records);
} record_losses SEC(".maps");

/* Open files that were defined, by address. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, __u64);
	__type(value, struct known_file);
} known_files SEC(".maps");

/* The recorders of threads that have their state in a slot; see threads_by_slot. */
struct recorder recorders_by_slot[THREAD_SLOTS] SEC(".bss.recorders");

/* Those of all other threads, by number. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 10240);
	__type(key, __u32);
	__type(value, struct recorder);
} recorders SEC(".maps");

/* Numbers given to open files so far. */
volatile __u32 files_defined;

/*
 * How often a file was opened again where the last open file was of the same one: what threads know of their last file
 * does not distinguish these two.
 */
volatile __u32 files_reopened;

/* Ring buffer maps have no value type; these put the types of the records into the skeleton. */
struct call_record_arguments *call_record_arguments_type;
struct call_record_few *call_record_few_type;
struct call_record_all *call_record_all_type;
struct call_record_wide *call_record_wide_type;
struct request_record *request_record_type;
struct sleep_record *sleep_record_type;
struct fault_record *fault_record_type;
struct async_record *async_record_type;
struct file_record_few *file_record_few_type;
struct file_record_all *file_record_all_type;
struct folder_record_all *folder_record_all_type;
struct thread_record *thread_record_type;
struct path_record_few *path_record_few_type;
struct path_record_all *path_record_all_type;
struct record_slot *record_slot_type;

/* Counts a record for which there was no room. */
__noinline int lose_record(__u32 kind)
{
	__u32 element = bpf_get_smp_processor_id() * RECORD_KINDS + (kind & (RECORD_KINDS - 1));
	struct lost_records *lost;
	__u64 now;

	if (!config.records)
		return 0;
	lost = bpf_map_lookup_elem(&record_losses, &element);
	if (!lost)
		return 0;
	now = bpf_ktime_get_ns();
	if (lost->drain != control.drain || !lost->first_ns) {
		lost->first_ns = now;
		lost->drain = control.drain;
	}
	lost->last_ns = now;
	__sync_fetch_and_add(&lost->records, 1);
	return 0;
}

static __always_inline struct recorder *recorder_slot_of(__u32 thread)
{
	struct recorder *first;

	if (!config.slots)
		return NULL;
	/* The address is loaded only here: a program must not refer to a map that was not created. */
	first = recorders_by_slot;
	barrier_var(first);
	/* Spares callers a check. */
	__builtin_assume(first != NULL);
	return first + (thread & (THREAD_SLOTS - 1));
}

/* The recorder of a thread; NULL if it has none. */
static __always_inline struct recorder *find_recorder(__u32 thread)
{
	struct recorder *slot = recorder_slot_of(thread);
	__u32 key;

	if (slot && slot->call.thread == thread)
		return slot;
	/* A variable of its own, so that only this path stores it to the stack. */
	key = thread;
	return bpf_map_lookup_elem(&recorders, &key);
}

/* To insert: larger than what is left of the stack where it is needed. */
static const struct recorder no_recorder;

/* Makes the recorder of a thread that has its state in a slot if `in_slot`. */
__noinline int make_recorder(__u32 thread, __u32 in_slot)
{
	struct recorder *recorder;

	if (!config.records)
		return 0;
	recorder = in_slot ? recorder_slot_of(thread) : NULL;
	if (recorder) {
		*recorder = (struct recorder){};
	} else {
		bpf_map_update_elem(&recorders, &thread, &no_recorder, BPF_ANY);
		recorder = bpf_map_lookup_elem(&recorders, &thread);
	}
	if (!recorder)
		return 0;
	recorder->call.kind = RECORD_CALL;
	recorder->call.tgid = bpf_get_current_pid_tgid() >> 32;
	/* Last: from now on it is one. */
	recorder->call.thread = thread;
	return 0;
}

/* CPUs whose numbers differ, where each CPU counts its own. */
#define FILES_CPUS 1024

/* The number of an open file that has none; 0: there is none left. */
static __always_inline __u32 next_file_number(void)
{
	__u32 cpu = bpf_get_smp_processor_id(), element = cpu * RECORD_KINDS + RECORD_FILES_DEFINED;
	struct lost_records *defined;

	if (config.answering_atomics)
		return __sync_fetch_and_add(&files_defined, 1) + 1;
	defined = bpf_map_lookup_elem(&record_losses, &element);
	return defined ? ++defined->records * FILES_CPUS + (cpu & (FILES_CPUS - 1)) : 0;
}
static __always_inline void fill_file(struct file_record *record, __u32 number, struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	struct super_block *sb = BPF_CORE_READ(inode, i_sb);
	struct vfsmount *vfsmount = BPF_CORE_READ(file, f_path.mnt);
	struct mount *mount = (void *)vfsmount - bpf_core_field_offset(struct mount, mnt);

	record->kind = RECORD_FILE;
	record->mode = BPF_CORE_READ(inode, i_mode);
	record->number = number;
	record->at_ns = bpf_ktime_get_ns();
	record->inode = BPF_CORE_READ(inode, i_ino);
	record->size = BPF_CORE_READ(inode, i_size);
	record->blocks = BPF_CORE_READ(inode, i_blocks);
	record->position = BPF_CORE_READ(file, f_pos);
	record->device = BPF_CORE_READ(sb, s_dev);
	record->generation = BPF_CORE_READ(inode, i_generation);
	record->links = BPF_CORE_READ(inode, i_nlink);
	record->flags = BPF_CORE_READ(file, f_flags);
	record->mount = BPF_CORE_READ(mount, mnt_id);
	if (bpf_probe_read_kernel_str(record->file_system, sizeof(record->file_system), BPF_CORE_READ(sb, s_type, name)) <=
	    0)
		record->file_system[0] = 0;
}

/*
 * A step of the walk in the thread's recorder. Out of line (compat.bpf.h): the verifier checks it once, and not in each
 * round of each loop that calls it.
 */
__noinline __u64 step_of_walk(__u32 thread)
{
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;

	return recorder ? (__u64)step_up(&recorder->walk) : 0;
}

/* Begins the walk in the thread's recorder. Out of line for the same reason. `dentry`, `mount`: addresses. */
__noinline int begin_walk_of(__u32 thread, __u64 dentry, __u64 mount)
{
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;

	if (recorder)
		begin_walk(&recorder->walk, (void *)dentry, (void *)mount);
	return 0;
}

/* The same for the open file whose address is in the recorder: its caller has no room on the stack for where it is. */
__noinline int begin_walk_of_file(__u32 thread)
{
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;
	struct file *file;

	if (!recorder)
		return 0;
	file = (void *)recorder->file;
	begin_walk(&recorder->walk, BPF_CORE_READ(file, f_path.dentry), BPF_CORE_READ(file, f_path.mnt));
	return 0;
}

/* The names of a file or a directory, by the walk in the thread's recorder, from its begin on. */
static __always_inline enum path_kind note_names_of_walk(__u8 *names, struct room room, volatile __u32 *length,
							 struct recorder *recorder, __u32 thread)
{
	struct walk *walk = &recorder->walk;
	const void *name;

	*length = 0;
	for (int i = 0; i < NAMES_MOST; i++) {
		name = (void *)step_of_walk(thread);
		if (name && !add_name(names, room, length, name))
			break;
		if (walk->kind)
			return walk->kind;
	}
	return PATH_CUT;
}

/*
 * Writes the definition of the open file whose address is in the recorder of the thread. Returns whether there was room.
 */
__noinline int define_file(__u32 thread, __u32 number)
{
	const struct room few = { FEW_NAMES_ROOM, FEW_NAME_ROOM };
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;
	struct file_record_few *record;
	struct file_record_all *all;
	struct file *file;
	__u32 kind;

	if (!recorder)
		return 0;
	file = (void *)recorder->file;
	record = reserve(RECORD_FILE, struct file_record_few);
	if (!record)
		return 0;
	begin_walk_of_file(thread);
	kind = note_names_of_walk(record->names, few, &record->file.names_length, recorder, thread);
	if (kind != PATH_CUT) {
		fill_file(&record->file, number, file);
		record->file.path = kind;
		submit(record);
		return 1;
	}
	bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
	all = reserve(RECORD_FILE, struct file_record_all);
	if (!all)
		return 0;
	fill_file(&all->file, number, file);
	begin_walk_of_file(thread);
	all->file.path = note_names_of_walk(all->names, NAMES, &all->file.names_length, recorder, thread);
	submit(all);
	return 1;
}

/*
 * The number of the open file whose address is in the recorder of the thread, which is defined if it is not known.
 * `is_new`: the call has opened it, so what is known of the address is of an earlier one. Returns 0 if the definition
 * was lost.
 */
__noinline __u32 number_of_file(__u32 thread, __u32 is_new)
{
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;
	struct known_file now = {}, *known;
	struct file *file;
	__u64 address;
	bool is_known, is_same;

	if (!recorder)
		return 0;
	/* Before the file is looked up. */
	recorder->files_reopened = files_reopened;
	address = recorder->file;
	file = (void *)address;
	now.dentry = (__u64)BPF_CORE_READ(file, f_path.dentry);
	now.inode = BPF_CORE_READ(file, f_inode, i_ino);
	known = bpf_map_lookup_elem(&known_files, &address);
	is_known = known;
	is_same = known && known->dentry == now.dentry && known->inode == now.inode;
	if (is_same && !is_new) {
		now.number = known->number;
	} else {
		now.number = next_file_number();
		if (define_file(thread, now.number)) {
			/* Another thread that uses the open file for the first time may have defined it meanwhile. */
			if (bpf_map_update_elem(&known_files, &address, &now, is_known ? BPF_ANY : BPF_NOEXIST)) {
				known = bpf_map_lookup_elem(&known_files, &address);
				if (known && known->dentry == now.dentry && known->inode == now.inode)
					now.number = known->number;
			}
		} else {
			now.number = 0;
			/* It is of an earlier open file. */
			bpf_map_delete_elem(&known_files, &address);
		}
		if (is_same) {
			__sync_fetch_and_add(&files_reopened, 1);
			recorder->files_reopened++;
		}
	}
	/* Without a definition the next call writes one. */
	if (!now.number)
		recorder->file = 0;
	recorder->dentry = now.dentry;
	recorder->inode = now.inode;
	recorder->number = now.number;
	return now.number;
}

/* Whether this is still the open file that the thread used last. `direct`: `file` is a typed pointer. */
static __always_inline bool is_last_file(const struct recorder *recorder, struct file *file, bool direct)
{
	if (recorder->file != (__u64)file || recorder->dentry != (__u64)READ(direct, file, f_path.dentry) ||
	    recorder->files_reopened != files_reopened)
		return false;
	if (direct)
		return recorder->inode == file->f_inode->i_ino;
	/* Where reading costs as much as looking it up, an open file is only taken for another after its dentry was freed. */
	return !cast_types.file || recorder->inode == TYPED(file)->f_inode->i_ino;
}

/* The number of an open file. */
static __always_inline __u32 number_of(struct recorder *recorder, __u32 thread, struct file *file, bool direct)
{
	if (likely(is_last_file(recorder, file, direct)))
		return recorder->number;
	recorder->file = (__u64)file;
	return number_of_file(thread, false);
}

static __always_inline void fill_folder(struct folder_record *record, __u32 is_root, __u64 at)
{
	record->kind = RECORD_FOLDER;
	record->is_root = is_root;
	record->pad = 0;
	record->tgid = bpf_get_current_pid_tgid() >> 32;
	record->at_ns = at ? at : bpf_ktime_get_ns();
	record->pad2 = 0;
}

/*
 * Defines the working directory of the current process, or its root directory, from `at` on; 0: from now on. `dentry`,
 * `mount`: addresses.
 */
__noinline int define_folder(__u32 is_root, __u64 dentry, __u64 mount, __u64 at)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;
	struct folder_record_all *all;

	if (!recorder)
		return 0;
	all = reserve(RECORD_FOLDER, struct folder_record_all);
	if (!all)
		return 0;
	fill_folder(&all->folder, is_root, at);
	begin_walk_of(thread, dentry, mount);
	all->folder.path = note_names_of_walk(all->names, NAMES, &all->folder.names_length, recorder, thread);
	submit(all);
	return 0;
}

/*
 * Defines the working directory of the current process and its root directory, from `at` on. A thread that has its own,
 * by unshare(CLONE_FS), says nothing about those of its process, unless the first thread of that has exited.
 */
__noinline int define_folders(__u64 at)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct fs_struct *of_process = BPF_CORE_READ(task, group_leader, fs);

	if (!config.records || (of_process && of_process != BPF_CORE_READ(task, fs)))
		return 0;
	define_folder(false, (__u64)BPF_CORE_READ(task, fs, pwd.dentry), (__u64)BPF_CORE_READ(task, fs, pwd.mnt), at);
	define_folder(true, (__u64)BPF_CORE_READ(task, fs, root.dentry), (__u64)BPF_CORE_READ(task, fs, root.mnt), at);
	return 0;
}

/* Defines the current thread, by the name in its recorder. */
__noinline int define_thread(__u32 has_ended)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 id = bpf_get_current_pid_tgid();
	struct recorder *recorder = config.records ? find_recorder(id) : NULL;
	struct thread_record *record;

	if (!recorder)
		return 0;
	record = reserve(RECORD_THREAD, struct thread_record);
	if (!record)
		return 0;
	record->kind = RECORD_THREAD;
	record->has_ended = has_ended;
	record->thread = id;
	record->tgid = id >> 32;
	record->parent = BPF_CORE_READ(task, real_parent, tgid);
	record->at_ns = bpf_ktime_get_ns();
	record->started_ns = BPF_CORE_READ(task, group_leader, start_boottime);
	record->cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	record->comm[0] = recorder->comm[0];
	record->comm[1] = recorder->comm[1];
	record->uid = BPF_CORE_READ(task, cred, uid.val);
	submit(record);
	return 1;
}

/* Defines the current thread at its first call, and when it has another name. */
static __always_inline void know_thread(struct recorder *recorder)
{
	bool is_first;

	if (likely(recorder->definition == DEFINED))
		return;
	is_first = recorder->definition == DEFINED_NEVER;
	if (is_first)
		bpf_get_current_comm(recorder->comm, sizeof(recorder->comm));
	/* Before the name is read: another thread may change it now. */
	recorder->definition = DEFINED;
	barrier();
	if (!define_thread(false))
		recorder->definition = is_first ? DEFINED_NEVER : DEFINED_BY_OLD_NAME;
	else if (is_first)
		define_folders(0);
}

/* A thread gets a new name, by itself or by another thread of its process. The kernel has not stored it yet. */
static __always_inline void note_name(__u32 thread, const void *name)
{
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;

	if (!recorder || recorder->definition == DEFINED_NEVER)
		return;
	bpf_probe_read_kernel_str(recorder->comm, sizeof(recorder->comm), name);
	barrier();
	recorder->definition = DEFINED_BY_OLD_NAME;
}

/* An argument of the thread's call, counted from 1; 0 if it has none there. */
static __always_inline __u64 argument_of(const struct recorder *recorder, __u32 argument)
{
	return recorder->arguments[argument & (RECORDER_ARGUMENTS - 1)];
}

/* include/uapi/linux/fcntl.h: the working directory, as the descriptor of a folder. */
#define AT_FDCWD -100

/* The number of the open file of a descriptor of the thread's process; 0 if it is not open. */
static __always_inline __u32 number_of_descriptor(struct recorder *recorder, __u32 thread, __u32 fd)
{
	struct file *file = file_of_descriptor(fd);

	return file ? number_of(recorder, thread, file, false) : 0;
}

/* Whether a path of the call starts from a folder that is given as a descriptor, in this argument. */
static __always_inline bool has_base(const struct recorder *recorder, __u32 argument)
{
	return argument && (int)argument_of(recorder, argument) != AT_FDCWD;
}

static __always_inline __u32 number_of_base(struct recorder *recorder, __u32 thread, __u32 argument)
{
	return has_base(recorder, argument) ?
		       number_of_descriptor(recorder, thread, argument_of(recorder, argument)) :
		       0;
}

static __always_inline void fill_path(struct path_record *record, __u32 which, const struct recorder *recorder,
				      __u32 length, bool is_relative)
{
	record->kind = RECORD_PATH;
	record->which = which;
	record->length = length;
	record->thread = recorder->call.thread;
	record->number = recorder->call.number;
	record->base = is_relative ? recorder->bases[which & 1] : 0;
	record->pad = 0;
}

/*
 * Writes a path that the thread's call was given. At the begin of the call: at its end the program may have changed it.
 * A path on a page that is not in memory cannot be read then; `is_end`: it is read at the end of the call.
 */
__noinline int note_path(__u32 thread, __u32 which, __u32 is_end)
{
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;
	const volatile struct call_shape *shape;
	struct path_record_few *record;
	struct path_record_all *all;
	void *text;
	long n;

	if (!recorder)
		return 0;
	shape = &call_shapes[recorder->call.op & (MAX_OPS - 1)];
	text = (void *)argument_of(recorder, which ? shape->second_path : shape->path);
	if (!text)
		return 0;
	record = reserve(RECORD_PATH, struct path_record_few);
	if (!record)
		return 0;
	n = bpf_probe_read_user_str(record->text, FEW_TEXT_ROOM, text);
	if (n > 0 && n < FEW_TEXT_ROOM) {
		fill_path(&record->path, which, recorder, n, n > 1 && record->text[0] != '/');
		submit(record);
		recorder->call.has |= CALL_HAS_PATH;
		return 0;
	}
	bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
	if (n <= 0) {
		if (!is_end)
			recorder->at_end |= which ? AT_END_SECOND_PATH : AT_END_PATH;
		return 0;
	}
	all = reserve(RECORD_PATH, struct path_record_all);
	if (!all)
		return 0;
	n = bpf_probe_read_user_str(all->text, TEXT_ROOM, text);
	fill_path(&all->path, which, recorder, n > 0 ? n : 0, all->text[0] != '/');
	submit(all);
	recorder->call.has |= CALL_HAS_PATH;
	return 0;
}

/* The offset that an argument points to; -1: none, so that the call uses the position of its file, or it is not readable. */
static __always_inline __u64 offset_at(const struct recorder *recorder, __u8 argument)
{
	const void *pointer = (void *)argument_of(recorder, argument);
	__u64 offset;

	/* 32-bit programs have offsets of two sizes. */
	if (!pointer || recorder->call.has & CALL_IS_COMPAT || bpf_probe_read_user(&offset, sizeof(offset), pointer))
		return -1;
	return offset;
}

/* Notes the files of a call on two of them, its offsets in them, and the folders that its paths start from. */
__noinline int note_other_files(__u32 thread)
{
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;
	const volatile struct call_shape *shape;

	if (!recorder)
		return 0;
	shape = &call_shapes[recorder->call.op & (MAX_OPS - 1)];
	if (shape->second_fd) {
		recorder->call.files[1] =
			number_of_descriptor(recorder, thread, argument_of(recorder, shape->second_fd));
		recorder->call.fd = argument_of(recorder, 1);
		recorder->call.files[0] = number_of_descriptor(recorder, thread, recorder->call.fd);
		recorder->call.numbers[0] = offset_at(recorder, shape->offset_pointer);
		if (shape->second_offset_pointer)
			recorder->call.numbers[2] = offset_at(recorder, shape->second_offset_pointer);
	}
	recorder->bases[0] = number_of_base(recorder, thread, shape->base);
	recorder->bases[1] = number_of_base(recorder, thread, shape->second_base);
	return 0;
}

/* The recorder of the thread of a call that begins. NULL: there is no room. */
static __always_inline struct recorder *recorder_of_call(const struct thread_state *state, __u32 thread)
{
	struct recorder *recorder = find_recorder(thread);

	if (likely(recorder))
		return recorder;
	make_recorder(thread, state->calls.thread == thread);
	return find_recorder(thread);
}

/* include/linux/fs.h; pipes, sockets and the like lack it. */
#define FMODE_LSEEK 0x4

/* Where the offset of the call is, in its record. */
static __always_inline __u64 *offset_of_call(struct recorder *recorder, const volatile struct call_shape *shape)
{
	return &recorder->call.numbers[shape->effect & CALL_NEEDS_ALL ? 0 : 2];
}

/* Notes the position of the call's file, from which it goes on. `direct`: `file` is a typed pointer. */
static __always_inline void note_position(struct recorder *recorder, struct file *file, bool direct)
{
	const volatile struct call_shape *shape = &call_shapes[recorder->call.op & (MAX_OPS - 1)];

	/* Files such as sockets and pipes have none. */
	if (!(READ(direct, file, f_mode) & FMODE_LSEEK))
		return;
	*offset_of_call(recorder, shape) = READ(direct, file, f_pos);
	recorder->call.has |= CALL_HAS_POSITION;
	if (shape->effect & CALL_WRITES && READ(direct, file, f_flags) & O_APPEND)
		recorder->at_end |= AT_END_APPENDED;
}

/*
 * Notes the first file of the call in flight, if it has one. `direct`: `file` is a typed pointer. `bypasses`: it was opened
 * with O_DIRECT.
 */
static __always_inline void note_file_of_call(struct recorder *recorder, __u32 thread, struct file *file, bool direct,
					      bool bypasses)
{
	recorder->call.files[0] = number_of(recorder, thread, file, direct);
	if (bypasses)
		recorder->call.has |= CALL_IS_DIRECT;
	if (recorder->call.has & CALL_TAKES_POSITION)
		note_position(recorder, file, direct);
}

/* Whether an open file bypasses the page cache. */
static __always_inline bool is_opened_direct(struct file *file)
{
	return PROBED(file, f_flags) & O_DIRECT;
}

/*
 * The same of a call that has only a descriptor (is_unchecked), when it has returned `value` and no program has seen it
 * reach vfs.
 */
__noinline int note_file_at_end(__u32 thread, __u32 fd, __s64 value)
{
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;
	struct file *file;

	if (!recorder)
		return 0;
	file = file_of_descriptor(fd);
	if (!file)
		return 0;
	note_file_of_call(recorder, thread, file, false, is_opened_direct(file));
	/* It has moved the position by these bytes. complete_call() takes care of appended ones. */
	if (value > 0 && recorder->call.has & CALL_HAS_POSITION && !(recorder->at_end & AT_END_APPENDED))
		*offset_of_call(recorder, &call_shapes[recorder->call.op & (MAX_OPS - 1)]) -= value;
	return 0;
}

/* Takes the numbers of a call with CALL_NEEDS_ALL from its arguments. Returns what it has by them. */
static __always_inline __u32 note_numbers(struct recorder *recorder, __u32 op)
{
	const volatile struct call_shape *shape = &call_shapes[op];
	struct call_record *call = &recorder->call;

	call->numbers[0] = argument_of(recorder, shape->offset);
	call->numbers[1] = argument_of(recorder, shape->recorded_size);
	call->numbers[2] = argument_of(recorder, shape->extra);
	if (shape->effect & CALL_CHANGES_FOLDER)
		recorder->at_end = AT_END_FOLDERS;
	/* preadv2 and pwritev2: the file's own position. */
	return shape->offset == 4 && call->numbers[0] == -1ull ? CALL_TAKES_POSITION : 0;
}

/*
 * A call is about to begin whose arguments are in the recorder. `file`: its first one, NULL if it has none, or if that is
 * noted later; `has`: CALL_HAS_..., CALL_IS_... The caller sets when it began, and after this: the time that this takes
 * is not the call's.
 */
static __always_inline void begin_record(struct recorder *recorder, __u32 point, __u32 thread, struct file *file,
					 __u32 fd, __u32 has)
{
	const volatile struct call_shape *shape = &call_shapes[point_op(point)];
	struct call_record *call = &recorder->call;

	/* Until then there is none in flight. */
	call->begin_ns = 0;
	call->op = point_op(point);
	call->has = has | point_takes_position(point) * CALL_TAKES_POSITION;
	call->cpus[0] = bpf_get_smp_processor_id();
	call->fd = fd;
	call->files[0] = 0;
	call->files[1] = 0;
	know_thread(recorder);
	if (file)
		note_file_of_call(recorder, thread, file, false, is_opened_direct(file));
	/* One after the other: functions that call each other share 512 bytes of stack. */
	if (unlikely(point_needs_all(point)) && shape->path | shape->second_fd) {
		recorder->bases[0] = 0;
		recorder->bases[1] = 0;
		call->number++;
		if (shape->second_fd || has_base(recorder, shape->base) || has_base(recorder, shape->second_base))
			note_other_files(thread);
		if (shape->path)
			note_path(thread, 0, false);
		if (shape->second_path)
			note_path(thread, 1, false);
	}
}

/* The call of the thread is not recorded after all. */
__noinline int forget_record(__u32 thread)
{
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;

	if (recorder)
		recorder->call.begin_ns = 0;
	return 0;
}

/* Does what is left to do for the call of the thread, which has returned: AT_END_... */
__noinline int complete_call(__u32 thread, __u64 now, __s64 value)
{
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;
	const volatile struct call_shape *shape;
	struct file *file;
	__u32 at_end;

	if (!recorder)
		return 0;
	at_end = recorder->at_end;
	if (at_end & AT_END_PATH)
		note_path(thread, 0, true);
	if (at_end & AT_END_SECOND_PATH)
		note_path(thread, 1, true);
	if (at_end & AT_END_FOLDERS && !value)
		define_folders(now);
	if (at_end & AT_END_APPENDED && value > 0) {
		shape = &call_shapes[recorder->call.op & (MAX_OPS - 1)];
		file = (void *)recorder->file;
		if (file)
			*offset_of_call(recorder, shape) = BPF_CORE_READ(file, f_pos) - value;
		/* Its definition was lost. */
		else
			recorder->call.has &= ~CALL_HAS_POSITION;
	}
	return 0;
}

/*
 * The recorder of the thread whose call, which began at `begin`, has returned; NULL if the call is not in it, which is
 * counted. From then on the call is none in flight.
 */
static __always_inline struct recorder *recorder_of_ended(__u32 thread, __u64 begin, __u64 now, __s64 value)
{
	struct recorder *recorder = find_recorder(thread);

	if (!recorder || recorder->call.begin_ns != begin) {
		lose_record(RECORD_CALL);
		return NULL;
	}
	if (unlikely(recorder->at_end))
		complete_call(thread, now, value);
	/* Not before: the record of a path names its call. */
	recorder->call.begin_ns = 0;
	return recorder;
}

/* The call that began at `begin` has returned, on this CPU. */
static __always_inline void fill_call(struct call_record *call, const struct recorder *recorder, __u64 begin, __u64 now,
				      __s64 value, __u32 cpu, enum call_rows rows, __u32 class)
{
	const struct call_record *begun = &recorder->call;

	/* In words, and without the times and the value, which are in registers. */
	__builtin_memcpy(call, begun, offsetof(struct call_record, begin_ns));
	__builtin_memcpy(call->numbers, begun->numbers,
			 sizeof(*call) - offsetof(struct call_record, numbers));
	call->rows = rows;
	call->begin_ns = begin;
	call->end_ns = now;
	call->value = value;
	call->cpus[1] = cpu;
	call->read_class = class;
}

/* The rows of file systems, as bits of breakdown.reached. */
#define FS_ROWS (((1u << ROW_QUEUE) - 1) & ~((1u << ROW_FS) - 1))

/* The same of a call whose rows are few. `file_systems`: those of its rows that are of file systems, at most one. */
static __always_inline void fill_few(struct call_record_few *few, const struct recorder *recorder,
				     const struct breakdown *breakdown, __u32 file_systems, __u64 now, __s64 value,
				     __u32 cpu, __u32 class)
{
	fill_call(&few->call, recorder, breakdown->entered_ns, now, value, cpu, CALL_ROWS_FEW, class);
	few->call.row = file_systems ? breakdown->fs_row : ROW_FS;
	few->rows[0] = breakdown->rows[ROW_VFS];
	few->rows[1] = file_systems ? breakdown->rows[breakdown->fs_row & (ROWS - 1)] : 0;
}

/* The call of the breakdown has returned, on this CPU: writes its record. `class`: enum read_class. */
static __always_inline void record_call_with_rows(__u32 thread, const struct breakdown *breakdown, __u64 now,
						  __s64 value, __u32 cpu, __u32 class)
{
	__u32 file_systems = breakdown->reached & FS_ROWS, below_first = file_systems - 1;
	__u64 begin = breakdown->entered_ns;
	bool is_short = !((now - begin) >> 32);
	struct call_record_wide *wide;
	struct call_record_few *few;
	struct call_record_all *all;
	struct recorder *recorder;
	struct record_slot *slot;
	__u64 turn;

	recorder = recorder_of_ended(thread, begin, now, value);
	if (!recorder)
		return;
	/* The compiler would count all bits of it. */
	barrier_var(below_first);
	if (likely(is_short && !breakdown->has_waited && !(file_systems & below_first))) {
		slot = take_slot(cpu, &turn);
		if (likely(slot)) {
			fill_few((void *)slot->record, recorder, breakdown, file_systems, now, value, cpu, class);
			complete_slot(slot, turn);
			return;
		}
		few = reserve_on(cpu, RECORD_CALL, struct call_record_few);
		if (!few)
			return;
		fill_few(few, recorder, breakdown, file_systems, now, value, cpu, class);
		submit(few);
	} else if (is_short) {
		all = reserve_on(cpu, RECORD_CALL, struct call_record_all);
		if (!all)
			return;
		fill_call(&all->call, recorder, begin, now, value, cpu, CALL_ROWS_ALL, class);
#pragma unroll
		for (int i = 0; i < ROWS; i++)
			all->rows[i] = breakdown->rows[i];
		submit(all);
	} else {
		wide = reserve_on(cpu, RECORD_CALL, struct call_record_wide);
		if (!wide)
			return;
		fill_call(&wide->call, recorder, begin, now, value, cpu, CALL_ROWS_WIDE, class);
#pragma unroll
		for (int i = 0; i < ROWS; i++)
			wide->rows[i] = breakdown->rows[i];
		submit(wide);
	}
}

/* Writes a call of no family, with its arguments. */
static __always_inline void write_call_with_arguments(const struct recorder *recorder, __u64 begin, __u64 now,
						      __s64 value)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct call_record_arguments *call = reserve_on(cpu, RECORD_CALL, struct call_record_arguments);

	if (!call)
		return;
	fill_call(&call->call, recorder, begin, now, value, cpu, CALL_ROWS_ARGUMENTS, READ_CLASSES);
#pragma unroll
	for (int i = 0; i < RECORD_ARGUMENTS; i++)
		call->arguments[i] = recorder->arguments[i + 1];
	submit(call);
}

/* The call of the thread has opened a file. */
__noinline int note_opened(__u32 thread, __u32 fd)
{
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;
	struct file *file;

	if (!recorder)
		return 0;
	file = file_of_descriptor(fd);
	recorder->file = (__u64)file;
	recorder->call.fd = fd;
	recorder->call.has |= CALL_HAS_FD;
	recorder->call.files[0] = file ? number_of_file(thread, true) : 0;
	if (file && is_opened_direct(file))
		recorder->call.has |= CALL_IS_DIRECT;
	return 0;
}

/* A call that began at `begin` has returned, and is counted, but in no family. */
__noinline int record_call(__u32 thread, __u64 begin, __u64 now, __s64 value)
{
	struct recorder *recorder = config.records ? recorder_of_ended(thread, begin, now, value) : NULL;
	const volatile struct call_shape *shape;
	struct call_record *call;
	struct record_slot *slot;
	__u64 turn;
	__u32 cpu;

	if (!recorder)
		return 0;
	shape = &call_shapes[recorder->call.op & (MAX_OPS - 1)];
	if (shape->effect & CALL_HAS_ARGUMENTS) {
		write_call_with_arguments(recorder, begin, now, value);
		return 0;
	}
	cpu = bpf_get_smp_processor_id();
	slot = take_slot(cpu, &turn);
	if (slot) {
		fill_call((void *)slot->record, recorder, begin, now, value, cpu, CALL_ROWS_NONE, READ_CLASSES);
		complete_slot(slot, turn);
		return 0;
	}
	call = reserve_on(cpu, RECORD_CALL, struct call_record);
	if (!call)
		return 0;
	fill_call(call, recorder, begin, now, value, cpu, CALL_ROWS_NONE, READ_CLASSES);
	submit(call);
	return 0;
}

/* Offsets of mapped files count pages. */
#define PAGE_BITS 12

static __always_inline __u32 fault_flags(struct vm_fault *fault)
{
	struct vm_fault___enum *newer = (void *)fault;

	return bpf_core_field_exists(fault->flags) ? BPF_CORE_READ(fault, flags) : BPF_CORE_READ(newer, flags);
}

/* The current thread takes a page fault on a mapped file. A call of its own may be in flight around it. */
__noinline int note_fault(__u32 thread, __u64 address)
{
	struct thread_state *state = config.records ? find_thread(thread) : NULL;
	struct recorder *recorder = state ? recorder_of_call(state, thread) : NULL;
	struct vm_fault *fault = (void *)address;
	__u64 file, dentry, inode;
	struct file *mapped;
	__u32 number, reopened;

	if (!recorder)
		return 0;
	/* The call needs the file that it used last. */
	file = recorder->file;
	dentry = recorder->dentry;
	inode = recorder->inode;
	number = recorder->number;
	reopened = recorder->files_reopened;
	know_thread(recorder);
	recorder->fault_offset = BPF_CORE_READ(fault, pgoff) << PAGE_BITS;
	recorder->fault_is_write = fault_flags(fault) & FAULT_FLAG_WRITE;
	mapped = BPF_CORE_READ(fault, vma, vm_file);
	recorder->fault_file = mapped ? number_of(recorder, thread, mapped, false) : 0;
	recorder->file = file;
	recorder->dentry = dentry;
	recorder->inode = inode;
	recorder->number = number;
	recorder->files_reopened = reopened;
	return 0;
}

/* A page fault that began at `begin` has ended. `error`: a negative errno, or 0. */
__noinline int record_fault(__u32 op, __u64 begin, __u64 now, __s64 error)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;
	struct fault_record *record;

	if (!config.records)
		return 0;
	if (!recorder) {
		lose_record(RECORD_FAULT);
		return 0;
	}
	record = reserve(RECORD_FAULT, struct fault_record);
	if (!record)
		return 0;
	record->kind = RECORD_FAULT;
	record->op = op;
	record->error = -error;
	record->thread = thread;
	record->begin_ns = begin;
	record->end_ns = now;
	record->offset = recorder->fault_offset;
	record->tgid = recorder->call.tgid;
	record->file = recorder->fault_file;
	record->is_write = recorder->fault_is_write;
	record->pad = 0;
	submit(record);
	return 0;
}

/* The current thread exits, or has got another number (`exits`: 0). */
__noinline int end_recorder(__u32 thread, __u32 exits)
{
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;

	if (!recorder)
		return 0;
	if (exits && recorder->definition)
		define_thread(true);
	recorder->call.thread = 0;
	bpf_map_delete_elem(&recorders, &thread);
	return 0;
}

/* The current thread leaves the CPU inside a call. */
__noinline int note_leave(__u32 thread)
{
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;

	if (recorder) {
		recorder->waker = 0;
		recorder->waker_tgid = 0;
		recorder->cpu_left = bpf_get_smp_processor_id();
	}
	return 0;
}

/* The current thread wakes a thread that sleeps inside a call. */
__noinline int note_waker(__u32 thread)
{
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;
	__u64 id = bpf_get_current_pid_tgid();

	if (recorder) {
		recorder->waker = id;
		recorder->waker_tgid = id >> 32;
	}
	return 0;
}

/* A thread gets a CPU again, after it waited for `row` from `out` on. `woken`: 0 if it was ready all the time. */
__noinline int record_sleep(__u32 thread, __u32 row, __u64 out, __u64 woken, __u64 now)
{
	struct recorder *recorder = config.records ? find_recorder(thread) : NULL;
	struct sleep_record *record;
	bool is_for_io = row == ROW_QUEUE || row == ROW_DEVICE || row == ROW_OTHERS;

	if (!config.records)
		return 0;
	record = reserve(RECORD_SLEEP, struct sleep_record);
	if (!record)
		return 0;
	record->kind = RECORD_SLEEP;
	record->row = row;
	record->cpus[0] = recorder ? recorder->cpu_left : 0;
	record->cpus[1] = bpf_get_smp_processor_id();
	record->pad = 0;
	record->thread = thread;
	/* I/O ends in an interrupt, during which the current thread is any. */
	record->waker = recorder && !is_for_io ? recorder->waker : 0;
	record->waker_tgid = recorder && !is_for_io ? recorder->waker_tgid : 0;
	record->pad2 = 0;
	record->out_ns = out;
	record->woken_ns = woken;
	record->in_ns = now;
	submit(record);
	return 0;
}

#endif
