/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Issues and ends of requests, compiled for the build machine; the kernel's functions and the other parts of the tool
 * that they call are defined here.
 *
 * ends [both|owner]: reads `struct event` from standard input and writes the `struct sums` after each. All requests have the
 * same address, one after the other, and so have all bios. Nothing is selected, and an end has two programs, as on most
 * kernels. `both`: bios are kept, and seen by the function and by the tracepoint. `owner`: only requests whose bio was
 * submitted are traced.
 */
#include <stdio.h>
#include <string.h>

/* Any layout of registers, and no relocations. */
#define __TARGET_ARCH_x86
#define preserve_access_index annotate("kernel")
#include "../../bpf/vmlinux.h"

#define WHOLE_STACK 0
#include "macros.h"
#include "../../bpf/abi.h"

struct thread_id {
	__u32 thread, tgid;
};

static struct config config = { .counters = MAX_OPS };
static struct block_config block = { .ends_have_second = true };
static struct control control;
static struct op_stats counters[MAX_OPS];
/* The hash maps of requests and bios, with room for one. */
static struct request_slot kept;
static struct bio_slot kept_bio;
static struct task_struct task;
static __u64 clock_ns;

static __u64 bpf_ktime_get_ns(void)
{
	return ++clock_ns;
}

static __u32 bpf_get_smp_processor_id(void)
{
	return 0;
}

static __u64 bpf_get_current_pid_tgid(void)
{
	return 0;
}

static __u64 bpf_get_attach_cookie(void *ctx)
{
	(void)ctx;
	return 0;
}

static __u64 bpf_get_current_task(void)
{
	return (__u64)&task;
}

static struct task_struct *bpf_get_current_task_btf(void)
{
	return &task;
}

#include "maps.h"

/* Types and fields are those of new kernels. */
#define bpf_core_field_exists(field) (strstr(#field, "___") == NULL)
#define bpf_core_type_exists(type) false
#define bpf_core_enum_value(type, name) name
#define PROBED(from, field) ((from)->field)
#define TYPE_OF(pointer) 0
#define CONTEXT_WORD(ctx, n) (((__u64 *)(ctx))[n])
#define PT_REGS_PARM1(ctx) CONTEXT_WORD(ctx, 0)
#define PT_REGS_PARM2(ctx) CONTEXT_WORD(ctx, 1)
#define PT_REGS_PARM3(ctx) CONTEXT_WORD(ctx, 2)
#define lower_half(pointer) ((__u32)(pointer))
#define as_number(address) (address)
#define as_number_by(known, address) (address)

/* Other parts of the tool: without a selection, groups, records and rows, nothing of them is needed. */
#pragma clang diagnostic ignored "-Wunused-parameter"
#pragma clang diagnostic ignored "-Wunused-variable"
#define disable_preemption()
#define enable_preemption()
#define submitter_is_traced(...) true
#define is_kernel_thread() false
#define current_id() ((struct thread_id){ 0 })
#define neighbour_of_current(...) 0
#define origin_of_submitter() 0
#define group_of_current() 0
#define group_of_disk(...) 0
#define group_of_page(...) 0
#define record_in_group(...)
#define reserve(kind, type) ((type *)NULL)
#define reserve_on(cpu, kind, type) ((type *)NULL)
#define submit(...)
#define take_slot(...) ((struct record_slot *)NULL)
#define complete_slot(...)
#define PAGES_ARE_TYPED 0
#define may_be_kernels(...) false
#define is_tail_page(...) false
#define mapping_of_page(page, typed) ((void)(page), (struct address_space *)NULL)
#define inode_of_mapping(...) ((struct inode *)NULL)
#define is_of_written(...) false
#define find_breakdown() ((struct breakdown *)NULL)
#define got_request()
#define submit_in_call(...)
#define note_request_from_other(...)
#define note_flush(...)
#define note_end(...)
#define end_flushed(...)
#define end_in_sleep(...)
#define end_of_request(...)

#include "../../bpf/view.bpf.h"
#include "../../bpf/point.bpf.h"
#include "../../bpf/stats.bpf.h"
#include "../../bpf/table.bpf.h"
#include "../../bpf/block.bpf.h"

