/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * SNMP counters: the types that the reading programs share with their reader.
 *
 * The kernel keeps its SNMP counters in arrays, one for each protocol, network namespace and CPU; some are shared by all
 * CPUs. A network namespace (and an IPv6 device) has a structure of pointers to its arrays. A reader first lists the
 * holders of these structures, and then copies all arrays whole, for one holder and one CPU after the other.
 *
 *   SN1 A run of a program is one read-side critical section of RCU. A holder that a run finds listed keeps its arrays until
 *       the run ends: the kernel takes the holder from its list, waits for all RCU readers, and only then frees the arrays.
 *   SN2 A later run reads a holder only if that run finds it listed again, with the same id.
 *   SN3 Counters go on counting during a reading. Each is copied in whole words, so the sum over CPUs lies between the sums
 *       at the beginning and at the end of the reading.
 *   SN4 An array of types of messages is copied unless the array that counts the messages themselves has counted none. So
 *       a type is missing only for a holder's very first message, between the kernel's counting of the type and of the
 *       message, which are a few instructions apart.
 */
#ifndef TOPSTAT_SNMP_H
#define TOPSTAT_SNMP_H

/* Arrays of one holder, at most: a namespace of Linux 7 has 14. */
#define SNMP_BLOCKS 24
/* Bytes of the largest array: 512 types of ICMP messages. */
#define SNMP_BLOCK_BYTES 4096
/* Pointers in the structure of pointers, at most: `struct netns_mib` has 15. */
#define SNMP_POINTERS 32
/* Units in one run. A unit is a holder's counters on one CPU, or the holder's counters that all CPUs share. */
#define SNMP_UNITS 512
/* Size of the memory that the programs copy to, in bytes. */
#define SNMP_SECTION_BYTES (1 << 20)
/* Bytes of counters that one run copies: few enough to be in the CPU's caches when the reader adds them up. */
#define SNMP_RUN_BYTES (1 << 18)
/* Namespaces and devices that are read, at most: 768 KiB. The others are only counted. */
#define SNMP_HOLDERS 16384
/* CPUs of a kernel, at most: the kernel's own limit on x86 and s390. */
#define SNMP_CPUS 8192
/* The kernel's IFNAMSIZ. */
#define SNMP_NAME 16

/* States of a unit. The unit was read. */
#define SNMP_UNIT_READ 1
/* The holder is no longer listed. */
#define SNMP_UNIT_GONE 2
/* In the state of a unit that was read, from this bit on: the groups whose messages were counted. */
#define SNMP_UNIT_GROUPS 4

/* An array of a holder. */
struct snmp_block {
	unsigned int pointer;	/* index among the holder's pointers */
	unsigned int bytes;	/* a multiple of 8, up to SNMP_BLOCK_BYTES */
	unsigned int shared;	/* 1: all CPUs share it */
	unsigned int group;	/* a bit for a protocol whose messages are counted by type, too; 0: no group */
	unsigned int received;	/* offset of the count of a group's received messages, in bytes; 0: counts by type, or no group */
	unsigned int sent;
};

/* A plan of a reading. The reader sets it. */
struct snmp_plan {
	struct snmp_block block[SNMP_BLOCKS];
	unsigned int blocks;	/* entries of `block` */
	unsigned int cpus;	/* entries of `offsets` */
	unsigned int units;	/* units of a holder: `cpus`, and one more if any array is shared */
	unsigned int pointers_bytes; /* size of the holder's structure of pointers */
	unsigned int devices;	/* 1: holders are devices, else namespaces */
	unsigned int only;	/* the inode of the only namespace to list; 0: list all */
};

/* A namespace or a device. */
struct snmp_holder {
	unsigned long long address;
	unsigned long long id;	/* a namespace's cookie; 0 for a device */
	unsigned int inum;	/* the namespace's inode */
	unsigned int ifindex;	/* 0 for a namespace */
	char name[SNMP_NAME];	/* "" for a namespace */
};

/* The state of the programs. One for each reader. */
struct snmp_cursor {
	unsigned long long first;	/* the element at which a walk began */
	unsigned long long at;		/* the next element; 0: the walk is over */
	unsigned long long loopback;	/* scratch, as the two below */
	unsigned long long back;
	unsigned long long previous;
	unsigned long long pointer[SNMP_POINTERS];
	unsigned long long raw;		/* an address of per-CPU data before its CPU is chosen */
	unsigned long long there;	/* that data's address on a CPU */
	unsigned long long faults;	/* arrays that could not be read, and count as zeros */
	unsigned int holder;		/* the holder whose pointers are in `pointer` */
	unsigned int state;		/* SNMP_UNIT_… of that holder */
	unsigned int found;		/* holders in the directory */
	unsigned int beyond;		/* holders without room in the directory */
	unsigned int used;		/* bytes in the section */
	unsigned int units;		/* units done in this run */
	unsigned int groups;	/* groups of the holder whose messages were counted, or may have been */
	unsigned int inum;	/* scratch */
	unsigned int after_head; /* in a walk: the next element is the first of all namespaces */
	unsigned int host;	/* the first namespace's inode, which is the host's; 0: not found, or the walk began with it */
	unsigned char done[SNMP_UNITS];	/* SNMP_UNIT_… of each unit */
};

#endif /* TOPSTAT_SNMP_H */
