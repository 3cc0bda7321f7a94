/**
 * @file policy.h
 * What a policy is: a table of parameters and hooks. One file in src/policy/ and one line in
 * src/policy_table.c make a policy. A policy knows the planner's calls (planner.h) and nothing of
 * engine or executor.
 */
#ifndef TENCACHE_POLICY_H
#define TENCACHE_POLICY_H

#include "tencache/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tc_planner;

/** What a simulation of a schedule says. */
struct tc_evaluation {
	uint64_t period_ps; /**< of the last complete iteration; of all there is when there is but one */
	bool steady;        /**< the last two periods agree within 1e-6 */
	uint64_t busy_ps[TC_QUEUE_COUNT]; /**< within that period, lanes added up */
};

enum tc_parameter_type {
	TC_PARAMETER_COUNT,  /**< unsigned integer */
	TC_PARAMETER_BYTES,  /**< size with unit */
	TC_PARAMETER_FACTOR, /**< decimal factor, stored as parts per million */
	TC_PARAMETER_WORD,   /**< one of `choices` */
	TC_PARAMETER_TEXT,   /**< parsed by the policy */
	TC_PARAMETER_SIZES   /**< BYTESxCOUNT/BYTESxCOUNT...: counts by exact bytes of a parameter */
};

struct tc_class_size {
	uint64_t bytes; /**< exact */
	uint64_t count;
};

struct tc_policy_parameter {
	const char *name;
	enum tc_parameter_type type;
	const char *default_text; /**< parsed like a user's; "auto" is allowed for counts and bytes */
	const char *unit;         /**< "bytes", "elements", "rows", "" */
	/** For words: "code|farthest". For other types NULL, or "auto" where a value may be given as
	 * auto although that is not the default. */
	const char *choices;
	const char *help;
	const char *source;       /**< paper section, file or rule the default comes from */
};

/** Value of one parameter after parsing. */
struct tc_policy_value {
	bool is_auto;
	bool is_default;
	uint64_t number;  /**< count, bytes or parts per million; index of the word among choices */
	const char *text; /**< as given */
	/** TC_PARAMETER_SIZES: as given, counts below 2^32; one that is named again adds to its count.
	 * Owned by the choice. */
	struct tc_class_size *sizes;
	size_t size_count;
};

struct tc_policy {
	const char *name;
	const char *summary;
	const char *source;
	const struct tc_policy_parameter *parameters;
	size_t parameter_count;
	uint32_t period;    /**< iterations after which residency repeats; 1 */
	uint32_t staleness; /**< 0 unless updates read older versions by design */
	/** Adapts by simulation: a plan without a simulator is refused. The commands of all iterations
	 * are then kept. */
	bool wants_timing;
	size_t state_bytes; /**< zeroed memory handed to every hook as `self` */

	/**
	 * Declare and create: managed kinds, pools, derived tensors, homes and initial places. Called
	 * once, before the first command.
	 */
	enum tc_status (*begin)(void *self, struct tc_planner *planner, struct tc_error *error);
	/** `step` comes next; `opening` are its opening requests (ids). Fetch here. */
	enum tc_status (*before_step)(void *self, struct tc_planner *planner, uint32_t step,
	                              struct tc_ids opening, struct tc_error *error);
	/** `step` was issued; `closing` requests close. Release, evict and prefetch here. */
	enum tc_status (*after_step)(void *self, struct tc_planner *planner, uint32_t step,
	                             struct tc_ids closing, struct tc_error *error);
	/**
	 * An event passes. For gradient events of a policy that returns handled = false the planner
	 * moves the gradient itself (src/PLANNING.md, "gradients without a bucket").
	 */
	enum tc_status (*on_event)(void *self, struct tc_planner *planner, uint32_t event,
	                           bool *handled, struct tc_error *error);
	enum tc_status (*end_of_phase)(void *self, struct tc_planner *planner, enum tc_phase phase,
	                               struct tc_error *error);
	/**
	 * Make room for `bytes` in `pool` by evicting or dropping at least one unpinned tensor. NULL or
	 * `*made` false: the planner takes the farthest next use. Called until the slot fits.
	 */
	enum tc_status (*make_room)(void *self, struct tc_planner *planner, uint32_t pool,
	                            uint64_t bytes, uint32_t for_tensor, bool *made,
	                            struct tc_error *error);
	/**
	 * Run the optimizer ops of one optimizer event on the CPU; NULL: the planner's own path
	 * (convert gradient to FP32, update, convert, publish).
	 */
	enum tc_status (*optimizer_event)(void *self, struct tc_planner *planner, uint32_t event,
	                                  uint32_t first_op, uint32_t last_op, struct tc_error *error);
	/**
	 * After the last boundary of an iteration (before the end-of-optimizer wait). `timing` is the
	 * simulation of all iterations so far for a policy with wants_timing, else NULL.
	 */
	enum tc_status (*end_of_iteration)(void *self, struct tc_planner *planner,
	                                   const struct tc_evaluation *timing,
	                                   struct tc_error *error);
	/** Free what `self` owns. Called also after a failure; NULL allowed. */
	void (*end)(void *self);
};

/** All policies, in the order of help. */
const struct tc_policy *const *tc_policies(size_t *count);
/** By name; an unknown one suggests the nearest. */
enum tc_status tc_policy_find(const char *name, const struct tc_policy **policy,
                              struct tc_error *error);

/** A policy with parsed parameters. */
struct tc_policy_choice {
	const struct tc_policy *policy;
	struct tc_policy_value *values; /**< parallel to policy->parameters */
	size_t value_count;
	char *text; /**< canonical: name and every parameter that was given, in table order */
};

/**
 * Parse `NAME:key=value:key=value`. Unknown names and keys suggest the nearest; values are checked
 * against type and choices. Free with tc_policy_choice_free().
 */
enum tc_status tc_policy_parse(const char *text, struct tc_policy_choice **choice,
                               struct tc_error *error);
void tc_policy_choice_free(struct tc_policy_choice *choice);

/** Several policies at once, the commas between them being no part of any. */
struct tc_policy_list {
	struct tc_policy_choice **choices;
	size_t count, capacity;
};
/** Append the policies of `A:x=1,B,C` to a list (set to zero at first); on failure the list holds
 * what it held before. Free with tc_policy_list_clear(). */
enum tc_status tc_policy_list_add(struct tc_policy_list *list, const char *text,
                                  struct tc_error *error);
void tc_policy_list_clear(struct tc_policy_list *list);

#ifdef __cplusplus
}
#endif
#endif
