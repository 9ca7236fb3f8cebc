/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * When the kernel's rings wake their reader, compiled for the build machine: one ring of 16 KiB, the smallest.
 *
 * kernel_ring: reads an `__u64` for each record from standard input, which of RECORDS it is, and writes the unread bytes of the
 * ring with it. The reader takes all out when it is woken, and never by itself.
 */
#include <stdbool.h>
#include <stdio.h>
#include <linux/bpf.h>
#include <linux/types.h>

#define __VMLINUX_H__
enum { BPF_MAP_TYPE_NONE };
#include "macros.h"
#include "../../bpf/abi.h"

#define RING 16384ul

/* Positions, which grow without end; the ring begins at a page. */
static __u64 written, read;

static __u32 bpf_get_smp_processor_id(void)
{
	return 0;
}

#define bpf_map_lookup_elem(map, key) ((void)(map), (void)(key), (void *)&written)
#define lower_half(address) ((__u32)(address))

static __u64 bpf_ringbuf_query(void *ring, __u64 what)
{
	(void)ring;
	return what == BPF_RB_AVAIL_DATA ? written - read : RING;
}

static void bpf_ringbuf_submit(void *record, __u64 flags)
{
	(void)record;
	if (flags & BPF_RB_FORCE_WAKEUP)
		read = written;
}

#include "../../bpf/kernel_ring.bpf.h"

static __u64 unread_with(__u64 size)
{
	written += size + BPF_RINGBUF_HDR_SZ;
	return written - read;
}

/* A record of the type is reserved and submitted. */
#define WRITE(type)                                                                                                    \
	({                                                                                                             \
		type *record = (void *)(written % RING + BPF_RINGBUF_HDR_SZ);                                          \
                                                                                                                       \
		unread = unread_with(sizeof(type));                                                                    \
		submit(record);                                                                                        \
	})

int main(void)
{
	__u64 which, unread = 0;

	while (fread(&which, sizeof(which), 1, stdin) == 1) {
		switch (which) {
		case 0:
			WRITE(struct sleep_record);
			break;
		case 1:
			WRITE(struct call_record_few);
			break;
		case 2:
			WRITE(struct call_record_all);
			break;
		default:
			WRITE(struct path_record_few);
		}
		if (fwrite(&unread, sizeof(unread), 1, stdout) != 1)
			return 1;
	}
	return 0;
}
