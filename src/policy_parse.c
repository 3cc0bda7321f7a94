/**
 * @file policy_parse.c
 * `NAME:key=value:key=value` to a policy with typed values. The canonical text holds what was given
 * in the order of the policy's table, so that two spellings of one choice are one string in
 * reports.
 */
#include "policy_parse.h"

#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"

enum tc_status tci_policy_find_in(const struct tc_policy *const *table, size_t count,
                                  const char *name, const struct tc_policy **policy,
                                  struct tc_error *error)
{
	const char *names[64], *nearest = NULL;
	for (size_t i = 0; i < count; ++i) {
		if (strcmp(table[i]->name, name) == 0) {
			*policy = table[i];
			return TC_OK;
		}
		if (i < sizeof names / sizeof *names)
			names[i] = table[i]->name;
	}
	nearest = tc_nearest_name(name, names, count < 64 ? count : 64);
	if (nearest != NULL)
		return tc_error_set(error, TC_ARGUMENT,
		                    "unknown policy \"%.80s\"; did you mean \"%s\"?", name,
		                    nearest);
	return tc_error_set(error, TC_ARGUMENT,
	                    "unknown policy \"%.80s\"; `tencache-sim policies` lists them", name);
}

/** Index of `word` in "a|b|c"; SIZE_MAX where it is none of them. */
static size_t find_choice(const char *choices, const char *word)
{
	size_t length = strlen(word), index = 0;
	for (const char *p = choices; p != NULL && length > 0; ++index) {
		size_t here = strcspn(p, "|");
		if (here == length && memcmp(p, word, length) == 0)
			return index;
		p = p[here] == '|' ? p + here + 1 : NULL;
	}
	return SIZE_MAX;
}

static enum tc_status refuse_choice(const char *what, const char *choices, const char *word,
                                    struct tc_error *error)
{
	char copy[256];
	const char *names[32], *nearest;
	size_t count = 0, length = strlen(choices);
	if (length >= sizeof copy)
		length = sizeof copy - 1;
	memcpy(copy, choices, length);
	copy[length] = '\0';
	for (char *p = copy; p != NULL && count < 32;) {
		names[count++] = p;
		p = strchr(p, '|');
		if (p != NULL)
			*p++ = '\0';
	}
	nearest = tc_nearest_name(word, names, count);
	return tc_error_set(error, TC_ARGUMENT, "%s: \"%.80s\" is none of %s%s%s%s", what, word,
	                    choices, nearest != NULL ? "; did you mean \"" : "",
	                    nearest != NULL ? nearest : "", nearest != NULL ? "\"?" : "");
}

/** Digits that make a number below 2^64; `*at` moves behind them. */
static bool read_digits(const char **at, uint64_t *number)
{
	const char *start = *at;
	*number = 0;
	for (; **at >= '0' && **at <= '9'; ++*at)
		if (!tc_mul_u64(*number, 10, number) ||
		    !tc_add_u64(*number, (uint64_t)(**at - '0'), number))
			return false;
	return *at > start;
}

/** BYTESxCOUNT/BYTESxCOUNT: an entry holds an x. */
static enum tc_status parse_sizes(const char *what, const char *text, struct tc_policy_value *value,
                                  struct tc_error *error)
{
	const char *at = text;
	size_t most = 1;
	for (const char *x = text; (x = strchr(x, 'x')) != NULL; ++x)
		++most;
	value->sizes = tc_alloc_array(most, sizeof *value->sizes);
	if (value->sizes == NULL)
		return tc_error_no_memory(error, what, most * sizeof *value->sizes);
	for (;;) {
		struct tc_class_size size;
		if (!read_digits(&at, &size.bytes) || *at++ != 'x' ||
		    !read_digits(&at, &size.count) || size.count > UINT32_MAX ||
		    (*at != '/' && *at != '\0'))
			return tc_error_set(
			    error, TC_ARGUMENT,
			    "%s: \"%.80s\": expected BYTESxCOUNT/BYTESxCOUNT... with the exact "
			    "size of "
			    "parameters and a count below 2^32, e.g. 8192x167/33554432x75",
			    what, text);
		value->sizes[value->size_count++] = size;
		if (*at++ == '\0')
			return TC_OK;
	}
}

