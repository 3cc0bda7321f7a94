/* Policy strings against a table of the test's own, so that every type of parameter occurs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "policy_parse.h"

static const struct tc_policy_parameter parameters[] = {
    {"victim", TC_PARAMETER_WORD, "farthest", "", "code|farthest", "", ""},
    {"slack", TC_PARAMETER_COUNT, "30", "rows", NULL, "", ""},
    {"resident", TC_PARAMETER_COUNT, "auto", "rows", NULL, "", ""},
    {"buffer-size", TC_PARAMETER_COUNT, "1e8", "elements", "auto", "", ""},
    {"pool", TC_PARAMETER_BYTES, "1GiB", "bytes", NULL, "", ""},
    {"share", TC_PARAMETER_FACTOR, "0.67", "", NULL, "", ""},
    {"buffers", TC_PARAMETER_SIZES, "auto", "", NULL, "", ""},
    {"optimizer", TC_PARAMETER_WORD, "cpu", "", "auto|gpu|cpu", "", ""},
    {"remark", TC_PARAMETER_TEXT, "", "", NULL, "", ""},
};
static const struct tc_policy with_parameters = {.name = "10cache",
                                                 .parameters = parameters,
                                                 .parameter_count =
                                                     sizeof parameters / sizeof *parameters};
static const struct tc_policy plain = {.name = "lru"};
static const struct tc_policy_parameter broken_parameters[] = {
    {"n", TC_PARAMETER_COUNT, "many", "", NULL, "", ""}};
static const struct tc_policy broken = {
    .name = "broken", .parameters = broken_parameters, .parameter_count = 1};
static const struct tc_policy *const table[] = {&plain, &with_parameters, &broken};

static struct tc_policy_choice *parse(const char *text)
{
	struct tc_error error = {0};
	struct tc_policy_choice *choice = NULL;
	if (tci_policy_parse_in(table, 3, text, &choice, &error) != TC_OK)
		fail_msg("\"%s\": %s", text, error.text);
	return choice;
}

static void test_defaults(void **state)
{
	(void)state;
	struct tc_policy_choice *c = parse("10cache");
	assert_string_equal(c->text, "10cache");
	assert_ptr_equal(c->policy, &with_parameters);
	for (size_t i = 0; i < with_parameters.parameter_count; ++i)
		assert_true(c->values[i].is_default);
	assert_int_equal(c->values[0].number, 1);
	assert_int_equal(c->values[1].number, 30);
	assert_true(c->values[2].is_auto);
	assert_int_equal(c->values[3].number, 100000000);
	assert_int_equal(c->values[4].number, 1 << 30);
	assert_int_equal(c->values[5].number, 670000);
	assert_true(c->values[6].is_auto);
	assert_int_equal(c->values[6].size_count, 0);
	assert_int_equal(c->values[7].number, 2);
	assert_string_equal(c->values[8].text, "");
	tc_policy_choice_free(c);
	c = parse("lru");
	assert_string_equal(c->text, "lru");
	tc_policy_choice_free(c);
}

static void test_given(void **state)
{
	(void)state;
	struct tc_policy_choice *c = parse(
	    "10cache:share=2.5:slack=15:victim=code:buffer-size=auto:pool=1.5G:buffers=8192x4/64x1:"
	    "resident=348:remark=x2:optimizer=auto");
	/* In the order of the table, as given. */
	assert_string_equal(c->text,
	                    "10cache:victim=code:slack=15:resident=348:buffer-size=auto:pool=1.5G:"
	                    "share=2.5:buffers=8192x4/64x1:optimizer=auto:remark=x2");
	assert_int_equal(c->values[0].number, 0);
	assert_int_equal(c->values[1].number, 15);
	assert_false(c->values[2].is_auto);
	assert_int_equal(c->values[2].number, 348);
	assert_true(c->values[3].is_auto);
	assert_int_equal(c->values[4].number, 1500000000);
	assert_int_equal(c->values[5].number, 2500000);
	assert_string_equal(c->values[6].text, "8192x4/64x1");
	assert_false(c->values[6].is_auto);
	assert_int_equal(c->values[6].size_count, 2);
	assert_int_equal(c->values[6].sizes[0].bytes, 8192);
	assert_int_equal(c->values[6].sizes[0].count, 4);
	assert_int_equal(c->values[6].sizes[1].bytes, 64);
	assert_int_equal(c->values[6].sizes[1].count, 1);
	assert_true(c->values[7].is_auto);
	assert_string_equal(c->values[8].text, "x2");
	for (size_t i = 0; i < with_parameters.parameter_count; ++i)
		assert_false(c->values[i].is_default);
	tc_policy_choice_free(c);
}

