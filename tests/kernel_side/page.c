/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The owner of a bio's first page, compiled for the build machine.
 *
 * page: prints which page's owner it is, for the head and a tail of a folio, each way in which kernels link the two: by
 * the head's address in compound_head, or in compound_info, or by a mask in compound_info.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/types.h>

#include "macros.h"

struct address_space {
	const char *owner;
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
#define READ_1(from, field) ((from)->field)
#define READ_2(from, field, of_it) ((from)->field->of_it)
#define READ_OF(a, b, c, name, ...) name
#define BPF_CORE_READ(...) READ_OF(__VA_ARGS__, READ_2, READ_1)(__VA_ARGS__)

#include "../../bpf/page.bpf.h"

enum { PAGES = 16 };

int main(void)
{
	struct address_space head = { "head" }, tail = { "tail" };
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

			puts(mapping_of_bio(&bio)->owner);
		}
	}
	return 0;
}
