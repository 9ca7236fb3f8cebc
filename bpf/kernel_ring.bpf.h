/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The kernel's rings of records, one for each CPU. One that fills up between the regular times of the reader wakes it. */
#ifndef __KERNEL_RING_BPF_H__
#define __KERNEL_RING_BPF_H__

/* The rings, by CPU. User space makes them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} rings SEC(".maps");

static __always_inline void *ring_of(__u32 cpu)
{
	return bpf_map_lookup_elem(&rings, &cpu);
}

/* Room for a record, a pointer to `type`; NULL if there is none, which lose_record() counts. */
#define reserve(of, type) reserve_on(bpf_get_smp_processor_id(), of, type)
/* The same, where the number of the current CPU is known. */
#define reserve_on(cpu, of, type)                                                                                      \
	({                                                                                                             \
		void *__ring = ring_of(cpu);                                                                           \
		type *__record = __ring ? bpf_ringbuf_reserve(__ring, sizeof(type), 0) : NULL;                         \
		if (!__record)                                                                                         \
			lose_record(of);                                                                               \
		__record;                                                                                              \
	})

/* The unread bytes of a ring are looked at whenever a record goes beyond a part of this size. */
#define LOOK_BYTES 8192
/* include/uapi/linux/bpf.h, BPF_RINGBUF_HDR_SZ: in front of a record. All records are multiples of it. */
#define RING_HEADER 8

/*
 * Whether a record of a ring is the one that reaches the end of a part, by its address: one of each part is, whatever their
 * lengths.
 */
static __always_inline bool ends_part(__u32 address, __u32 size)
{
	return ((address + size) & (LOOK_BYTES - 1)) < size + RING_HEADER;
}

/* The part of a ring that is full when the ring wakes its reader. */
#define WAKE_PART 4

/* Rings differ in size: a CPU that was offline at the start has a small one. */
static __always_inline __u64 wake_flags(void)
{
	void *ring = ring_of(bpf_get_smp_processor_id());

	return ring && bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) >=
				 bpf_ringbuf_query(ring, BPF_RB_RING_SIZE) / WAKE_PART ?
		       BPF_RB_FORCE_WAKEUP :
		       BPF_RB_NO_WAKEUP;
}

/* Completes a record, and wakes the reader if much is unread. The address of the record decides when that is looked at. */
#define submit(record)                                                                                                 \
	do {                                                                                                           \
		__u64 __flags = BPF_RB_NO_WAKEUP;                                                                      \
		if (unlikely(ends_part(lower_half((__u64)(record)), sizeof(*(record)))))                               \
			__flags = wake_flags();                                                                        \
		bpf_ringbuf_submit(record, __flags);                                                                   \
	} while (0)

#endif
