/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Unpacking a point; abi.h has its layout. */
#ifndef __POINT_BPF_H__
#define __POINT_BPF_H__

static __always_inline __u32 point_field(__u32 point, __u32 shift, __u32 bits)
{
	return point >> shift & ((1u << bits) - 1);
}

#define point_op(point) point_field(point, POINT_OP_SHIFT, 8)
#define point_frame(point) point_field(point, POINT_FRAME_SHIFT, 4)
#define point_shape(point) point_field(point, POINT_SHAPE_SHIFT, 4)
#define point_args(point) point_field(point, POINT_ARGS_SHIFT, 3)
#define point_return(point) point_field(point, POINT_RETURN_SHIFT, 3)
#define point_is_shared(point) point_field(point, POINT_SHARED_SHIFT, 1)
#define point_is_outermost(point) point_field(point, POINT_OUTERMOST_SHIFT, 1)
#define point_files(point) point_field(point, POINT_FILES_SHIFT, 3)
#define point_is_suppressed(point) point_field(point, POINT_SUPPRESSED_SHIFT, 1)
#define point_is_checked_at_return(point) point_field(point, POINT_CHECKED_AT_RETURN_SHIFT, 1)
#define point_takes_position(point) point_field(point, POINT_TAKES_POSITION_SHIFT, 1)
#define point_needs_all(point) point_field(point, POINT_NEEDS_ALL_SHIFT, 1)

/* Per op: the row that its functions run in. */
const volatile __u8 op_rows[MAX_OPS];
/* Per op: the f_op address or the magic number that the guard of its shared points compares with. */
const volatile __u64 guard_values[MAX_OPS];

/* Per op: OP_... flags. */
const volatile __u8 op_traits[MAX_OPS];
/* Which file systems share a program. */
const volatile struct file_systems file_systems;
/* Whether a stacked file system is measured. */
const volatile __u8 has_above;

static __always_inline __u8 traits_of(__u32 point)
{
	return op_traits[point_op(point) & (MAX_OPS - 1)];
}

static __always_inline enum guard point_guard(__u32 point)
{
	return point_is_shared(point) ? traits_of(point) & OP_GUARD : GUARD_NONE;
}

static __always_inline bool point_files_and_dirs(__u32 point)
{
	return traits_of(point) & OP_FILES_AND_DIRS;
}

static __always_inline bool point_above(__u32 point)
{
	return has_above && traits_of(point) & OP_ABOVE;
}

/* Whether calls at this point are recorded, though they are no system calls. */
static __always_inline bool point_is_recorded(__u32 point)
{
	return config.records && point_shape(point) == SHAPE_FAULT_0 && traits_of(point) & OP_RECORDED;
}

static __always_inline __u64 guard_value(__u32 point)
{
	return guard_values[point_op(point) & (MAX_OPS - 1)];
}

/* Whether the function has only a row in the whole-stack view, and no op of its own. */
static __always_inline bool point_is_row(__u32 point)
{
	__u32 shape = point_shape(point);

	return shape == SHAPE_ROW || shape == SHAPE_ROW_BIO_0;
}

/* Whether the function is an asynchronous entry point. */
static __always_inline bool point_is_async_entry(__u32 point)
{
	return point_return(point) == RETURN_ISSUED || point_return(point) == RETURN_SUBMITTED;
}

#endif
