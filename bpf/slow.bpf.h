/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Slow calls: each is reported when it ends, with the rows of its time. A call that is not slow costs one comparison,
 * and the few stores that keep its arguments; everything else is looked up when a slow call has ended.
 */
#ifndef __SLOW_BPF_H__
#define __SLOW_BPF_H__

/* Bytes: room for more than SLOW_PER_SECOND, for when the reader is delayed. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 21);
} slow_calls SEC(".maps");

/* A ring buffer map has no value type; this puts the type into the skeleton. */
struct slow_call *slow_call_type;

/* Per op of a system call. */
const volatile struct call_shape call_shapes[MAX_OPS];

/* Of calls with FILES_0_OF_COMMAND. */
const volatile struct call_command call_commands[COMMANDS];

/* The rate of reported slow calls. */
volatile struct slow_rate slow_rate;

#define RATE_PERIOD_NS 1000000000ll

/*
 * Whether the limit of this second is reached, so that the call is only counted. CPUs that begin a second at the same
 * time may let a few more calls through; the counts of reported and of limited calls are exact nevertheless. Above the
 * limit nothing is written here.
 */
static __always_inline bool is_over_rate_limit(__u64 now)
{
	if ((__s64)(now - slow_rate.since_ns) >= RATE_PERIOD_NS) {
		slow_rate.since_ns = now;
		slow_rate.reported = 0;
	}
	if (slow_rate.reported >= SLOW_PER_SECOND)
		return true;
	__sync_fetch_and_add(&slow_rate.reported, 1);
	return false;
}

/*
 * Keeps what identifies the file of a call that closes it: at the end of the call the descriptor no longer leads to the
 * file.
 */
__noinline int keep_closed_file(__u32 thread)
{
	struct thread_state *state = REPORTS_SLOW ? find_thread(thread) : NULL;
	struct breakdown *breakdown;
	struct file *file;

	if (!state || !state->breakdown.file)
		return 0;
	breakdown = &state->breakdown;
	file = (void *)breakdown->file;
	breakdown->dentry = (__u64)BPF_CORE_READ(file, f_path.dentry);
	breakdown->mount = (__u64)BPF_CORE_READ(file, f_path.mnt);
	breakdown->inode = BPF_CORE_READ(file, f_inode, i_ino);
	return 0;
}

static __always_inline void note_inode(struct slow_call *report, struct inode *inode)
{
	report->has |= SLOW_HAS_FILE;
	report->inode = BPF_CORE_READ(inode, i_ino);
	report->device = BPF_CORE_READ(inode, i_sb, s_dev);
	report->mode = BPF_CORE_READ(inode, i_mode);
}

/* Notes the path that the call was given, if it takes one. */
static __always_inline void note_given_path(struct slow_call *report, const struct breakdown *breakdown,
					    const struct call_shape *shape)
{
	__u32 argument = shape->path;
	long n;

	if (!argument || argument > CALL_ARGUMENTS)
		return;
	n = bpf_probe_read_user_str(report->names, NAMES_ROOM,
				    (void *)breakdown->arguments[(argument - 1) & (CALL_ARGUMENTS - 1)]);
	if (n > 0) {
		report->path = PATH_GIVEN;
		report->names_length = n;
	}
}

/* The open file that a call worked on; NULL if it is no longer open. */
static __always_inline struct file *file_of_call(const struct slow_call *report, const struct breakdown *breakdown,
						 const struct call_shape *shape)
{
	__s64 value = breakdown->value;
	struct file *file;

	if (shape->effect & CALL_OPENS)
		return value >= 0 ? file_of_descriptor(value) : NULL;
	/*
	 * An empty path, which has length 1, or NULL stands for the descriptor before it (AT_EMPTY_PATH). A path that
	 * cannot be read does not: its file is not known.
	 */
	if (shape->path == 2 && (report->names_length == 1 || !breakdown->arguments[1]))
		return file_of_descriptor(breakdown->arguments[0]);
	if (!breakdown->file)
		return NULL;
	/* Another thread may have opened another file under this descriptor meanwhile. */
	file = file_of_descriptor(breakdown->fd);
	return (__u64)file == breakdown->file ? file : NULL;
}

static __always_inline void note_offset(struct slow_call *report, const struct breakdown *breakdown,
					const struct call_shape *shape, __u64 position)
{
	__s64 value = breakdown->value;
	__u32 offset = shape->offset, size = shape->size;
	__u32 kind = report->mode & S_IFMT;

	/* 32-bit programs pass an offset in two arguments, which moves those after it. */
	if (size && size <= CALL_ARGUMENTS && (!offset || size < offset || !in_32bit_call())) {
		report->size = breakdown->arguments[(size - 1) & (CALL_ARGUMENTS - 1)];
		report->has |= SLOW_HAS_SIZE;
	}
	if (offset && offset <= CALL_ARGUMENTS) {
		if (in_32bit_call())
			return;
		report->offset = breakdown->arguments[(offset - 1) & (CALL_ARGUMENTS - 1)];
		if (report->offset != -1ull) {
			report->has |= SLOW_HAS_OFFSET;
			return;
		}
		/* preadv2, pwritev2: the file's own position. */
	} else if (offset != CALL_POSITION) {
		return;
	}
	/* f_pos after the call, minus what the call moved: of an append, where the data really went. */
	if (kind == S_IFREG || kind == S_IFBLK) {
		report->offset = position - (value > 0 ? value : 0);
		report->has |= SLOW_HAS_OFFSET;
	}
}

