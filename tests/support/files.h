/** Whole files into memory, for fixtures. */
#ifndef TENCACHE_TEST_FILES_H
#define TENCACHE_TEST_FILES_H

#include <stddef.h>

/** The content, zero-terminated; free() it. NULL when the file cannot be read. */
char *test_read_file(const char *path, size_t *bytes);

/** Names in a folder (without "." and ".."), sorted; free with test_free_names(). */
char **test_list_folder(const char *path, size_t *count);
void test_free_names(char **names, size_t count);

#endif
