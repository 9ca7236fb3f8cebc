/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The owner of a bio's first page, compiled for the build machine.
 *
 * page: prints which page's owner it is, for the head and a tail of a folio, each way in which kernels link the two: by
 * the head's address in compound_head, or in compound_info, or by a mask in compound_info. Then whether the bio carries
 * data of a file: of a page of a file on a disk, of one in memory, of an anonymous page, and of a slab. Each by probe reads
 * and by a typed pointer, which must find the same.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/types.h>

#include "macros.h"

struct super_block {
	unsigned long s_magic;
};

struct inode {
	struct super_block *i_sb;
	struct address_space *i_mapping;
};

struct address_space {
	const char *owner;
	struct inode *host;
};

struct page {
	struct address_space *mapping;
	unsigned long compound_head;
	unsigned long more[6];
};

struct page___info {
	struct address_space *mapping;
	unsigned long compound_info;
};

struct bio {
	struct bio_vec {
		struct page *bv_page;
	} *bi_io_vec;
};

static bool is_info;

#define bpf_core_field_exists(field) (is_info == !strcmp(#field, "named->compound_info"))
#define lower_half(pointer) ((__u32)(unsigned long)(pointer))
/* Here addresses are those of a program. */
#define may_be_kernels(address) ((address) != NULL)

#include "../../bpf/page.bpf.h"

enum { PAGES = 16 };

static void print_file(struct page page)
{
	struct bio_vec vec = { .bv_page = &page };
	struct bio bio = { .bi_io_vec = &vec };

	if (inode_of_bio(&bio) != inode_of_page((__u64)&page, true))
		puts("another file by a typed pointer");
	puts(inode_of_bio(&bio) ? "of a file" : "of no file");
}

static void print_files(void)
{
	enum { EXT4_MAGIC = 0xef53, ANONYMOUS = 1 };
	struct super_block disk = { EXT4_MAGIC }, memory = { TMPFS_MAGIC };
	struct inode on_disk = { &disk, NULL }, in_memory = { &memory, NULL };
	struct address_space of_disk = { "", &on_disk }, of_memory = { "", &in_memory }, slab = { "", &on_disk };

	on_disk.i_mapping = &of_disk;
	in_memory.i_mapping = &of_memory;
	print_file((struct page){ .mapping = &of_disk });
	print_file((struct page){ .mapping = &of_memory });
	print_file((struct page){ .mapping = (void *)((unsigned long)&of_disk | ANONYMOUS) });
	print_file((struct page){ .mapping = &slab });
}

int main(void)
{
	struct address_space head = { "head", NULL }, tail = { "tail", NULL };
	/* Aligned to the size of the folio, as the array of all pages is. */
	struct page *folio = aligned_alloc(PAGES * sizeof(*folio), PAGES * sizeof(*folio));

	if (!folio)
		return 1;
	for (int way = 0; way < 3; way++) {
		for (int i = 0; i < PAGES; i++) {
			folio[i].mapping = i ? &tail : &head;
			folio[i].compound_head = !i ? 0 : way < 2 ? (unsigned long)folio | 1 : -(PAGES * sizeof(*folio)) | 1;
		}
		is_info = way > 0;
		for (int i = 0; i < PAGES; i += PAGES / 2 + 1) {
			struct bio_vec vec = { .bv_page = &folio[i] };
			struct bio bio = { .bi_io_vec = &vec };

			if (mapping_of_page((__u64)&folio[i], true) != mapping_of_bio(&bio))
				puts("another owner by a typed pointer");
			puts(mapping_of_bio(&bio)->owner);
		}
	}
	is_info = false;
	print_files();
	return 0;
}
