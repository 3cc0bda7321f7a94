/** @file schedule_reader.h
 * Private: what the parts of the schedule reader share. A record is parsed, checked and handed to a
 * sink before the next one is read.
 *
 *   schedule_reader.c   entry point, the loop over records, hashes
 *   schedule_header.c   header and tensor table
 *   schedule_command.c  commands and the end record
 *   schedule_fields.c   typed access to members
 */
#ifndef TENCACHE_SRC_SCHEDULE_READER_H
#define TENCACHE_SRC_SCHEDULE_READER_H

#include "blocks.h"
#include "schedule_fields.h"

struct tci_schedule_reader {
	const char *file;
	struct tc_plan_info info;
	struct tci_blocks *blocks; /**< strings and pools of the header and the tensor table */
	struct tc_plan_tensor *tensors;
	size_t tensor_capacity;
	struct tc_initial_copy *copies;
	size_t copy_capacity;
	uint64_t tensors_claimed; /**< by the header */
	uint64_t commands;

	/* Lists of the command at hand, used again for the next one. */
	struct tc_dependency *deps;
	struct tc_bind *binds;
	struct tc_served *served;
	struct tc_memory_change *memory;
	struct tc_final_place *places;
	size_t dep_capacity, bind_capacity, served_capacity, memory_capacity, place_capacity;
};

enum tc_status tci_schedule_read_header(struct tci_schedule_reader *reader,
                                        struct tci_fields *fields);
enum tc_status tci_schedule_read_tensor(struct tci_schedule_reader *reader,
                                        struct tci_fields *fields);
/** The command's lists live until the next call. */
enum tc_status tci_schedule_read_command(struct tci_schedule_reader *reader,
                                         struct tci_fields *fields, struct tc_command *command);
enum tc_status tci_schedule_read_end(struct tci_schedule_reader *reader, struct tci_fields *fields,
                                     struct tc_plan_end *end);

#endif