static enum tc_status parse_value(const struct tc_policy_parameter *parameter, const char *what,
                                  const char *text, struct tc_policy_value *value,
                                  struct tc_error *error)
{
	value->text = text;
	bool may_be_auto = strcmp(parameter->default_text, "auto") == 0 ||
	                   find_choice(parameter->choices, "auto") != SIZE_MAX;
	if (parameter->type != TC_PARAMETER_WORD && strcmp(text, "auto") == 0) {
		if (!may_be_auto)
			return tc_error_set(error, TC_ARGUMENT,
			                    "%s cannot be auto; its default is %s", what,
			                    parameter->default_text);
		value->is_auto = true;
		return TC_OK;
	}
	switch (parameter->type) {
	case TC_PARAMETER_COUNT:
		return tc_parse_count(text, what, &value->number, error);
	case TC_PARAMETER_BYTES:
		return tc_parse_bytes(text, what, &value->number, error);
	case TC_PARAMETER_FACTOR:
		return tc_parse_ppm(text, what, &value->number, error);
	case TC_PARAMETER_WORD: {
		size_t index = find_choice(parameter->choices, text);
		if (index == SIZE_MAX)
			return refuse_choice(what, parameter->choices, text, error);
		value->number = index;
		value->is_auto = strcmp(text, "auto") == 0;
		return TC_OK;
	}
	case TC_PARAMETER_SIZES:
		return parse_sizes(what, text, value, error);
	default:
		return TC_OK;
	}
}

static enum tc_status unknown_key(const struct tc_policy *policy, const char *key,
                                  struct tc_error *error)
{
	const char *names[64], *nearest;
	size_t count = policy->parameter_count < 64 ? policy->parameter_count : 64;
	for (size_t i = 0; i < count; ++i)
		names[i] = policy->parameters[i].name;
	nearest = tc_nearest_name(key, names, count);
	if (nearest != NULL)
		return tc_error_set(error, TC_ARGUMENT,
		                    "policy %s has no parameter \"%.80s\"; did you mean \"%s\"?",
		                    policy->name, key, nearest);
	return tc_error_set(
	    error, TC_ARGUMENT,
	    "policy %s has no parameter \"%.80s\"; `tencache-sim policies %s` lists "
	    "its %zu",
	    policy->name, key, policy->name, policy->parameter_count);
}

/** "10cache: slack" for messages. */
static void name_value(const struct tc_policy *policy, const char *key, char *what, size_t bytes)
{
	size_t length = strlen(policy->name);
	length = length < bytes / 2 ? length : bytes / 2;
	memcpy(what, policy->name, length);
	memcpy(what + length, ": ", 2);
	size_t key_length = strlen(key);
	if (key_length > bytes - length - 3)
		key_length = bytes - length - 3;
	memcpy(what + length + 2, key, key_length);
	what[length + 2 + key_length] = '\0';
}

/** One `key=value`, which is cut in place. */
static enum tc_status parse_pair(struct tc_policy_choice *choice, char *pair, bool *given,
                                 struct tc_error *error)
{
	const struct tc_policy *policy = choice->policy;
	char *value = strchr(pair, '='), what[128];
	if (value != NULL)
		*value++ = '\0';
	size_t i = 0;
	while (i < policy->parameter_count && strcmp(policy->parameters[i].name, pair) != 0)
		++i;
	if (i == policy->parameter_count)
		return unknown_key(policy, pair, error);
	name_value(policy, pair, what, sizeof what);
	if (value == NULL || *value == '\0')
		return tc_error_set(error, TC_ARGUMENT, "%s has no value; write %s=%s", what, pair,
		                    policy->parameters[i].default_text);
	if (given[i])
		return tc_error_set(error, TC_ARGUMENT, "%s is given twice", what);
	given[i] = true;
	choice->values[i].is_default = false;
	return parse_value(&policy->parameters[i], what, value, &choice->values[i], error);
}

static enum tc_status parse_defaults(struct tc_policy_choice *choice, struct tc_error *error)
{
	const struct tc_policy *policy = choice->policy;
	for (size_t i = 0; i < policy->parameter_count; ++i) {
		const struct tc_policy_parameter *parameter = &policy->parameters[i];
		struct tc_error inner = {0};
		if (!choice->values[i].is_default)
			continue;
		if (parse_value(parameter, parameter->name, parameter->default_text,
		                &choice->values[i], &inner) != TC_OK)
			return tc_error_set(error, TC_INTERNAL, "policy %s: its own default: %s",
			                    policy->name, inner.text);
	}
	return TC_OK;
}

/** Name and given parameters in table order; never longer than what was typed. */
static void write_canonical(struct tc_policy_choice *choice, const bool *given)
{
	const struct tc_policy *policy = choice->policy;
	char *p = choice->text;
	size_t length = strlen(policy->name);
	memcpy(p, policy->name, length);
	p += length;
	for (size_t i = 0; i < policy->parameter_count; ++i) {
		if (!given[i])
			continue;
		const char *parts[] = {":", policy->parameters[i].name, "=",
		                       choice->values[i].text};
		for (size_t k = 0; k < 4; ++k) {
			length = strlen(parts[k]);
			memcpy(p, parts[k], length);
			p += length;
		}
	}
	*p = '\0';
}

