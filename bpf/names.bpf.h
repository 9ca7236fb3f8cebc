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

/* Begins a walk, of a file on `vfsmount`; NULL: its mount is not known. */
static __always_inline void begin_walk(struct walk *walk, struct dentry *dentry, struct vfsmount *vfsmount)
{
	walk->dentry = (__u64)dentry;
	walk->mount = vfsmount ? (__u64)vfsmount - bpf_core_field_offset(struct mount, mnt) : 0;
	walk->top = vfsmount ? (__u64)BPF_CORE_READ(vfsmount, mnt_root) : 0;
	walk->kind = PATH_NONE;
}

/*
 * A step of a walk: to the directory above, across mounts up to the root; of a file whose mount is not known, up to the
 * root of its file system. Returns the name that it passes; NULL: none, as it goes to another mount or has ended. In
 * walk->kind is whether it has ended, and where.
 */
static __always_inline const void *step_up(struct walk *walk)
{
	struct dentry *dentry = (void *)walk->dentry, *parent;
	struct mount *mount = (void *)walk->mount, *above;

	if (walk->dentry == walk->top) {
		above = BPF_CORE_READ(mount, mnt_parent);
		if (!above || above == mount) {
			walk->kind = PATH_WHOLE;
			return NULL;
		}
		walk->dentry = (__u64)BPF_CORE_READ(mount, mnt_mountpoint);
		walk->mount = (__u64)above;
		walk->top = (__u64)BPF_CORE_READ(above, mnt.mnt_root);
		return NULL;
	}
	parent = BPF_CORE_READ(dentry, d_parent);
	if (parent == dentry) {
		if (!mount) {
			walk->kind = PATH_INSIDE;
			return NULL;
		}
		walk->kind = PATH_ALONE;
	}
	walk->dentry = (__u64)parent;
	return BPF_CORE_READ(dentry, d_name.name);
}

/* The same from a cgroup, up to the root of its hierarchy, which has no name. */
static __always_inline const void *step_up_cgroup(struct walk *walk)
{
	struct kernfs_node *node = (void *)walk->dentry, *above;

	if (bpf_core_field_exists(node->parent))
		above = BPF_CORE_READ(node, parent);
	else
		above = BPF_CORE_READ((struct kernfs_node___rcu *)node, __parent);
	if (!above) {
		walk->kind = PATH_INSIDE;
		return NULL;
	}
	walk->dentry = (__u64)above;
	return BPF_CORE_READ(node, name);
}

#endif
