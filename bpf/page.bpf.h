/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Whose data a bio carries: pages of large folios, whose head alone knows the owner. */
#ifndef __PAGE_BPF_H__
#define __PAGE_BPF_H__

/*
 * The head page of `page`, whose field compound_head or compound_info is `info`: a tail page has the lowest bit set.
 * The rest is the head's address, or a mask that turns the tail's address into it (_compound_head() of
 * include/linux/page-flags.h). Of a mask all upper bits are set, which they are in no address of a struct page.
 */
static __always_inline __u64 head_by_info(__u64 page, __u64 info)
{
	if (!(info & 1))
		return page;
	return info >> 32 == 0xffffffff ? page & info : info - 1;
}

/* The head of the compound page or folio that the page belongs to; of any other page, the page itself. */
static __always_inline struct page *head_of_page(struct page *page)
{
	struct page___info *named = (void *)page;

	if (bpf_core_field_exists(page->compound_head))
		return (void *)head_by_info((__u64)page, BPF_CORE_READ(page, compound_head));
	if (bpf_core_field_exists(named->compound_info))
		return (void *)head_by_info((__u64)page, BPF_CORE_READ(named, compound_info));
	return page;
}

/* The page cache, or other owner, of a page; only the head of a large folio has it. */
static __always_inline struct address_space *mapping_of_page(struct page *page)
{
	return BPF_CORE_READ(head_of_page(page), mapping);
}

/*
 * The same of the first page of a bio. That may be another one than the head since 6.15 (26064d3e2b4d): writeback may
 * begin inside a folio.
 */
static __always_inline struct address_space *mapping_of_bio(const struct bio *bio)
{
	return mapping_of_page(BPF_CORE_READ(bio, bi_io_vec, bv_page));
}

#endif