/** Cut `work` (NAME:key=value:…) and fill the choice; `given` is zeroed. */
static enum tc_status parse_work(struct tc_policy_choice *choice, char *parameters, bool *given,
                                 struct tc_error *error)
{
	while (parameters != NULL) {
		char *next = strchr(parameters, ':');
		if (next != NULL)
			*next++ = '\0';
		TC_TRY(parse_pair(choice, parameters, given, error));
		parameters = next;
	}
	TC_TRY(parse_defaults(choice, error));
	write_canonical(choice, given);
	return TC_OK;
}

/**
 * One block: the choice, its values, the text that the values point into, the canonical text. Lists
 * of sizes are blocks of their own.
 */
enum tc_status tci_policy_parse_in(const struct tc_policy *const *table, size_t count,
                                   const char *text, struct tc_policy_choice **choice,
                                   struct tc_error *error)
{
	char name[64];
	size_t length = strlen(text), name_length = strcspn(text, ":");
	if (name_length >= sizeof name || length > 65536)
		return tc_error_set(error, TC_ARGUMENT, "policy \"%.40s…\" is too long", text);
	memcpy(name, text, name_length);
	name[name_length] = '\0';
	const struct tc_policy *policy = NULL;
	TC_TRY(tci_policy_find_in(table, count, name, &policy, error));

	size_t n = policy->parameter_count;
	struct tc_policy_choice *result =
	    calloc(1, sizeof *result + n * sizeof *result->values + 2 * (length + 1));
	bool *given = calloc(n + 1, sizeof *given);
	if (result == NULL || given == NULL) {
		free(result);
		free(given);
		return tc_error_no_memory(error, "a policy's parameters", length);
	}
	result->policy = policy;
	result->value_count = n;
	result->values = (struct tc_policy_value *)(void *)(result + 1);
	char *work = (char *)(result->values + n);
	result->text = work + length + 1;
	memcpy(work, text, length + 1);
	for (size_t i = 0; i < n; ++i)
		result->values[i].is_default = true;
	char *parameters = work[name_length] == ':' ? work + name_length + 1 : NULL;
	enum tc_status status = parse_work(result, parameters, given, error);
	free(given);
	if (status == TC_OK)
		*choice = result;
	else
		tc_policy_choice_free(result);
	return status;
}

enum tc_status tc_policy_find(const char *name, const struct tc_policy **policy,
                              struct tc_error *error)
{
	size_t count;
	const struct tc_policy *const *table = tc_policies(&count);
	return tci_policy_find_in(table, count, name, policy, error);
}

enum tc_status tc_policy_parse(const char *text, struct tc_policy_choice **choice,
                               struct tc_error *error)
{
	size_t count;
	const struct tc_policy *const *table = tc_policies(&count);
	return tci_policy_parse_in(table, count, text, choice, error);
}

void tc_policy_choice_free(struct tc_policy_choice *choice)
{
	/* The policy may be gone. */
	for (size_t i = 0; choice != NULL && i < choice->value_count; ++i)
		free(choice->values[i].sizes);
	free(choice);
}

/* ---------------------------------------------------------------- lists */

static void shorten(struct tc_policy_list *list, size_t count)
{
	while (list->count > count)
		tc_policy_choice_free(list->choices[--list->count]);
}

static enum tc_status add_one(struct tc_policy_list *list, const char *text, size_t length,
                              struct tc_error *error)
{
	if (!tc_grow_array(&list->choices, &list->capacity, list->count + 1, sizeof *list->choices))
		return tc_error_no_memory(error, "a list of policies", length);
	char *one = malloc(length + 1);
	if (one == NULL)
		return tc_error_no_memory(error, "a policy", length);
	memcpy(one, text, length);
	one[length] = '\0';
	enum tc_status status = tc_policy_parse(one, &list->choices[list->count], error);
	free(one);
	list->count += status == TC_OK;
	return status;
}

enum tc_status tc_policy_list_add(struct tc_policy_list *list, const char *text,
                                  struct tc_error *error)
{
	size_t before = list->count;
	for (const char *p = text;; ++p) {
		size_t length = strcspn(p, ",");
		enum tc_status status = add_one(list, p, length, error);
		if (status != TC_OK) {
			shorten(list, before);
			return status;
		}
		p += length;
		if (*p == '\0')
			return TC_OK;
	}
}

void tc_policy_list_clear(struct tc_policy_list *list)
{
	shorten(list, 0);
	free(list->choices);
	*list = (struct tc_policy_list){0};
}
