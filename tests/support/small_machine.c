#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "small_machine.h"

struct tc_machine *small_machine_parse(const char *json)
{
	struct tc_error error = {0};
	struct tc_machine *machine = NULL;
	if (tc_machine_parse(json, strlen(json), "small.json", &machine, &error) != TC_OK)
		fail_msg("%s", error.text);
	return machine;
}
