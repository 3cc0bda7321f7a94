/**
 * @file csv_report.c
 * A report as CSV: the JSON objects flattened, keys joined by dots. Lists and parameters (which
 * differ from policy to policy, and are in the full policy string) have no columns.
 */
#include <stdlib.h>
#include <string.h>

#include "print.h"
#include "tencache/units.h"

/** Objects of a report are nested less deep. */
#define MAX_DEPTH 8
#define LONGEST_NAME 256

struct columns {
	FILE *out;
	bool names; /**< print names, else values */
	bool blank; /**< values of an infeasible policy */
	bool first;
};

/** RFC 4180: quotes around what holds a comma, a quote or a line break; quotes doubled. */
static void put(FILE *out, const char *text)
{
	if (strpbrk(text, ",\"\r\n") == NULL) {
		(void)fputs(text, out);
		return;
	}
	(void)fputc('"', out);
	for (; *text != '\0'; ++text) {
		if (*text == '"')
			(void)fputc('"', out);
		(void)fputc(*text, out);
	}
	(void)fputc('"', out);
}

static void put_column(struct columns *columns, const char *name, const json_t *value)
{
	if (!columns->first)
		(void)fputc(',', columns->out);
	columns->first = false;
	if (columns->names) {
		put(columns->out, name);
	} else if (columns->blank) {
		return;
	} else if (json_is_integer(value)) {
		(void)fprintf(columns->out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	} else if (json_is_boolean(value)) {
		(void)fputs(json_is_true(value) ? "true" : "false", columns->out);
	} else if (json_is_string(value)) {
		put(columns->out, json_string_value(value));
	}
}

static void flatten(struct columns *columns, const char *prefix, const json_t *object,
                    unsigned depth)
{
	const char *key;
	json_t *value;
	if (depth > MAX_DEPTH)
		return;
	json_object_foreach((json_t *)object, key, value)
	{
		char name[LONGEST_NAME];
		int length =
		    snprintf(name, sizeof name, "%s%s%s", prefix, *prefix != '\0' ? "." : "", key);
		if (length < 0 || (size_t)length >= sizeof name)
			continue; /* no key of ours is that long */
		if (json_is_array(value) || (depth == 0 && strcmp(key, "parameters") == 0))
			continue;
		if (json_is_object(value))
			flatten(columns, name, value, depth + 1);
		else
			put_column(columns, name, value);
	}
}

static void put_text(struct columns *columns, const char *name, const char *text)
{
	json_t *value = json_string(text);
	put_column(columns, name, value);
	json_decref(value);
}

static void put_head(struct columns *columns, const struct tci_document *document,
                     const char *const *names, const char *const *values, size_t count)
{
	for (size_t i = 0; i < count; ++i)
		put_text(columns, names[i], values[i]);
	put_text(columns, "trace.name", document->trace->name);
	put_text(columns, "trace.sha256", document->trace->sha256);
	put_text(columns, "trace.requests", tc_request_mode_name(document->steps->request_mode));
	put_text(columns, "machine.name", document->machine->name);
	put_text(columns, "machine.sha256", document->machine->sha256);
}

/** One line: of names, or of the values of `result`; `shape` is the object of any result that is
 * feasible, from which an infeasible one takes its empty columns. */
static void put_line(struct columns *columns, const struct tci_document *document,
                     const json_t *result, const json_t *shape, const char *const *names,
                     const char *const *values, size_t count)
{
	static const char *const own[] = {"policy", "status", "message"};
	columns->first = true;
	put_head(columns, document, names, values, count);
	for (size_t i = 0; i < sizeof own / sizeof *own; ++i)
		put_column(columns, own[i], json_object_get(result, own[i]));
	columns->blank = !columns->names && json_object_get(result, "iteration_ps") == NULL;
	json_t *rest = json_copy((json_t *)(columns->blank ? shape : result));
	for (size_t i = 0; i < sizeof own / sizeof *own; ++i)
		(void)json_object_del(rest, own[i]);
	flatten(columns, "", rest, 0);
	json_decref(rest);
	columns->blank = false;
	(void)fputs("\n", columns->out);
}

enum tc_status tci_print_csv_rows(FILE *out, const struct tci_document *document, bool header,
                                  const char *const *names, const char *const *values, size_t count,
                                  struct tc_error *error)
{
	struct columns columns = {.out = out};
	struct tc_result empty = {.status = TC_OK, .policy = (char *)""};
	json_t *shape = tci_result_json(document, &empty);
	if (shape == NULL)
		return tc_error_no_memory(error, "a report", 0);
	if (header) {
		columns.names = true;
		put_line(&columns, document, shape, shape, names, values, count);
		columns.names = false;
	}
	enum tc_status status = TC_OK;
	for (size_t i = 0; i < document->result_count && status == TC_OK; ++i) {
		json_t *result = tci_result_json(document, &document->results[i]);
		if (result == NULL)
			status = tc_error_no_memory(error, "a report", 0);
		else
			put_line(&columns, document, result, shape, names, values, count);
		json_decref(result);
	}
	json_decref(shape);
	if (status == TC_OK && ferror(out))
		status = tc_error_set(error, TC_IO, "cannot write the report");
	return status;
}

enum tc_status tci_print_csv(FILE *out, const struct tci_document *document, struct tc_error *error)
{
	return tci_print_csv_rows(out, document, true, NULL, NULL, 0, error);
}
