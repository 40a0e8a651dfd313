/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * SNMP counters: what the programs that read them share with their reader.
 *
 * The kernel keeps its SNMP counters in arrays, one for each protocol, network namespace and CPU; some are shared by all
 * CPUs. A network namespace (and an IPv6 device) has a structure of pointers to its arrays. A reader first lists the
 * holders of such structures, and then copies, for one holder and one CPU after the other, all arrays whole.
 *
 *   S1  A run of a program is one read-side critical section of RCU. A holder that is found listed in a run keeps its
 *       arrays until the run ends: the kernel takes it from its list, waits for all readers, and frees the arrays then.
 *   S2  What is read of a holder in a later run counts only if it is found listed in that run again, with the same id.
 *   S3  Counters go on counting meanwhile. Each is copied in whole words, so the sum over CPUs lies between the sums at
 *       the beginning and at the end of the reading.
 *   S4  An array of types of messages is copied unless the array that counts the messages themselves has counted none. So
 *       a type is missing only of a holder's very first message, between the kernel's counting of the type and of the
 *       message, which are a few instructions apart.
 */
#ifndef TOPSTAT_SNMP_H
#define TOPSTAT_SNMP_H

/* Arrays of one holder that are read at once: a namespace of Linux 7 has 14. */
#define SNMP_BLOCKS 24
/* Bytes of the largest array: 512 types of ICMP messages. */
#define SNMP_BLOCK_BYTES 4096
/* Bytes of the structure of pointers: `struct netns_mib` has 15. */
#define SNMP_POINTERS 32
/* Units (a holder on a CPU, or what all CPUs share of it) in one run. */
#define SNMP_UNITS 512
/* Bytes of the memory that the programs copy to. */
#define SNMP_SECTION_BYTES (1 << 20)
/* Bytes of counters that one run copies: so much that the reader finds it in the CPU's caches still. */
#define SNMP_RUN_BYTES (1 << 18)
/* Namespaces and devices that are read, at most: 768 KiB. What is beyond them is counted. */
#define SNMP_HOLDERS 16384
/* CPUs that the kernel may have: its own limit on x86 and s390. */
#define SNMP_CPUS 8192
/* The kernel's IFNAMSIZ. */
#define SNMP_NAME 16

/* What a unit's bytes are worth. */
#define SNMP_UNIT_READ 1
/* The holder is no longer listed. */
#define SNMP_UNIT_GONE 2
/* Of a unit that was read, in the bits from this one on: the groups whose messages were counted. */
#define SNMP_UNIT_GROUPS 4

/* An array of a holder. */
struct snmp_block {
	unsigned int pointer;	/* which of the holder's pointers */
	unsigned int bytes;	/* a multiple of 8, up to SNMP_BLOCK_BYTES */
	unsigned int shared;	/* 1: by all CPUs */
	unsigned int group;	/* a bit: a protocol whose messages are counted by type, too. 0: it is of none */
	unsigned int received;	/* of what counts a group's messages, where: bytes. 0: by type, or of no group */
	unsigned int sent;
};

/* What to read, set by the reader. */
struct snmp_plan {
	struct snmp_block block[SNMP_BLOCKS];
	unsigned int blocks;	/* entries of `block` */
	unsigned int cpus;	/* entries of `offsets` */
	unsigned int units;	/* of a holder: `cpus`, and one more if anything is shared */
	unsigned int pointers_bytes; /* of the holder's structure of pointers */
	unsigned int devices;	/* 1: holders are devices, else namespaces */
	unsigned int only;	/* the inode of the only namespace that is listed; 0: all are */
};

/* A namespace or a device. */
struct snmp_holder {
	unsigned long long address;
	unsigned long long id;	/* of a namespace its cookie, of a device 0 */
	unsigned int inum;	/* the namespace's inode */
	unsigned int ifindex;	/* of a namespace 0 */
	char name[SNMP_NAME];	/* of a namespace "" */
};

/* How far the programs are. One for each reader. */
struct snmp_cursor {
	unsigned long long first;	/* the element that a walk began with */
	unsigned long long at;		/* the element to go on with; 0: the walk is over */
	unsigned long long loopback;	/* scratch, as what follows */
	unsigned long long back;
	unsigned long long previous;
	unsigned long long pointer[SNMP_POINTERS];
	unsigned long long raw;		/* an address of per-CPU data before its CPU is chosen */
	unsigned long long there;	/* and the address on a CPU */
	unsigned long long faults;	/* arrays that could not be read, and pass for zeros */
	unsigned int holder;		/* whose pointers are in `pointer` */
	unsigned int state;		/* of that holder: SNMP_UNIT_… */
	unsigned int found;		/* holders in the directory */
	unsigned int beyond;		/* those that have no room in it */
	unsigned int used;		/* bytes in the section */
	unsigned int units;		/* done in this run */
	unsigned int groups;	/* of the holder: those whose messages were counted, or may have been */
	unsigned int inum;	/* scratch */
	unsigned int after_head; /* of the walk: what comes next is the first of all namespaces */
	unsigned int host;	/* its inode, which is the host's; 0: not found, or the one that the walk began with */
	unsigned char done[SNMP_UNITS];	/* SNMP_UNIT_… of each */
};

#endif /* TOPSTAT_SNMP_H */
