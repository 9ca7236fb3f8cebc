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

/* Whether the kernel can give the address of a page a type: its fields, and those of its file, are then read directly. */
#define PAGES_ARE_TYPED (!!cast_types.page)

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

/*
 * Whether a page is no head. `page`: a typed pointer. The type of the field depends on the page: to the verifier it may be
 * a pointer.
 */
static __always_inline bool is_tail_page(struct page *page)
{
	struct page___info *named = (void *)page;

	if (bpf_core_field_exists(page->compound_head))
		return lower_half(page->compound_head) & 1;
	return bpf_core_field_exists(named->compound_info) && lower_half(named->compound_info) & 1;
}

/* The page cache, or other owner, of a page; only the head of a large folio has it. */
static __always_inline struct address_space *mapping_of_page(__u64 address, bool typed)
{
	struct page *head = (void *)address;

	if (!typed)
		return BPF_CORE_READ(head_of_page(head), mapping);
	if (is_tail_page(TYPED(head)))
		head = head_of_page(head);
	return TYPED(head)->mapping;
}

/*
 * The same of the first page of a bio. That may be another one than the head since 6.15 (26064d3e2b4d): writeback may
 * begin inside a folio.
 */
static __always_inline struct address_space *mapping_of_bio(const struct bio *bio)
{
	return mapping_of_page((__u64)BPF_CORE_READ(bio, bi_io_vec, bv_page), false);
}

/* include/uapi/linux/magic.h */
#define TMPFS_MAGIC 0x01021994 /* also of memory that processes share */
#define HUGETLBFS_MAGIC 0x958458f6
#define RAMFS_MAGIC 0x858458f6

/*
 * Whether a file is in memory alone. No request is for such a file: one with its pages is direct I/O on another file,
 * whose buffer they are.
 */
static __always_inline bool is_in_memory(const struct inode *inode, bool typed)
{
	struct super_block *sb = READ(typed, inode, i_sb);
	unsigned long magic = READ(typed, sb, s_magic);

	return magic == TMPFS_MAGIC || magic == HUGETLBFS_MAGIC || magic == RAMFS_MAGIC;
}

/* Low bits of page->mapping that say that it is no page cache (include/linux/page-flags.h: PAGE_MAPPING_FLAGS). */
#define PAGE_MAPPING_FLAGS 3

/* The file of a page cache; NULL: none. `typed`: both are typed pointers. */
static __always_inline struct inode *inode_of_mapping(struct address_space *mapping, bool typed)
{
	struct inode *inode;

	/* In a page of a slab, this field means something else. */
	if (lower_half((__u64)mapping) & PAGE_MAPPING_FLAGS || !may_be_kernels(mapping))
		return NULL;
	inode = READ(typed, mapping, host);
	if (!may_be_kernels(inode) || READ(typed, inode, i_mapping) != mapping || is_in_memory(inode, typed))
		return NULL;
	return inode;
}

/* The file whose data a page has; NULL: none. `typed`: PAGES_ARE_TYPED. */
static __always_inline struct inode *inode_of_page(__u64 page, bool typed)
{
	return inode_of_mapping(mapping_of_page(page, typed), typed);
}

/* The file whose data a bio carries, by its first page; NULL: none. */
static __always_inline struct inode *inode_of_bio(const struct bio *bio)
{
	return inode_of_page((__u64)BPF_CORE_READ(bio, bi_io_vec, bv_page), false);
}

#endif
