#include "files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *test_read_file(const char *path, size_t *bytes)
{
	FILE *file = fopen(path, "rb");
	if (file == NULL)
		return NULL;
	char *content = NULL;
	size_t capacity = 0, used = 0, got;
	do {
		capacity += 65536;
		char *grown = realloc(content, capacity + 1);
		if (grown == NULL)
			abort();
		content = grown;
		got = fread(content + used, 1, capacity - used, file);
		used += got;
	} while (used == capacity);
	fclose(file);
	content[used] = '\0';
	*bytes = used;
	return content;
}

static int compare_names(const void *left, const void *right)
{
	return strcmp(*(char *const *)left, *(char *const *)right);
}

char **test_list_folder(const char *path, size_t *count)
{
	DIR *folder = opendir(path);
	char **names = NULL;
	*count = 0;
	if (folder == NULL)
		return NULL;
	for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
		if (entry->d_name[0] == '.')
			continue;
		char **grown = realloc(names, (*count + 1) * sizeof *names);
		char *copy = malloc(strlen(entry->d_name) + 1);
		if (grown == NULL || copy == NULL)
			abort();
		names = grown;
		names[(*count)++] = strcpy(copy, entry->d_name);
	}
	closedir(folder);
	if (*count > 0)
		qsort(names, *count, sizeof *names, compare_names);
	return names;
}

void test_free_names(char **names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(names[i]);
	free(names);
}
