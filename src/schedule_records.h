/** @file schedule_records.h
 * Private: the records of a schedule file as text. Format: src/SCHEDULE.md.
 */
#ifndef TENCACHE_SRC_SCHEDULE_RECORDS_H
#define TENCACHE_SRC_SCHEDULE_RECORDS_H

#include "schedule_text.h"
#include "tencache/schedule.h"

#define TCI_SCHEDULE_FORMAT "tencache-schedule"
#define TCI_SCHEDULE_VERSION "1.0"

void tci_record_header(struct tci_text *text, const struct tc_plan_info *info);
void tci_record_tensor(struct tci_text *text, const struct tc_plan_info *info, uint32_t tensor);
/** @param op_ps times of the trace's ops, or NULL where they are not known */
void tci_record_command(struct tci_text *text, const struct tc_plan_info *info,
                        const struct tc_command *command, const uint64_t *op_ps);
void tci_record_end(struct tci_text *text, const struct tc_plan_end *end);

/** One letter for an access: r, w, u (read and written). */
char tci_access_letter(enum tc_access access);

#endif
