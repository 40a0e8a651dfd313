/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reads the fields of an event as the constants describe them. The verifier knows the constants, so of each switch and each
 * condition it leaves one branch.
 */
#ifndef TOPSTAT_CUSTOM_FIELDS_BPF_H
#define TOPSTAT_CUSTOM_FIELDS_BPF_H

#include "logic.h"
#include "observe/group.h"

/* The fields of the kernel's types that lead to a network namespace. */
struct nsproxy___custom {
	struct net *net_ns;
} CORE;

struct task_struct___custom {
	struct nsproxy___custom *nsproxy;
} CORE;

/* Memory for one event. An event never interrupts another one in the same program on the same CPU: the kernel skips it, and
 * counts it (`skipped`). */
struct custom_scratch {
	struct custom_key key;
	u64 text[CUSTOM_TEXT_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2); /* the two events of a span may interrupt each other */
	__type(key, u32);
	__type(value, struct custom_scratch);
} scratch SEC(".maps");

typedef const volatile struct custom_field *custom_field_at;

#define REPEAT4(m, x) m(x) m(x + 1) m(x + 2) m(x + 3)
#define REPEAT16(m, x) REPEAT4(m, x) REPEAT4(m, x + 4) REPEAT4(m, x + 8) REPEAT4(m, x + 12)

/*
 * The kernel takes a load from a context only at a constant of the instruction ("dereference of modified ctx ptr"). So there is an
 * instruction for each place, in assembly: the compiler would make one of them, with a computed address. The first 8 bytes of a
 * record are not given to programs. Of 11,545 numbers in 2,323 formats 99.9 % are below offset 128; the others are copied.
 */
#define CUSTOM_DIRECT 128
#define LOAD32(i) case i: asm volatile("%0 = *(u32 *)(%1 + %2)" : "=r"(v) : "r"(ctx), "i"((i) * 4)); break;
#define LOAD64(i) case i: asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(v) : "r"(ctx), "i"((i) * 8)); break;
#define ARGUMENT(i) case i: asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(p) : "r"(ctx), "i"((i) * 8)); break;

static __always_inline u64 custom_load32(void *ctx, u32 i)
{
	u64 v = 0;

	switch (i) {
		LOAD32(2) LOAD32(3) REPEAT4(LOAD32, 4) REPEAT4(LOAD32, 8) REPEAT4(LOAD32, 12) REPEAT16(LOAD32, 16)
	}
	return v;
}

/* Registers of a probe are behind 128 bytes, too: the instruction pointer, and the period and address of a sample. */
static __always_inline u64 custom_load64(void *ctx, u32 i)
{
	u64 v = 0;

	switch (i) {
		LOAD64(0) LOAD64(1) LOAD64(2) LOAD64(3) REPEAT4(LOAD64, 4) REPEAT4(LOAD64, 8) REPEAT4(LOAD64, 12)
		LOAD64(16) LOAD64(21) LOAD64(22)
	}
	return v;
}

/* A number in some bits of a word. The verifier removes branches, and no arithmetic. */
static __always_inline u64 custom_extend(u64 v, custom_field_at f)
{
	u32 left = f->left & 63, right = f->right & 63;

	if (!right && !(f->flags & CUSTOM_SWAP))
		return v;
	if (f->flags & CUSTOM_SWAP) {
		if (f->size == 2)
			return __builtin_bswap16(v);
		if (f->size == 4)
			return __builtin_bswap32(v);
		return __builtin_bswap64(v);
	}
	return f->flags & CUSTOM_SIGNED ? (u64)((s64)(v << left) >> right) : v << left >> right;
}

static __always_inline void custom_copied(long error)
{
	if (ts_unlikely(error < 0))
		ts_add(&faulted, 1);
}

