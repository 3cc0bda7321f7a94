/* Where a JSON value ends, without looking at what is in it. */
#include "json_scan.h"

#include "json_record.h"

/** Nothing to look at: neither quote, backslash nor bracket. */
static bool is_plain(unsigned char byte)
{
	switch (byte) {
	case '"':
	case '\\':
	case '{':
	case '}':
	case '[':
	case ']':
		return false;
	default:
		return true;
	}
}

size_t tci_json_scan(struct tci_json_scan *scan, const char *text, size_t from, size_t limit)
{
	for (size_t i = from; i < limit; i++) {
		unsigned char byte = (unsigned char)text[i];
		if (is_plain(byte)) {
			scan->escaped = false;
		} else if (scan->in_string) {
			if (scan->escaped)
				scan->escaped = false;
			else if (byte == '\\')
				scan->escaped = true;
			else if (byte == '"')
				scan->in_string = false;
		} else if (byte == '"') {
			scan->in_string = true;
		} else if (byte == '{' || byte == '[') {
			if (++scan->depth > TCI_JSON_DEEPEST)
				return 0;
		} else if (byte == '}' || byte == ']') {
			if (scan->depth > 0)
				scan->depth--;
		}
		if (scan->depth == 0 && !scan->in_string)
			return i + 1;
	}
	return 0;
}
