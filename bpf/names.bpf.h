/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Paths, name by name from the file up to the root. Each name ends with a 0. */
#ifndef __NAMES_BPF_H__
#define __NAMES_BPF_H__

/* Bytes for names: for all but the last one, and for any one of them. Compile-time constants. */
struct room {
	__u32 all;
	__u32 one;
};
static const struct room NAMES = { NAMES_ROOM, NAME_ROOM };

/*
 * Appends a name to `names`, which has room.all + room.one bytes. Returns whether there was room. The length is kept in
 * memory (volatile), where the verifier does not track its value: otherwise it would check the loop for each possible
 * length.
 */
static __always_inline bool add_name(__u8 *names, struct room room, volatile __u32 *length, const void *name)
{
	__u32 used = *length;
	long n;

	if (used > room.all)
		return false;
	n = bpf_probe_read_kernel_str(names + used, room.one, name);
	/* No name is longer than NAME_ROOM. */
	if (n <= 0 || (room.one < NAME_ROOM && n == room.one))
		return false;
	*length = used + n;
	return true;
}

/*
 * The names of a file and of the directories above it, across mounts up to the root; without a mount, up to the root of
 * the file's file system. Returns which of the two, or why neither.
 */
static __always_inline enum path_kind note_names_in(__u8 *names, struct room room, volatile __u32 *length,
						      struct dentry *dentry, struct vfsmount *vfsmount)
{
	struct mount *mount = (void *)vfsmount - bpf_core_field_offset(struct mount, mnt);
	struct dentry *top = vfsmount ? BPF_CORE_READ(vfsmount, mnt_root) : NULL, *parent;

	*length = 0;
	for (int i = 0; i < NAMES_MOST; i++) {
		if (dentry == top) {
			struct mount *above = BPF_CORE_READ(mount, mnt_parent);

			if (!above || above == mount)
				return PATH_WHOLE;
			dentry = BPF_CORE_READ(mount, mnt_mountpoint);
			mount = above;
			top = BPF_CORE_READ(mount, mnt.mnt_root);
			continue;
		}
		parent = BPF_CORE_READ(dentry, d_parent);
		if (!vfsmount && parent == dentry)
			return PATH_INSIDE;
		if (!add_name(names, room, length, BPF_CORE_READ(dentry, d_name.name)))
			break;
		if (parent == dentry)
			return PATH_ALONE;
		dentry = parent;
	}
	return PATH_CUT;
}

static __always_inline enum path_kind note_names(__u8 *names, volatile __u32 *length, struct dentry *dentry,
						   struct vfsmount *vfsmount)
{
	return note_names_in(names, NAMES, length, dentry, vfsmount);
}

/* The names of a cgroup, up to the root of its hierarchy. */
static __always_inline enum path_kind note_cgroup_names(__u8 *names, volatile __u32 *length, struct kernfs_node *node)
{
	struct kernfs_node *above;

	*length = 0;
	for (int i = 0; i < NAMES_MOST; i++) {
		if (bpf_core_field_exists(node->parent))
			above = BPF_CORE_READ(node, parent);
		else
			above = BPF_CORE_READ((struct kernfs_node___rcu *)node, __parent);
		if (!above)
			return PATH_INSIDE;
		if (!add_name(names, NAMES, length, BPF_CORE_READ(node, name)))
			break;
		node = above;
	}
	return PATH_CUT;
}

#endif
