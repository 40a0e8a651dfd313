/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The container that a cgroup's path belongs to. A path is read from the root on. The first component that is a container's or a
 * unit's cgroup decides, since users choose the names below it. topstat's daemon has the same rules, and lists the sources of the
 * names (crates/topstat-model/src/names).
 */
#ifndef TOPSTAT_CONTAINER_H
#define TOPSTAT_CONTAINER_H

/* A part of a path. Not terminated. */
struct tt_part {
	const char *at;
	u32 length;
};

/* The length of an id, in hexadecimal digits. */
#define TT_CONTAINER_ID 64
/* The longest uid of a pod. */
#define TT_POD_UID 64

static inline bool part_is(struct tt_part part, const char *word)
{
	return part.length == strlen(word) && !memcmp(part.at, word, part.length);
}

/* Remove a beginning. False: the part begins otherwise. */
static inline bool part_after(struct tt_part *part, const char *front)
{
	u32 length = strlen(front);

	if (part->length < length || memcmp(part->at, front, length))
		return false;
	part->at += length;
	part->length -= length;
	return true;
}

/* Remove an end. False: the part ends otherwise. */
static inline bool part_before(struct tt_part *part, const char *back)
{
	u32 length = strlen(back);

	if (part->length < length || memcmp(part->at + part->length - length, back, length))
		return false;
	part->length -= length;
	return true;
}

/* Split at the last `c`: the part keeps what is before it. False: there is no `c`. */
static inline bool part_split(struct tt_part *part, char c, struct tt_part *back)
{
	u32 i;

	for (i = part->length; i--;) {
		if (part->at[i] != c)
			continue;
		back->at = part->at + i + 1;
		back->length = part->length - i - 1;
		part->length = i;
		return true;
	}
	return false;
}

static inline bool is_container_id(struct tt_part part)
{
	u32 i;

	for (i = 0; i < part.length; i++)
		if (!((part.at[i] >= '0' && part.at[i] <= '9') || (part.at[i] >= 'a' && part.at[i] <= 'f')))
			return false;
	return part.length == TT_CONTAINER_ID;
}

/* Whether the part is the number of a user. */
static inline bool is_user_number(struct tt_part part)
{
	u64 number = 0;
	u32 i;

	part_after(&part, "+");
	for (i = 0; i < part.length && number <= U32_MAX; i++) {
		if (part.at[i] < '0' || part.at[i] > '9')
			return false;
		number = number * 10 + (part.at[i] - '0');
	}
	return part.length && number <= U32_MAX;
}

/* Whether the part is `pod` and a pod's uid. */
static inline bool is_pod(struct tt_part part)
{
	u32 i;

	if (!part_after(&part, "pod") || !part.length || part.length > TT_POD_UID)
		return false;
	for (i = 0; i < part.length; i++) {
		char c = part.at[i];

		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_'))
			return false;
	}
	return true;
}

static inline bool is_runtime(struct tt_part part)
{
	return part_is(part, "docker") || part_is(part, "cri-containerd") || part_is(part, "nerdctl") ||
	       part_is(part, "crio") || part_is(part, "libpod");
}

/* Whether the service is a runtime, which names the cgroups below its own. */
static inline bool is_runtime_service(struct tt_part name)
{
	return part_is(name, "docker") || part_is(name, "containerd") || part_is(name, "crio") ||
	       part_is(name, "kubelet") || part_is(name, "k3s") || part_is(name, "rke2-server");
}

/* Split runc's form for systemd in a hierarchy without systemd, `SLICE:RUNTIME:ID`. False: the name has another form. */
static inline bool runc_split(struct tt_part *slice, struct tt_part *runtime, struct tt_part *id)
{
	return part_split(slice, ':', id) && is_container_id(*id) && part_split(slice, ':', runtime);
}

/* Split `WORD-ID` and `WORD-ID.scope`. False: the name has another form. */
static inline bool scope_split(struct tt_part *word, struct tt_part *id)
{
	part_before(word, ".scope");
	return part_split(word, '-', id) && is_container_id(*id);
}

/* The path up to a component. */
struct tt_walk {
	struct tt_part above; /* the component before */
	bool in_pods; /* Kubernetes has made this cgroup */
	bool is_owned; /* by a user, by a runtime's unit, or by a pod: a directory below may have any name */
};

/*
 * Read the name of a slice of Kubernetes, without its suffix: `kubepods-burstable-podU_I_D`, with the names of the slices above
 * before it. False: it is another slice.
 */
