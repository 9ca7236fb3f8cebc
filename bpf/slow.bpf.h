/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Calls that took long: each is told with where its time went, as it ends. A call that did not costs one comparison, and the
 * few words that are kept of its arguments; all else is looked up when a slow one has ended.
 */
#ifndef __SLOW_BPF_H__
#define __SLOW_BPF_H__

/* Room for more than are told in a second, in case the reader is late. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 21);
} slow_calls SEC(".maps");

/* A ring has no type; this gives it to the skeleton. */
struct slow_call *slow_call_type;

/* By op of a system call. */
const volatile struct call_shape call_shapes[MAX_OPS];

/* How many were told in the second that began then. */
volatile struct pace pace;

#define PACE_NS 1000000000ll

/*
 * Whether so many were told in this second that one more is only counted. CPUs that begin a second at once may let a few
 * more pass; what is counted as told or left out is exact all the same. When there are too many, nothing is written here.
 */
static __always_inline bool are_too_many(__u64 now)
{
	if ((__s64)(now - pace.since_ns) >= PACE_NS) {
		pace.since_ns = now;
		pace.told = 0;
	}
	if (pace.told >= SLOW_PER_SECOND)
		return true;
	__sync_fetch_and_add(&pace.told, 1);
	return false;
}

/* A call begins, on this file if it is one that takes a descriptor. */
__noinline int keep_file(__u32 thread, __u32 op, __u32 fd, __u64 address)
{
	struct thread_state *state = config.tells_slow ? find_thread(thread) : NULL;
	struct file *file = (void *)address;
	struct hand *hand;

	if (!state)
		return 0;
	hand = &state->hand;
	hand->fd = fd;
	hand->file = address;
	/* After this one, the descriptor tells nothing. */
	if (call_shapes[op & (MAX_OPS - 1)].does & CALL_CLOSES && file) {
		hand->dentry = (__u64)BPF_CORE_READ(file, f_path.dentry);
		hand->mount = (__u64)BPF_CORE_READ(file, f_path.mnt);
		hand->inode = BPF_CORE_READ(file, f_inode, i_ino);
	} else {
		hand->dentry = 0;
	}
	return 0;
}

static __always_inline void note_inode(struct slow_call *told, struct inode *inode)
{
	told->has |= SLOW_HAS_FILE;
	told->inode = BPF_CORE_READ(inode, i_ino);
	told->device = BPF_CORE_READ(inode, i_sb, s_dev);
	told->mode = BPF_CORE_READ(inode, i_mode);
}

/* What the call was given as a path, if it takes one. */
static __always_inline void note_asked(struct slow_call *told, const struct hand *hand, const struct call_shape *shape)
{
	__u32 argument = shape->path;
	long n;

	if (!argument || argument > CALL_ARGUMENTS)
		return;
	n = bpf_probe_read_user_str(told->names, NAMES_ROOM, (void *)hand->arguments[(argument - 1) & (CALL_ARGUMENTS - 1)]);
	if (n > 0) {
		told->path = PATH_ASKED;
		told->names_length = n;
	}
}

/* The open file that a call worked on; NULL where there is none any more. */
static __always_inline struct file *file_of_call(const struct slow_call *told, const struct hand *hand,
						 const struct call_shape *shape)
{
	__s64 value = hand->value;
	struct file *file;

	if (shape->does & CALL_OPENS)
		return value >= 0 ? file_of_descriptor(value) : NULL;
	/* An empty path, or none, stands for the descriptor before it (AT_EMPTY_PATH). */
	if (shape->path == 2 && told->names_length <= 1)
		return file_of_descriptor(hand->arguments[0]);
	if (!hand->file)
		return NULL;
	/* Another thread may have given the number to another file meanwhile. */
	file = file_of_descriptor(hand->fd);
	return (__u64)file == hand->file ? file : NULL;
}

