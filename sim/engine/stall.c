/** @file stall.c
 * Why the compute lane was idle between the end of one command and the start of the next.
 *
 * The idle interval is cut twice. From the start back to the ask time the walk follows what the
 * command waited for; from the issue back to the end of the previous command it follows what the
 * issuing thread was doing. Both walks go back in time along binding constraints: each command they
 * meet gives the part of the interval during which it ran to one cause (running_cause()), then they
 * go on to what kept that command from starting earlier. Where that is its issue they go on along
 * the host thread, whose own time is `host_call`, and whose blocking waits lead on to what they
 * waited for. Every step leads to an earlier time or, at the same time, to a smaller id, so the
 * walk ends; it stops at the lower end of the interval, so it never meets a forgotten command.
 */
#include "core.h"

/** One walk: [low_ps, high_ps] is not attributed yet. */
struct walk {
	const struct tc_engine *engine;
	uint64_t *stalls;
	uint64_t low_ps, high_ps;
	uint64_t wanted_ps;         /**< when the result was asked for */
	enum tc_stall_cause passed; /**< what a slot or barrier on the way says, else link_busy */
};

static void give(struct walk *walk, uint64_t from_ps, enum tc_stall_cause cause)
{
	if (from_ps < walk->low_ps)
		from_ps = walk->low_ps;
	if (from_ps >= walk->high_ps)
		return;
	walk->stalls[cause] += walk->high_ps - from_ps;
	walk->high_ps = from_ps;
}

static bool is_drive(unsigned queue)
{
	return queue == TC_QUEUE_NVME_READ || queue == TC_QUEUE_NVME_WRITE ||
	       queue == TC_QUEUE_GPU_NVME;
}

/** Issued later than the time of asking less its duration with the machine to itself. */
static bool issued_late(const struct walk *walk, const struct tci_node *node)
{
	uint64_t alone = tci_flow_alone_ps(walk->engine, node);
	return alone > walk->wanted_ps || node->wanted_ps > walk->wanted_ps - alone;
}

static enum tc_stall_cause running_cause(const struct walk *walk, const struct tci_node *node)
{
	unsigned queue = node->queue;
	if (issued_late(walk, node))
		return TC_STALL_ISSUED_LATE;
	if (is_drive(queue))
		return TC_STALL_NVME;
	if (queue == TC_QUEUE_CPU)
		return TC_STALL_OPTIMIZER;
	if (node->start_ps <= node->wanted_ps)
		return TC_STALL_LINK_BUSY; /* started when it was wanted: it was sharing */
	switch (node->bound_reason) {
	case TC_REASON_SLOT:
		return TC_STALL_NO_BUFFER;
	case TC_REASON_BARRIER:
		return TC_STALL_OPTIMIZER;
	case TCI_BOUND_LANE:
		return TC_STALL_LINK_BUSY;
	default:
		if (is_drive(node->bound_queue))
			return TC_STALL_NVME;
		return node->bound_queue == TC_QUEUE_CPU ? TC_STALL_OPTIMIZER : walk->passed;
	}
}

/** What the kind of a link says about the commands behind it. */
static void pass(struct walk *walk, unsigned reason)
{
	if (reason == TC_REASON_SLOT)
		walk->passed = TC_STALL_NO_BUFFER;
	else if (reason == TC_REASON_BARRIER)
		walk->passed = TC_STALL_OPTIMIZER;
	else if (reason == TCI_BOUND_LANE)
		walk->passed = TC_STALL_LINK_BUSY;
}

/**
 * Go back along the host thread from high_ps, before which `block_count` blocks lie.
 * @return what the host waited for at the new high_ps, or NULL when the interval is used up
 */
static const struct tci_node *walk_host(struct walk *walk, uint64_t block_count)
{
	const struct tci_block *block =
	    block_count == 0 ? NULL : tci_block_find(walk->engine, block_count - 1);
	if (block == NULL || block->end_ps <= walk->low_ps) {
		give(walk, walk->low_ps, TC_STALL_HOST_CALL);
		return NULL;
	}
	give(walk, block->end_ps, TC_STALL_HOST_CALL);
	walk->wanted_ps = block->begin_ps > walk->low_ps ? block->begin_ps : walk->low_ps;
	walk->passed = TC_STALL_LINK_BUSY;
	return block->cause;
}

/** Go back from `node`, which ended at high_ps. */
static void walk_commands(struct walk *walk, const struct tci_node *node)
{
	while (node != NULL && walk->high_ps > walk->low_ps) {
		give(walk, node->start_ps, running_cause(walk, node));
		if (walk->high_ps <= walk->low_ps)
			return;
		if (node->bound_reason == TCI_BOUND_ISSUE) {
			node = walk_host(walk, node->host_block);
		} else {
			pass(walk, node->bound_reason);
			node = node->bound;
		}
	}
}

void tci_attribute_stall(const struct tc_engine *engine, const struct tci_node *node,
                         struct tc_timing *timing)
{
	struct walk walk = {.engine = engine, .stalls = timing->stall_ps};
	if (timing->start_ps > timing->ask_ps) {
		walk.low_ps = walk.wanted_ps = timing->ask_ps;
		walk.high_ps = timing->start_ps;
		walk.passed = TC_STALL_LINK_BUSY;
		pass(&walk, node->bound_reason);
		walk_commands(&walk, node->bound);
	}
	if (timing->issue_ps > node->previous_end_ps) {
		walk.low_ps = node->previous_end_ps;
		walk.high_ps = timing->issue_ps;
		walk_commands(&walk, walk_host(&walk, node->host_block));
	}
}