static void test_refused(void **state)
{
	(void)state;
	static const struct {
		const char *text, *part;
	} cases[] = {
	    {"10chace", "did you mean \"10cache\""},
	    {"capuchin", "tencache-sim policies"},
	    {"", "unknown policy"},
	    {":slack=1", "unknown policy"},
	    {"10cache:slak=1", "did you mean \"slack\""},
	    {"10cache:lookahead=1", "tencache-sim policies 10cache"},
	    {"10cache:", "no parameter"},
	    {"10cache:slack", "write slack=30"},
	    {"10cache:slack=", "has no value"},
	    {"10cache:slack=1:slack=2", "given twice"},
	    {"10cache:slack=-1", "negative"},
	    {"10cache:slack=1.5", "whole number"},
	    {"10cache:slack=auto", "cannot be auto"},
	    {"10cache:slack=99999999999999999999", "10cache: slack"},
	    {"10cache:victim=farthst", "did you mean \"farthest\""},
	    {"10cache:victim=lru", "none of code|farthest"},
	    {"10cache:victim=code|farthest", "none of code|farthest"},
	    {"10cache:victim=|", "none of"},
	    {"10cache:pool=3Gb", "bits"},
	    {"10cache:share=nan", "not a number"},
	    {"10cache:buffers=1000", "10cache: buffers: \"1000\": expected BYTESxCOUNT"},
	    {"10cache:buffers=1000x", "BYTESxCOUNT"},
	    {"10cache:buffers=1000x2;3", "BYTESxCOUNT"},
	    {"10cache:buffers=1000x2/", "BYTESxCOUNT"},
	    {"10cache:buffers=/1000x2", "BYTESxCOUNT"},
	    {"10cache:buffers=x2", "BYTESxCOUNT"},
	    {"10cache:buffers=1000x-2", "BYTESxCOUNT"},
	    {"10cache:buffers=-1000x2", "BYTESxCOUNT"},
	    {"10cache:buffers= 1000x2", "BYTESxCOUNT"},
	    {"10cache:buffers=1000x4294967296", "below 2^32"},
	    {"10cache:buffers=18446744073709551616x2", "BYTESxCOUNT"},
	    {"lru:x=1", "lists its 0"},
	    {"10cache,lru", "unknown policy"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
		struct tc_error error = {0};
		struct tc_policy_choice *choice = NULL;
		enum tc_status status =
		    tci_policy_parse_in(table, 3, cases[i].text, &choice, &error);
		if (status == TC_OK || strstr(error.text, cases[i].part) == NULL)
			fail_msg("\"%s\": status %s, \"%s\"", cases[i].text, tc_status_name(status),
			         error.text);
		assert_null(choice);
	}
	struct tc_error error = {0};
	struct tc_policy_choice *choice = NULL;
	assert_int_equal(tci_policy_parse_in(table, 3, "broken", &choice, &error), TC_INTERNAL);
	char longest[300];
	memset(longest, 'a', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	struct tc_error too_long = {0};
	assert_int_equal(tci_policy_parse_in(table, 3, longest, &choice, &too_long), TC_ARGUMENT);
}

/** What every policy in the real table must keep: names fit file names, defaults parse. */
static void test_real_table(void **state)
{
	(void)state;
	size_t count;
	const struct tc_policy *const *policies = tc_policies(&count);
	for (size_t i = 0; i < count; ++i) {
		const struct tc_policy *p = policies[i];
		assert_int_equal(strspn(p->name, "abcdefghijklmnopqrstuvwxyz0123456789-"),
		                 strlen(p->name));
		assert_true(*p->summary != '\0' && *p->source != '\0');
		struct tc_error error = {0};
		struct tc_policy_choice *choice = NULL;
		if (tc_policy_parse(p->name, &choice, &error) != TC_OK)
			fail_msg("%s", error.text);
		tc_policy_choice_free(choice);
		for (size_t k = 0; k < p->parameter_count; ++k) {
			const struct tc_policy_parameter *q = &p->parameters[k];
			if (*q->help == '\0' || *q->source == '\0')
				fail_msg("%s: %s lacks help or source", p->name, q->name);
		}
	}
}

static void test_list(void **state)
{
	(void)state;
	size_t count;
	const struct tc_policy *const *policies = tc_policies(&count);
	struct tc_policy_list list = {0};
	struct tc_error error = {0};
	assert_int_equal(tc_policy_list_add(&list, "no-such-policy", &error), TC_ARGUMENT);
	assert_int_equal(list.count, 0);
	if (count > 0) {
		char text[200];
		const char *name = policies[0]->name;
		(void)snprintf(text, sizeof text, "%s,%s", name, name);
		struct tc_error second = {0};
		assert_int_equal(tc_policy_list_add(&list, text, &second), TC_OK);
		assert_int_equal(list.count, 2);
		assert_string_equal(list.choices[1]->text, name);
		(void)snprintf(text, sizeof text, "%s,%s,", name, name);
		assert_int_equal(tc_policy_list_add(&list, text, &second), TC_ARGUMENT);
		assert_int_equal(list.count, 2);
	}
	tc_policy_list_clear(&list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_defaults), cmocka_unit_test(test_given),
	    cmocka_unit_test(test_refused),  cmocka_unit_test(test_real_table),
	    cmocka_unit_test(test_list),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
