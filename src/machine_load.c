/**
 * @file machine_load.c
 * Files and presets. A preset is NAME.json in one of the preset directories; the first one found
 * wins: those of the environment variable TENCACHE_MACHINES (joined by colons), then the source
 * tree of the build, then the installed share directory.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tencache/machine.h"
#include "tencache/units.h"

/** A description is some kilobytes. */
#define MAX_FILE_BYTES (1u << 20)
#define EXTENSION ".json"

struct name_list {
	char **names;
	size_t count, capacity;
	bool out_of_memory;
};

/** Join of `length` bytes of a directory, a name and an extension; free(). */
static char *join(const char *directory, size_t length, const char *name, const char *extension)
{
	size_t bytes = length + strlen(name) + strlen(extension) + 2;
	char *path = malloc(bytes);
	if (path != NULL)
		(void)snprintf(path, bytes, "%.*s/%s%s", (int)length, directory, name, extension);
	return path;
}

/** Calls `visit` for each preset directory until it returns false. */
static void each_directory(const char *preset_directory,
                           bool (*visit)(void *self, const char *directory, size_t length),
                           void *self)
{
	if (preset_directory != NULL) {
		(void)visit(self, preset_directory, strlen(preset_directory));
		return;
	}
	const char *list = getenv("TENCACHE_MACHINES");
	while (list != NULL && *list != '\0') {
		size_t length = strcspn(list, ":");
		if (length > 0 && length < 4096 && !visit(self, list, length))
			return;
		list += length + (list[length] == ':');
	}
	static const char *const fixed[] = {TENCACHE_BUILD_MACHINES, TENCACHE_INSTALLED_MACHINES};
	for (size_t i = 0; i < 2; ++i)
		if (!visit(self, fixed[i], strlen(fixed[i])))
			return;
}

/* ---------------------------------------------------------------- names */

static bool is_preset_file(const char *file)
{
	size_t length = strlen(file), tail = strlen(EXTENSION);
	return length > tail && strcmp(file + length - tail, EXTENSION) == 0 && *file != '.';
}

static bool add_name(struct name_list *list, const char *file)
{
	size_t length = strlen(file) - strlen(EXTENSION);
	for (size_t i = 0; i < list->count; ++i)
		if (strlen(list->names[i]) == length && memcmp(list->names[i], file, length) == 0)
			return true;
	if (!tc_grow_array(&list->names, &list->capacity, list->count + 1, sizeof *list->names))
		return false;
	char *name = malloc(length + 1);
	if (name == NULL)
		return false;
	memcpy(name, file, length);
	name[length] = '\0';
	list->names[list->count++] = name;
	return true;
}

static bool collect(void *self, const char *directory, size_t length)
{
	struct name_list *list = self;
	char *path = join(directory, length, "", "");
	DIR *stream = path != NULL ? opendir(path) : NULL;
	free(path);
	if (stream == NULL)
		return true;
	bool good = true;
	for (struct dirent *entry; good && (entry = readdir(stream)) != NULL;)
		if (is_preset_file(entry->d_name))
			good = add_name(list, entry->d_name);
	(void)closedir(stream);
	list->out_of_memory = !good;
	return good;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

enum tc_status tc_machine_names(const char *preset_directory, char ***names, size_t *count,
                                struct tc_error *error)
{
	struct name_list list = {0};
	each_directory(preset_directory, collect, &list);
	if (list.out_of_memory) {
		tc_machine_names_free(list.names, list.count);
		return tc_error_no_memory(error, "the names of machines", 0);
	}
	if (list.count > 1)
		qsort(list.names, list.count, sizeof *list.names, compare_names);
	*names = list.names;
	*count = list.count;
	return TC_OK;
}

void tc_machine_names_free(char **names, size_t count)
{
	for (size_t i = 0; i < count; ++i)
		free(names[i]);
	free(names);
}

/* ---------------------------------------------------------------- loading */

static enum tc_status read_stream(FILE *file, const char *path, char **text, size_t *bytes,
                                  struct tc_error *error)
{
	*text = malloc(MAX_FILE_BYTES + 1);
	if (*text == NULL)
		return tc_error_no_memory(error, path, MAX_FILE_BYTES);
	*bytes = fread(*text, 1, MAX_FILE_BYTES + 1, file);
	if (ferror(file))
		return tc_error_set(error, TC_IO, "cannot read machine %s: %s", path,
		                    strerror(errno));
	if (*bytes > MAX_FILE_BYTES)
		return tc_error_set(error, TC_FORMAT,
		                    "%s is larger than %u bytes: not a machine description", path,
		                    MAX_FILE_BYTES);
	return TC_OK;
}

static enum tc_status load_file(const char *path, struct tc_machine **machine,
                                struct tc_error *error)
{
	FILE *file = fopen(path, "rb");
	if (file == NULL)
		return tc_error_set(error, TC_IO, "cannot open machine %s: %s", path,
		                    strerror(errno));
	char *text = NULL;
	size_t bytes = 0;
	enum tc_status status = read_stream(file, path, &text, &bytes, error);
	(void)fclose(file);
	if (status == TC_OK)
		status = tc_machine_parse(text, bytes, path, machine, error);
	free(text);
	return status;
}

struct preset_search {
	const char *name;
	char *path; /**< owned; NULL: not found */
};

static bool find_preset(void *self, const char *directory, size_t length)
{
	struct preset_search *search = self;
	char *path = join(directory, length, search->name, EXTENSION);
	FILE *file = path != NULL ? fopen(path, "rb") : NULL;
	if (file == NULL) {
		free(path);
		return true;
	}
	(void)fclose(file);
	search->path = path;
	return false;
}

static enum tc_status unknown_machine(const char *name, const char *preset_directory,
                                      struct tc_error *error)
{
	char **names, list[512] = "";
	size_t count, length = 0;
	TC_TRY(tc_machine_names(preset_directory, &names, &count, error));
	for (size_t i = 0; i < count && length < sizeof list; ++i)
		length += (size_t)snprintf(list + length, sizeof list - length, "%s%s",
		                           i > 0 ? ", " : "", names[i]);
	const char *nearest = tc_nearest_name(name, (const char *const *)names, count);
	enum tc_status status;
	if (nearest != NULL)
		status =
		    tc_error_set(error, TC_ARGUMENT,
		                 "unknown machine \"%.80s\"; did you mean \"%s\"?", name, nearest);
	else
		status =
		    tc_error_set(error, TC_ARGUMENT,
		                 "unknown machine \"%.80s\"; presets: %s; or give the path of a "
		                 "JSON file",
		                 name, count > 0 ? list : "none found (set TENCACHE_MACHINES)");
	tc_machine_names_free(names, count);
	return status;
}

enum tc_status tc_machine_load(const char *name_or_path, const char *preset_directory,
                               struct tc_machine **machine, struct tc_error *error)
{
	size_t length = strlen(name_or_path), tail = strlen(EXTENSION);
	if (strchr(name_or_path, '/') != NULL ||
	    (length > tail && strcmp(name_or_path + length - tail, EXTENSION) == 0))
		return load_file(name_or_path, machine, error);
	struct preset_search search = {.name = name_or_path};
	if (length > 0 && length < 256)
		each_directory(preset_directory, find_preset, &search);
	if (search.path == NULL)
		return unknown_machine(name_or_path, preset_directory, error);
	enum tc_status status = load_file(search.path, machine, error);
	free(search.path);
	return status;
}