static __always_inline u64 custom_number(void *ctx, custom_field_at f)
{
	u32 size = f->size, at = f->at;
	u64 v = 0;

	if (size == 8 && (at < CUSTOM_DIRECT + 8 || at == 168 || at == 176))
		return custom_extend(custom_load64(ctx, at / 8), f);
	if (at < CUSTOM_DIRECT)
		return custom_extend(custom_load32(ctx, at / 4) >> (at & 3) * 8, f);
	custom_copied(bpf_probe_read_kernel(&v, size & 15, (char *)ctx + (at & 0x7fff)));
	return custom_extend(v, f);
}

/* A number of the process. */
static __always_inline u64 custom_user_word(void *ctx, custom_field_at f)
{
	s32 by = f->step[0] | (u32)f->step[1] << 16;
	u32 at = f->at;
	u64 address = 0, v = 0;

	if (at < CUSTOM_DIRECT + 8)
		address = custom_load64(ctx, at / 8);
	else
		custom_copied(bpf_probe_read_kernel(&address, sizeof(address), (char *)ctx + (at & 0x7fff)));
	custom_copied(bpf_probe_read_user(&v, f->size & 15, (void *)(address + by)));
	return custom_extend(v, f);
}

/* A text that is in words already: zeroes behind its end. */
static __always_inline void custom_end_text(u64 *w)
{
	u64 zero = (w[0] - 0x0101010101010101ULL) & ~w[0] & 0x8080808080808080ULL;

	w[0] &= ((zero & -zero) >> 7) - 1; /* the bytes below the lowest one that is 0 */
	w[1] &= zero ? 0 : ~0ULL;
	zero = (w[1] - 0x0101010101010101ULL) & ~w[1] & 0x8080808080808080ULL;
	w[1] &= ((zero & -zero) >> 7) - 1;
}

/* The number of `size` bytes at the end of a path. The verifier follows the types of all pointers on the way, so no helper is
 * needed, and a NULL pointer reads as 0. `last`: the address of the last step instead of its content. */
static __always_inline u64 custom_path(void *ctx, custom_field_at f, u32 size, char **last)
{
	u32 steps = f->steps;
	char *p = NULL;

	switch (f->at) {
		REPEAT4(ARGUMENT, 0) REPEAT4(ARGUMENT, 4) REPEAT4(ARGUMENT, 8)
	}
	if (!steps) {
		if (last)
			*last = p;
		return custom_extend((u64)p, f);
	}
	/* "arithmetic on rcu_ptr_or_null_ prohibited" */
	if (!p)
		return 0;
	if (steps > 1) {
		p = *(char **)(p + f->step[0]);
		if (!p)
			return 0;
	}
	if (steps > 2) {
		p = *(char **)(p + f->step[1]);
		if (!p)
			return 0;
	}
	if (steps > 3) {
		p = *(char **)(p + f->step[2]);
		if (!p)
			return 0;
	}
	p += f->step[(steps - 1) & (CUSTOM_STEPS - 1)];
	if (last) {
		*last = p;
		return 0;
	}
	if (size == 8)
		return custom_extend(*(u64 *)p, f);
	if (size == 4)
		return custom_extend(*(u32 *)p, f);
	if (size == 2)
		return custom_extend(*(u16 *)p, f);
	return custom_extend(*(u8 *)p, f);
}

static __always_inline u64 custom_of_task(u32 source)
{
	struct task_struct *task;
	u64 group = 0;

	switch (source) {
	case CUSTOM_PID:
		return bpf_get_current_pid_tgid() >> 32;
	case CUSTOM_TID:
		return (u32)bpf_get_current_pid_tgid();
	case CUSTOM_UID:
		return (u32)bpf_get_current_uid_gid();
	case CUSTOM_CPU:
		return bpf_get_smp_processor_id();
	case CUSTOM_CGROUP:
		group_of(bpf_get_current_task_btf(), &group);
		return group;
	case CUSTOM_PPID:
		task = bpf_get_current_task_btf();
		return task->real_parent->tgid;
	case CUSTOM_NETNS:
		task = bpf_get_current_task_btf();
		return ((struct task_struct___custom *)task)->nsproxy->net_ns->ns.inum;
	}
	return 0;
}

