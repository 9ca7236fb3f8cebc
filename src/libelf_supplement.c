/*
 * What the static libelf of elfutils 0.192 (Debian 13) calls and does not contain: its lib/eu-search.c is in no
 * archive that is installed. Its struct begins with the tree's root; the lock behind it exists in thread-safe builds
 * only, and nothing here is shared between threads.
 */
#define _GNU_SOURCE
#include <search.h>

typedef struct {
	void *root;
} search_tree;

void eu_search_tree_init(search_tree *tree) { tree->root = 0; }
void eu_search_tree_fini(search_tree *tree, void (*free_node)(void *)) { tdestroy(tree->root, free_node); }
void *eu_tsearch(const void *key, search_tree *tree, int (*compare)(const void *, const void *)) { return tsearch(key, &tree->root, compare); }
void *eu_tfind(const void *key, search_tree *tree, int (*compare)(const void *, const void *)) { return tfind(key, &tree->root, compare); }
void *eu_tdelete(const void *key, search_tree *tree, int (*compare)(const void *, const void *)) { return tdelete(key, &tree->root, compare); }
