/*
 * Two treaps over one node array (Seidel and Aragon, "Randomized search trees", Algorithmica 16,
 * 1996), with iterative insertion by splitting and deletion by joining: no recursion, no rotation,
 * no parent links.
 */
#include "range_tree.h"

#include <stdlib.h>

#include "tencache/units.h"

void tci_range_tree_init(struct tci_range_tree *tree)
{
	*tree =
	    (struct tci_range_tree){.unused = TCI_NO_RANGE, .root = {TCI_NO_RANGE, TCI_NO_RANGE}};
}

void tci_range_tree_clear(struct tci_range_tree *tree)
{
	free(tree->nodes);
	tci_range_tree_init(tree);
}

/* splitmix64 of a counter: well mixed, and the same in every run. */
static uint32_t next_priority(struct tci_range_tree *tree)
{
	uint64_t z = tree->counter += 0x9E3779B97F4A7C15u;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return (uint32_t)((z ^ (z >> 31)) >> 32);
}

enum tc_status tci_range_new(struct tci_range_tree *tree, uint64_t offset, uint64_t bytes,
                             uint32_t *node, struct tc_error *error)
{
	uint32_t index = tree->unused;
	if (index != TCI_NO_RANGE) {
		tree->unused = tree->nodes[index].right[TCI_BY_OFFSET];
	} else {
		if (tree->used == TCI_NO_RANGE ||
		    !tc_grow_array(&tree->nodes, &tree->capacity, (size_t)tree->used + 1,
		                   sizeof *tree->nodes))
			return tc_error_no_memory(error, "the list of free memory ranges",
			                          ((uint64_t)tree->used + 1) * sizeof *tree->nodes);
		index = tree->used++;
	}
	tree->nodes[index] = (struct tci_range){
	    .offset = offset,
	    .bytes = bytes,
	    .left = {TCI_NO_RANGE, TCI_NO_RANGE},
	    .right = {TCI_NO_RANGE, TCI_NO_RANGE},
	    .priority = next_priority(tree),
	};
	*node = index;
	return TC_OK;
}

void tci_range_release(struct tci_range_tree *tree, uint32_t node)
{
	tree->nodes[node].right[TCI_BY_OFFSET] = tree->unused;
	tree->unused = node;
}

static bool precedes(enum tci_range_order order, const struct tci_range *a,
                     const struct tci_range *b)
{
	if (order == TCI_BY_SIZE && a->bytes != b->bytes)
		return a->bytes < b->bytes;
	return a->offset < b->offset;
}

void tci_range_insert(struct tci_range_tree *tree, enum tci_range_order order, uint32_t node)
{
	struct tci_range *nodes = tree->nodes;
	struct tci_range *added = &nodes[node];
	uint32_t *link = &tree->root[order];
	while (*link != TCI_NO_RANGE && nodes[*link].priority >= added->priority) {
		struct tci_range *at = &nodes[*link];
		link = precedes(order, added, at) ? &at->left[order] : &at->right[order];
	}
	/* The subtree found here goes below the new node, split into what is smaller and larger. */
	uint32_t rest = *link;
	uint32_t *smaller = &added->left[order];
	uint32_t *larger = &added->right[order];
	*link = node;
	while (rest != TCI_NO_RANGE) {
		struct tci_range *at = &nodes[rest];
		if (precedes(order, at, added)) {
			*smaller = rest;
			smaller = &at->right[order];
			rest = *smaller;
		} else {
			*larger = rest;
			larger = &at->left[order];
			rest = *larger;
		}
	}
	*smaller = TCI_NO_RANGE;
	*larger = TCI_NO_RANGE;
}

void tci_range_erase(struct tci_range_tree *tree, enum tci_range_order order, uint32_t node)
{
	struct tci_range *nodes = tree->nodes;
	struct tci_range *removed = &nodes[node];
	uint32_t *link = &tree->root[order];
	while (*link != node) {
		struct tci_range *at = &nodes[*link];
		link = precedes(order, removed, at) ? &at->left[order] : &at->right[order];
	}
	/* Join its two subtrees: all of the left one precede all of the right one. */
	uint32_t left = removed->left[order];
	uint32_t right = removed->right[order];
	while (left != TCI_NO_RANGE && right != TCI_NO_RANGE) {
		if (nodes[left].priority >= nodes[right].priority) {
			*link = left;
			link = &nodes[left].right[order];
			left = *link;
		} else {
			*link = right;
			link = &nodes[right].left[order];
			right = *link;
		}
	}
	*link = left != TCI_NO_RANGE ? left : right;
	removed->left[order] = TCI_NO_RANGE;
	removed->right[order] = TCI_NO_RANGE;
}

uint32_t tci_range_best_fit(const struct tci_range_tree *tree, uint64_t bytes)
{
	uint32_t found = TCI_NO_RANGE;
	for (uint32_t at = tree->root[TCI_BY_SIZE]; at != TCI_NO_RANGE;) {
		const struct tci_range *node = &tree->nodes[at];
		if (node->bytes >= bytes) {
			found = at;
			at = node->left[TCI_BY_SIZE];
		} else {
			at = node->right[TCI_BY_SIZE];
		}
	}
	return found;
}

uint32_t tci_range_before(const struct tci_range_tree *tree, uint64_t offset)
{
	uint32_t found = TCI_NO_RANGE;
	for (uint32_t at = tree->root[TCI_BY_OFFSET]; at != TCI_NO_RANGE;) {
		const struct tci_range *node = &tree->nodes[at];
		if (node->offset <= offset) {
			found = at;
			at = node->right[TCI_BY_OFFSET];
		} else {
			at = node->left[TCI_BY_OFFSET];
		}
	}
	return found;
}

uint32_t tci_range_after(const struct tci_range_tree *tree, uint64_t offset)
{
	uint32_t found = TCI_NO_RANGE;
	for (uint32_t at = tree->root[TCI_BY_OFFSET]; at != TCI_NO_RANGE;) {
		const struct tci_range *node = &tree->nodes[at];
		if (node->offset > offset) {
			found = at;
			at = node->left[TCI_BY_OFFSET];
		} else {
			at = node->right[TCI_BY_OFFSET];
		}
	}
	return found;
}

uint32_t tci_range_largest(const struct tci_range_tree *tree)
{
	uint32_t at = tree->root[TCI_BY_SIZE];
	while (at != TCI_NO_RANGE && tree->nodes[at].right[TCI_BY_SIZE] != TCI_NO_RANGE)
		at = tree->nodes[at].right[TCI_BY_SIZE];
	return at;
}