static void *find_in_map(const void *map, const void *key)
{
	if (map == &stats)
		return &counters[*(const __u32 *)key];
	if (map == &bios)
		return kept_bio.address == *(const __u64 *)key ? &kept_bio.state : NULL;
	return map == &requests && kept.address == *(const __u64 *)key ? &kept.state : NULL;
}

static int update_map(const void *map, const __u64 *address, const void *state)
{
	if (map == &requests) {
		kept.address = *address;
		kept.state = *(const struct request_state *)state;
	}
	if (map == &bios) {
		kept_bio.address = *address;
		kept_bio.state = *(const struct bio_state *)state;
	}
	return 0;
}

static int delete_from_map(const void *map, const __u64 *address)
{
	if (map == &requests && kept.address == *address)
		kept.address = 0;
	if (map == &bios && kept_bio.address == *address)
		kept_bio.address = 0;
	return 0;
}

enum {
	ISSUE,
	END,
	SUBMIT, /* of a bio: the function */
	QUEUE, /* of a bio: the tracepoint that the function reaches, if it does not end the bio itself */
	SUBMIT_AGAIN, /* of a bio: the function, inside a submission */
	ISSUE_MANY, /* of a request whose last bio it is; of so many pages, each of a bio of its own */
};

struct event {
	__u64 what;
	__u64 start; /* start_time_ns of the request */
	__u64 bytes; /* a write; of none, one that only carries a flush and is not issued itself; a bio is a flush then */
};

struct sums {
	__u64 ended;
	__u64 lost;
	__u64 unmatched; /* ends without an issue */
	__u64 kept; /* an entry is left in the table */
	__u64 kept_bio;
	__u64 submitted_ns; /* of the bio that is kept, by a clock that goes on with each look at it */
};

static struct bio others[2048];

int main(int count, char **words_of_command)
{
	struct gendisk disk = { 0 };
	struct request_queue queue = { .disk = &disk };
	struct request rq = { .q = &queue, .cmd_flags = REQ_OP_WRITE };
	struct bio bio = { 0 };
	struct event event;

	block.by_both = count > 1 && !strcmp(words_of_command[1], "both");
	block.by_owner = count > 1 && !strcmp(words_of_command[1], "owner");
	block.bio_stamps = block.by_both || block.by_owner;
	while (fread(&event, sizeof(event), 1, stdin) == 1) {
		__u64 words[] = { (__u64)&rq, 0, event.bytes }, bio_words[] = { (__u64)&bio };
		struct sums sums = { 0 };

		rq.start_time_ns = event.start;
		rq.__data_len = event.bytes;
		rq.state = event.bytes ? 1 : MQ_RQ_IDLE;
		bio.bi_iter.bi_size = event.bytes;
		bio.bi_opf = REQ_OP_WRITE | (event.bytes ? 0 : 1u << __REQ_PREFLUSH);
		rq.bio = block.by_owner ? &bio : NULL;
		if (event.what == ISSUE_MANY) {
			rq.bio = &bio;
			for (__u64 page = 1; page < event.bytes / 4096 && page < 2048; page++) {
				others[page].bi_next = rq.bio;
				rq.bio = &others[page];
			}
		}
		if (event.what == ISSUE || event.what == ISSUE_MANY) {
			block_issue_btf(words);
		} else if (event.what == SUBMIT || event.what == SUBMIT_AGAIN) {
			task.bio_list = event.what == SUBMIT_AGAIN ? &bio : NULL;
			bio_submit_function((void *)bio_words);
		} else if (event.what == QUEUE) {
			bio_queue_btf(bio_words);
		} else {
			block_end_second_btf(words);
			block_end_btf(words);
		}
		for (int i = 0; i < MAX_OPS; i++) {
			for (int step = 0; step < STEPS; step++)
				sums.ended += counters[i].steps[step];
			sums.unmatched += counters[i].unmatched_ends;
			for (int why = 0; why < LOST_REASONS; why++)
				sums.lost += counters[i].lost[why];
		}
		sums.kept = kept.address != 0;
		sums.kept_bio = kept_bio.address != 0;
		sums.submitted_ns = kept_bio.state.queued_ns;
		if (fwrite(&sums, sizeof(sums), 1, stdout) != 1)
			return 1;
	}
	return 0;
}