static inline bool walk_pods_slice(struct tt_walk *walk, struct tt_part slice)
{
	struct tt_part part = { .at = slice.at };
	bool found = false;
	u32 i;

	for (i = 0; i <= slice.length; i++) {
		if (i < slice.length && slice.at[i] != '-') {
			part.length++;
			continue;
		}
		if (found || part_is(part, "kubepods")) {
			walk->is_owned = found && is_pod(part);
			found = true;
		}
		part.at = slice.at + i + 1;
		part.length = 0;
	}
	walk->in_pods |= found;
	return found;
}

static inline bool is_podmans_pod(struct tt_part slice)
{
	struct tt_part id;

	return part_split(&slice, '_', &id) && is_container_id(id) && part_before(&slice, "-libpod_pod");
}

static inline void walk_slice(struct tt_walk *walk, struct tt_part slice)
{
	struct tt_part user = slice;

	if ((part_after(&user, "user-") && is_user_number(user)) || is_podmans_pod(slice))
		walk->is_owned = true;
	else if (!walk_pods_slice(walk, slice))
		walk->is_owned = false;
}

/* The id of the container whose cgroup has this name. False: there is none. */
static inline bool container_of_name(const struct tt_walk *walk, struct tt_part name, struct tt_part *id)
{
	struct tt_part front = name, runtime;

	*id = name;
	if (part_after(id, "lxc.payload.") || part_is(walk->above, "lxc") || is_container_id(name))
		return true;
	if (runc_split(&front, &runtime, id))
		return is_runtime(runtime);
	return scope_split(&name, id) && is_runtime(name);
}

/* Whether it is the cgroup of a container's monitor. */
static inline bool is_monitor(struct tt_part name)
{
	struct tt_part id;

	if (part_after(&name, "lxc.monitor."))
		return true;
	return scope_split(&name, &id) && (part_is(name, "crio-conmon") || part_is(name, "libpod-conmon"));
}

enum tt_step {
	STEP_FURTHER, /* the next component may tell more */
	STEP_NONE,
	STEP_FOUND,
};

static inline enum tt_step walk_directory(struct tt_walk *walk, struct tt_part name)
{
	struct tt_part id;

	if (part_is(name, "kubepods") ||
	    (walk->in_pods && (part_is(name, "burstable") || part_is(name, "besteffort")))) {
		walk->in_pods = true;
		walk->is_owned = false;
		return STEP_FURTHER;
	}
	if (walk->in_pods && is_pod(name))
		walk->is_owned = true;
	/* An id behind a word that no known runtime uses: the components below are not the host's. */
	return !walk->is_owned && part_split(&name, '-', &id) && is_container_id(id) ? STEP_NONE : STEP_FURTHER;
}

static inline enum tt_step walk_component(struct tt_walk *walk, struct tt_part name, struct tt_part *id)
{
	struct tt_part slice = name, runtime, suffix;

	if (part_is(walk->above, "libpod_parent") && is_container_id(name)) {
		walk->is_owned = true;
		return STEP_FURTHER;
	}
	if (runc_split(&slice, &runtime, &suffix) && part_before(&slice, ".slice"))
		walk_pods_slice(walk, slice);
	if (container_of_name(walk, name, id))
		return STEP_FOUND;
	if (is_monitor(name))
		return STEP_NONE;
	slice = name;
	if (!part_split(&slice, '.', &suffix) || !slice.length)
		return walk_directory(walk, name);
	if (part_is(suffix, "slice")) {
		walk_slice(walk, slice);
		return STEP_FURTHER;
	}
	if (part_is(suffix, "service") || part_is(suffix, "socket") || part_is(suffix, "swap")) {
		if (!is_runtime_service(slice))
			return STEP_NONE;
		walk->is_owned = true;
		return STEP_FURTHER;
	}
	if (part_is(suffix, "mount") || part_is(suffix, "scope"))
		return STEP_NONE;
	return walk_directory(walk, name);
}

/* Remove the `_` that systemd puts before a name that could be taken for a file of the kernel. */
static inline struct tt_part part_unmasked(struct tt_part name)
{
	struct tt_part rest = name, front = name, suffix;

	return part_after(&rest, "_") && part_split(&front, '.', &suffix) ? rest : name;
}

/* The id of the container that a cgroup's path belongs to: 64 hexadecimal digits, or the name of an LXC container. */
static inline bool tt_container_of(const char *path, u32 length, struct tt_part *id)
{
	struct tt_part name = { .at = path };
	enum tt_step step = STEP_FURTHER;
	struct tt_walk walk = {};
	u32 i;

	*id = name;
	for (i = 0; i <= length && step == STEP_FURTHER; i++) {
		if (i < length && path[i] != '/') {
			name.length++;
			continue;
		}
		if (name.length) {
			step = walk_component(&walk, part_unmasked(name), id);
			walk.above = name;
		}
		name.at = path + i + 1;
		name.length = 0;
	}
	return step == STEP_FOUND;
}

#endif /* TOPSTAT_CONTAINER_H */
