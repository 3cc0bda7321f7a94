/* Numbers of a record as exact integers of a smaller unit: decimal arithmetic, no floating point.
 */
#include "json_record.h"
#include "tencache/units.h"

static bool is_digit(char byte)
{
	return byte >= '0' && byte <= '9';
}

/** A number as digits x 10^exponent. */
struct decimal {
	uint64_t digits;
	int64_t exponent;
	bool full;   /* further digits did not fit */
	bool sticky; /* and were not all zero */
};

static void add_digit(struct decimal *decimal, char byte, bool fraction)
{
	uint64_t digit = (uint64_t)(byte - '0');
	decimal->full = decimal->full || decimal->digits > (UINT64_MAX - digit) / 10;
	if (!decimal->full) {
		decimal->digits = decimal->digits * 10 + digit;
		decimal->exponent -= fraction;
	} else {
		decimal->sticky = decimal->sticky || digit != 0;
		decimal->exponent += !fraction;
	}
}

static struct decimal read_decimal(const char *at, const char *end)
{
	struct decimal decimal = {0, 0, false, false};
	bool fraction = false;
	for (; at < end && *at != 'e' && *at != 'E'; at++) {
		if (*at == '.')
			fraction = true;
		else
			add_digit(&decimal, *at, fraction);
	}
	if (at == end)
		return decimal;
	bool minus = at + 1 < end && at[1] == '-';
	int64_t exponent = 0;
	for (at++; at < end; at++) {
		if (is_digit(*at) && exponent < 100000)
			exponent = exponent * 10 + (*at - '0');
	}
	decimal.exponent += minus ? -exponent : exponent;
	return decimal;
}

bool tci_json_scaled(const struct tci_json *number, int digits, uint64_t *result)
{
	const char *at = number->text, *end = at + number->text_bytes;
	bool minus = *at == '-';
	struct decimal decimal = read_decimal(at + minus, end);
	int64_t exponent = decimal.exponent + digits;
	if (decimal.digits == 0 || exponent < -20) {
		*result = 0; /* below one half, or nothing at all */
		return !minus || decimal.digits == 0;
	}
	if (minus || (exponent > 0 && decimal.full))
		return false;
	uint64_t value = decimal.digits, divisor = 1;
	for (; exponent > 0; exponent--) {
		if (!tc_mul_u64(value, 10, &value))
			return false;
	}
	/* 10^20 does not fit, but then value / 10^19 is 0 or 1, and one more digit makes it 0. */
	if (exponent == -20) {
		*result = 0;
		return true;
	}
	for (; exponent < 0; exponent++)
		divisor *= 10;
	uint64_t rest = value % divisor, half = divisor / 2;
	value /= divisor;
	bool up =
	    divisor > 1 && (rest > half || (rest == half && (decimal.sticky || value % 2 == 1)));
	*result = value + up;
	return true;
}
