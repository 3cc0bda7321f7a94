/**
 * @file range_tree.h
 * Free ranges of an arena, kept in two search trees at once: by offset, and by (bytes, offset).
 *
 * Both are treaps over one flat array of nodes: binary search trees that are heaps in a random
 * priority, hence of expected depth O(log n) whatever the order of insertion. The "random"
 * priorities come from a counter, so that the same calls always build the same trees.
 */
#ifndef TENCACHE_SRC_RANGE_TREE_H
#define TENCACHE_SRC_RANGE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tencache/error.h"

/** "No node". */
#define TCI_NO_RANGE UINT32_MAX

enum tci_range_order { TCI_BY_OFFSET, TCI_BY_SIZE, TCI_RANGE_ORDERS };

struct tci_range {
	uint64_t offset;
	uint64_t bytes;
	uint32_t left[TCI_RANGE_ORDERS];
	uint32_t right[TCI_RANGE_ORDERS]; /**< unused nodes: chain of unused nodes */
	uint32_t priority;
};

struct tci_range_tree {
	struct tci_range *nodes;
	size_t capacity;
	uint32_t used;   /**< nodes ever handed out */
	uint32_t unused; /**< first of the chain of nodes given back */
	uint32_t root[TCI_RANGE_ORDERS];
	uint64_t counter;
};

/** An empty tree; zeroed memory needs this call before use. */
void tci_range_tree_init(struct tci_range_tree *tree);
/** Frees the nodes, not `tree`. */
void tci_range_tree_clear(struct tci_range_tree *tree);

/** A new node that is in no order yet. Its index is stable; pointers into nodes are not. */
enum tc_status tci_range_new(struct tci_range_tree *tree, uint64_t offset, uint64_t bytes,
                             uint32_t *node, struct tc_error *error);
/** Give back a node that is in no order. */
void tci_range_release(struct tci_range_tree *tree, uint32_t node);

/** Enter a node into an order by its present offset and bytes. */
void tci_range_insert(struct tci_range_tree *tree, enum tci_range_order order, uint32_t node);
/** Take a node out of an order; offset and bytes must still be those it was entered with, or (by
 * offset) have changed without overtaking a neighbour. */
void tci_range_erase(struct tci_range_tree *tree, enum tci_range_order order, uint32_t node);

/** First node of the size order with at least `bytes` (ties: lowest offset), or TCI_NO_RANGE. */
uint32_t tci_range_best_fit(const struct tci_range_tree *tree, uint64_t bytes);
/** Last node by offset that starts at or before `offset`, or TCI_NO_RANGE. */
uint32_t tci_range_before(const struct tci_range_tree *tree, uint64_t offset);
/** First node by offset that starts after `offset`, or TCI_NO_RANGE. */
uint32_t tci_range_after(const struct tci_range_tree *tree, uint64_t offset);
/** Node with the most bytes, or TCI_NO_RANGE. */
uint32_t tci_range_largest(const struct tci_range_tree *tree);

#endif