/* Each access to a constant is an instruction, so the source is read once. */
static __always_inline u64 custom_word_of(void *ctx, custom_field_at f, u32 source)
{
	if (source == CUSTOM_PATH)
		return custom_path(ctx, f, f->size, NULL);
	if (source == CUSTOM_NUMBER)
		return custom_number(ctx, f);
	if (source == CUSTOM_USER_WORD)
		return custom_user_word(ctx, f);
	return custom_of_task(source);
}

static __always_inline u64 custom_word(void *ctx, custom_field_at f)
{
	return custom_word_of(ctx, f, f->source);
}

static __always_inline int custom_is_text(u32 source)
{
	return (source >= CUSTOM_CHARS && source <= CUSTOM_KERNEL_TEXT) ||
	       (source >= CUSTOM_PATH_CHARS && source <= CUSTOM_PATH_TEXT) || source == CUSTOM_COMM;
}

/* A text in the record, to words that are zeroes. */
static __always_inline void custom_record_text(void *ctx, custom_field_at f, u64 *w, u32 most)
{
	u32 at = f->at, source = f->source, loc = 0;

	if (source == CUSTOM_USER_TEXT) {
		custom_copied(bpf_probe_read_user_str(w, most, (void *)custom_load64(ctx, at / 8)));
		return;
	}
	if (source == CUSTOM_KERNEL_TEXT) {
		u64 address = custom_load64(ctx, at / 8);

		/* An argument of a kernel function may point to memory of the process: the lower half of all addresses. */
		if ((s64)address < 0)
			custom_copied(bpf_probe_read_kernel_str(w, most, (void *)address));
		else
			custom_copied(bpf_probe_read_user_str(w, most, (void *)address));
		return;
	}
	if (source == CUSTOM_BYTES) {
		custom_copied(bpf_probe_read_kernel(w, most, (char *)ctx + (at & 0x7fff)));
		return;
	}
	/* As fast as a number: the name of a task. */
	if (source == CUSTOM_CHARS && f->size == 16 && !(at & 3) && at <= CUSTOM_DIRECT - 16) {
		w[0] = custom_load32(ctx, at / 4) | custom_load32(ctx, at / 4 + 1) << 32;
		w[1] = custom_load32(ctx, at / 4 + 2) | custom_load32(ctx, at / 4 + 3) << 32;
		custom_end_text(w);
		return;
	}
	if (source != CUSTOM_CHARS) {
		if (at < CUSTOM_DIRECT)
			loc = custom_load32(ctx, at / 4);
		else
			custom_copied(bpf_probe_read_kernel(&loc, sizeof(loc), (char *)ctx + (at & 0x7fff)));
		at = (source == CUSTOM_REL_LOC ? at + sizeof(loc) : 0) + (loc & 0xffff);
	}
	custom_copied(bpf_probe_read_kernel_str(w, most, (char *)ctx + (at & 0x1ffff)));
}

/* A text, or bytes, of at most CUSTOM_TEXT_WORDS words, to words that are zeroes. */
static __always_inline void custom_text(void *ctx, custom_field_at f, u64 *w)
{
	u32 source = f->source, most = f->size;
	char *p = NULL;

	if (!most || most > CUSTOM_TEXT_WORDS * sizeof(u64))
		most = CUSTOM_TEXT_WORDS * sizeof(u64);
	if (source == CUSTOM_COMM) {
		bpf_get_current_comm(w, 16);
	} else if (source == CUSTOM_PATH_TEXT) {
		custom_copied(bpf_probe_read_kernel_str(w, most, (void *)custom_path(ctx, f, sizeof(u64), NULL)));
	} else if (source == CUSTOM_PATH_CHARS || source == CUSTOM_PATH_BYTES) {
		custom_path(ctx, f, 0, &p);
		if (source == CUSTOM_PATH_CHARS)
			custom_copied(bpf_probe_read_kernel_str(w, most, p));
		else
			custom_copied(bpf_probe_read_kernel(w, most, p));
	} else {
		custom_record_text(ctx, f, w, most);
	}
}

