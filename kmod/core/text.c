// SPDX-License-Identifier: GPL-2.0-only
/* A text that grows, with escapes for the characters that must not reach a terminal. */

#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/string.h>
#include "core.h"

#define FIRST_ROOM 4096
/* The upper bound of the output of a single tt_printf(): numbers and names. */
#define PRINTED_MAX 192

void tt_text_free(struct tt_text *text)
{
	kvfree(text->bytes);
	kfree(text->path);
	memset(text, 0, sizeof(*text));
}

static bool has_room(struct tt_text *text, size_t more)
{
	size_t room = text->room ? text->room : FIRST_ROOM;
	char *bytes;

	if (text->failed)
		return false;
	if (text->length + more <= text->room)
		return true;
	while (room < text->length + more)
		room *= 2;
	bytes = kvmalloc(room, GFP_KERNEL);
	if (!bytes) {
		text->failed = true;
		return false;
	}
	if (text->length)
		memcpy(bytes, text->bytes, text->length);
	kvfree(text->bytes);
	text->bytes = bytes;
	text->room = room;
	return true;
}

void tt_put(struct tt_text *text, const char *bytes, size_t length)
{
	if (!has_room(text, length))
		return;
	memcpy(text->bytes + text->length, bytes, length);
	text->length += length;
}

void tt_puts(struct tt_text *text, const char *string)
{
	tt_put(text, string, strlen(string));
}

void tt_printf(struct tt_text *text, const char *format, ...)
{
	va_list args;

	if (!has_room(text, PRINTED_MAX))
		return;
	va_start(args, format);
	text->length += vscnprintf(text->bytes + text->length, PRINTED_MAX, format, args);
	va_end(args);
}

void tt_number(struct tt_text *text, u64 number)
{
	tt_printf(text, "%llu", number);
}

#define REPLACEMENT 0xfffd

/*
 * The first character, and its number of bytes. Invalid UTF-8 is handled as in the standard (and in Rust's from_utf8_lossy): the
 * longest prefix of a valid character counts as one character, which is replaced.
 */
static u32 character(const u8 *s, size_t length, size_t *bytes)
{
	u32 c = s[0], least = 0x80, most = 0xbf;
	size_t follow, i;

	*bytes = 1;
	if (c < 0x80)
		return c;
	if (c < 0xc2 || c > 0xf4)
		return REPLACEMENT;
	follow = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
	/* No character has two forms, none is a surrogate, and none is above 0x10ffff. */
	if (c == 0xe0)
		least = 0xa0;
	else if (c == 0xed)
		most = 0x9f;
	else if (c == 0xf0)
		least = 0x90;
	else if (c == 0xf4)
		most = 0x8f;
	c &= 0x3f >> follow;
	for (i = 1; i <= follow; i++) {
		if (i == length || s[i] < least || s[i] > most)
			return REPLACEMENT;
		c = c << 6 | (s[i] & 0x3f);
		*bytes = i + 1;
		least = 0x80;
		most = 0xbf;
	}
	return c;
}

static bool within(u32 c, u32 least, u32 most)
{
	return c >= least && c <= most;
}

/*
 * Whether a terminal could obey the character, or the character could mislead a reader: the daemon's `typeset` has the same rule.
 */
static bool is_unsafe(u32 c)
{
	return c < 0x20 || within(c, 0x7f, 0x9f) || c == 0x61c || within(c, 0x200b, 0x200f) || within(c, 0x2028, 0x202e) ||
	       within(c, 0x2060, 0x206f) || c == 0xfeff || within(c, 0xfff9, 0xfffb) || within(c, 0xe0000, 0xe007f);
}

static void put_json_escape(struct tt_text *text, u32 c)
{
	static const char named[] = { ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't' };

	if (c < sizeof(named) && named[c])
		tt_printf(text, "\\%c", named[c]);
	else if (c < 0x10000)
		tt_printf(text, "\\u%04x", c);
	else
		tt_printf(text, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
}

void tt_escaped(struct tt_text *text, enum tt_style style, const char *bytes, size_t length)
{
	const u8 *s = (const u8 *)bytes;
	size_t size, i;
	u32 c;

	for (; length; s += size, length -= size) {
		c = character(s, length, &size);
		if (c == REPLACEMENT)
			tt_puts(text, "\xef\xbf\xbd");
		else if (is_unsafe(c) && style == TT_JSON)
			put_json_escape(text, c);
		else if (is_unsafe(c))
			for (i = 0; i < size; i++)
				tt_printf(text, "\\x%02x", s[i]);
		else if (style == TT_JSON && (c == '"' || c == '\\'))
			tt_printf(text, "\\%c", c);
		else
			tt_put(text, (const char *)s, size);
	}
}