static __always_inline __u64 time_of_ended(const struct breakdown *breakdown)
{
	return breakdown->last_ns - breakdown->entered_ns;
}

/*
 * A step of the walk in the thread's breakdown; `begins`: only begins it, at this dentry and mount. Out of line
 * (compat.bpf.h): the verifier checks it once, and not in each round of the loop that calls it.
 */
__noinline __u64 step_of_report(__u32 thread, __u32 begins, __u64 dentry, __u64 mount)
{
	struct thread_state *state = REPORTS_SLOW ? find_thread(thread) : NULL;

	if (!state)
		return 0;
	if (!begins)
		return (__u64)step_up(&state->breakdown.walk);
	begin_walk(&state->breakdown.walk, (void *)dentry, (void *)mount);
	return 0;
}

/* Notes the names of the file of a slow call, and of the directories above it. */
static __always_inline void note_names(struct slow_call *report, const struct walk *walk, __u32 thread, __u64 dentry,
				       __u64 mount)
{
	volatile __u32 *length = &report->names_length;
	const void *name;

	*length = 0;
	report->path = PATH_CUT;
	step_of_report(thread, true, dentry, mount);
	for (int i = 0; i < NAMES_MOST; i++) {
		name = (void *)step_of_report(thread, false, 0, 0);
		if (name && !add_name(report->names, NAMES, length, name))
			return;
		if (walk->kind) {
			report->path = walk->kind;
			return;
		}
	}
}

/*
 * Reports a slow call. Out of line (compat.bpf.h): the verifier checks it once, and not on each path to a call's end.
 */
__noinline int report_slow(__u32 thread)
{
	struct thread_state *state = REPORTS_SLOW ? find_thread(thread) : NULL;
	const struct breakdown *breakdown;
	struct call_shape shape;
	__u64 id = bpf_get_current_pid_tgid();
	__u64 ended, total;
	__u32 op;
	struct family_stats *s;
	struct slow_call *report;
	struct vfsmount *mount;
	struct dentry *dentry;
	struct inode *inode;
	__u64 position = 0;
	struct file *file;

	if (!state)
		return 0;
	breakdown = &state->breakdown;
	ended = breakdown->last_ns;
	total = time_of_ended(breakdown);
	op = breakdown->open[0].key & (MAX_OPS - 1);
	shape = call_shapes[op];
	s = family_stats_of(bpf_get_smp_processor_id(), breakdown->family);
	if (!s)
		return 0;
	if (is_over_rate_limit(ended)) {
		add(&s->slow[SLOW_LIMITED], 1);
		return 0;
	}
	report = bpf_ringbuf_reserve(&slow_calls, sizeof(*report), 0);
	if (!report) {
		add(&s->slow[SLOW_NO_ROOM], 1);
		return 0;
	}
	report->ended_ns = ended;
	report->total_ns = total;
	for (int i = 0; i < ROWS; i++)
		report->rows[i] = breakdown->rows[i];
	report->value = breakdown->value;
	report->tgid = id >> 32;
	report->thread = id;
	bpf_get_current_comm(report->comm, sizeof(report->comm));
	report->op = op;
	report->has = 0;
	report->mode = 0;
	report->path = PATH_NONE;
	report->names_length = 0;

	note_given_path(report, breakdown, &shape);
	file = file_of_call(report, breakdown, &shape);
	if (file) {
		inode = BPF_CORE_READ(file, f_inode);
		dentry = BPF_CORE_READ(file, f_path.dentry);
		mount = BPF_CORE_READ(file, f_path.mnt);
		position = BPF_CORE_READ(file, f_pos);
	} else {
		/* The file is closed. Its dentry may be in use for another file, so the inode number is compared. */
		dentry = (void *)breakdown->dentry;
		mount = (void *)breakdown->mount;
		inode = dentry ? BPF_CORE_READ(dentry, d_inode) : NULL;
		if (inode && BPF_CORE_READ(inode, i_ino) != breakdown->inode)
			inode = NULL;
	}
	if (inode) {
		note_inode(report, inode);
		note_names(report, &breakdown->walk, thread, (__u64)dentry, (__u64)mount);
	}
	note_offset(report, breakdown, &shape, position);
	bpf_ringbuf_submit(report, 0);
	add(&s->slow[SLOW_REPORTED], 1);
	return 0;
}

/* The system call has ended, and is counted and recorded: reports it if it was slow, and ends its breakdown. */
static __always_inline void report_ended(struct thread_state *state, __u32 thread)
{
	if (REPORTS_SLOW && time_of_ended(&state->breakdown) >= config.slower_ns)
		report_slow(thread);
	put_breakdown(state, thread);
}

#endif