static __always_inline int custom_compare(u64 v, const volatile struct custom_condition *c)
{
	u64 constant = c->constant[0];
	u32 op = c->op;

	if (op == CUSTOM_EQ)
		return v == constant;
	if (op == CUSTOM_NE)
		return v != constant;
	if (op == CUSTOM_AND)
		return !!(v & constant);
	if (c->field.flags & CUSTOM_SIGNED) {
		if (op == CUSTOM_LT)
			return (s64)v < (s64)constant;
		if (op == CUSTOM_LE)
			return (s64)v <= (s64)constant;
		return op == CUSTOM_GT ? (s64)v > (s64)constant : (s64)v >= (s64)constant;
	}
	if (op == CUSTOM_LT)
		return v < constant;
	if (op == CUSTOM_LE)
		return v <= constant;
	return op == CUSTOM_GT ? v > constant : v >= constant;
}

static __always_inline int custom_holds(void *ctx, const volatile struct custom_condition *c, u64 *text)
{
	u64 differs = 0;
	u32 i;

	if (!custom_is_text(c->field.source))
		return custom_compare(custom_word(ctx, &c->field), c);
	for (i = 0; i < CUSTOM_TEXT_WORDS; i++)
		text[i] = 0;
	custom_text(ctx, &c->field, text);
	for (i = 0; i < CUSTOM_TEXT_WORDS; i++)
		if (i < c->field.words)
			differs |= text[i] ^ c->constant[i];
	return c->op == CUSTOM_EQ ? !differs : !!differs;
}

static __always_inline int custom_all_hold(void *ctx, u64 *text)
{
	const volatile struct custom_condition *c = constants.table.where;

	if (!c[0].field.source)
		return 1;
	if (!custom_holds(ctx, &c[0], text))
		return 0;
	if (!c[1].field.source)
		return 1;
	if (!custom_holds(ctx, &c[1], text))
		return 0;
	if (!c[2].field.source)
		return 1;
	if (!custom_holds(ctx, &c[2], text))
		return 0;
	return !c[3].field.source || custom_holds(ctx, &c[3], text);
}

/* One field of the key, to its words. Returns whether there is such a field. */
static __always_inline int custom_key_field(void *ctx, custom_field_at f, struct custom_key *key)
{
	u32 source = f->source, first, i;

	if (!source)
		return 0;
	first = f->first & (CUSTOM_WORDS - 1);
	if (!custom_is_text(source)) {
		key->word[first] = custom_word_of(ctx, f, source);
	} else if (first + f->words <= CUSTOM_WORDS && f->size <= f->words * sizeof(u64)) {
		for (i = 0; i < CUSTOM_TEXT_WORDS && i < f->words; i++)
			key->word[(first + i) & (CUSTOM_WORDS - 1)] = 0;
		custom_text(ctx, f, &key->word[first]);
	}
	return 1;
}

/* The key, in memory that only this program writes: a word that no field has stays 0. */
static __always_inline struct custom_key *custom_read_key(void *ctx, struct custom_scratch *s)
{
	custom_field_at f = constants.table.key;

	if (custom_key_field(ctx, &f[0], &s->key) && custom_key_field(ctx, &f[1], &s->key) &&
	    custom_key_field(ctx, &f[2], &s->key))
		custom_key_field(ctx, &f[3], &s->key);
	return &s->key;
}

/* The fields that both events of a span have, hashed to a word that is never 0 or 1. Both fields are in the hash as they are, so
 * that two spans at a time have equal words with a chance of 2^-63. */
static __always_inline u64 custom_common(void *ctx, custom_field_at f)
{
	u64 a = custom_word(ctx, &f[0]), b = f[1].source ? custom_word(ctx, &f[1]) : 0;

	a = (a ^ a >> 32) * 0x9E3779B97F4A7C15ULL;
	return (a ^ a >> 29 ^ b * 0xD6E8FEB86659FD93ULL) | 1ULL << 63;
}

#endif /* TOPSTAT_CUSTOM_FIELDS_BPF_H */