static __always_inline void note_place(struct slow_call *told, const struct hand *hand, const struct call_shape *shape,
				       __u64 position)
{
	__s64 value = hand->value;
	__u32 offset = shape->offset, size = shape->size;
	__u32 kind = told->mode & S_IFMT;

	/* A 32-bit program gives an offset in two, and a size behind it is elsewhere. */
	if (size && size <= CALL_ARGUMENTS && (!offset || size < offset || !in_32bit_call())) {
		told->size = hand->arguments[(size - 1) & (CALL_ARGUMENTS - 1)];
		told->has |= SLOW_HAS_SIZE;
	}
	if (offset && offset <= CALL_ARGUMENTS) {
		if (in_32bit_call())
			return;
		told->offset = hand->arguments[(offset - 1) & (CALL_ARGUMENTS - 1)];
		if (told->offset != -1ull) {
			told->has |= SLOW_HAS_OFFSET;
			return;
		}
		/* preadv2 and pwritev2: the file's own position. */
	} else if (offset != CALL_POSITION) {
		return;
	}
	/* The call has moved it. An append is told where it really went to. */
	if (kind == S_IFREG || kind == S_IFBLK) {
		told->offset = position - (value > 0 ? value : 0);
		told->has |= SLOW_HAS_OFFSET;
	}
}

static __always_inline __u64 time_of_ended(const struct hand *hand)
{
	return hand->last_ns - hand->entered_ns;
}

/* By itself: the verifier looks at it once, and not for each way that leads to a call's end. */
__noinline int tell_slow(__u32 thread)
{
	struct thread_state *state = config.tells_slow ? find_thread(thread) : NULL;
	const struct hand *hand;
	struct call_shape shape;
	__u64 id = bpf_get_current_pid_tgid();
	__u64 ended, total;
	__u32 op;
	struct family_stats *s;
	struct slow_call *told;
	struct vfsmount *mount;
	struct dentry *dentry;
	struct inode *inode;
	__u64 position = 0;
	struct file *file;

	if (!state)
		return 0;
	hand = &state->hand;
	ended = hand->last_ns;
	total = time_of_ended(hand);
	op = hand->open[0].key & (MAX_OPS - 1);
	shape = call_shapes[op];
	s = family_stats_of(hand->family);
	if (!s)
		return 0;
	if (are_too_many(ended)) {
		add(&s->slow[SLOW_LIMITED], 1);
		return 0;
	}
	told = bpf_ringbuf_reserve(&slow_calls, sizeof(*told), 0);
	if (!told) {
		add(&s->slow[SLOW_NO_ROOM], 1);
		return 0;
	}
	told->ended_ns = ended;
	told->total_ns = total;
	for (int i = 0; i < ROWS; i++)
		told->rows[i] = hand->rows[i];
	told->value = hand->value;
	told->tgid = id >> 32;
	told->thread = id;
	bpf_get_current_comm(told->comm, sizeof(told->comm));
	told->op = op;
	told->has = 0;
	told->mode = 0;
	told->path = PATH_NONE;
	told->names_length = 0;

	note_asked(told, hand, &shape);
	file = file_of_call(told, hand, &shape);
	if (file) {
		inode = BPF_CORE_READ(file, f_inode);
		dentry = BPF_CORE_READ(file, f_path.dentry);
		mount = BPF_CORE_READ(file, f_path.mnt);
		position = BPF_CORE_READ(file, f_pos);
	} else {
		/* With its last descriptor, the names of a file may have gone. */
		dentry = (void *)hand->dentry;
		mount = (void *)hand->mount;
		inode = dentry ? BPF_CORE_READ(dentry, d_inode) : NULL;
		if (inode && BPF_CORE_READ(inode, i_ino) != hand->inode)
			inode = NULL;
	}
	if (inode) {
		note_inode(told, inode);
		told->path = note_names(told->names, &told->names_length, dentry, mount);
	}
	note_place(told, hand, &shape, position);
	bpf_ringbuf_submit(told, 0);
	add(&s->slow[SLOW_TOLD], 1);
	return 0;
}

/* The system call is over, and all of it counted. */
static __always_inline void tell_ended(struct thread_state *state, __u32 thread)
{
	if (time_of_ended(&state->hand) >= config.slower_ns)
		tell_slow(thread);
	put_hand(state, thread);
}

#endif
