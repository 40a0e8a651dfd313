/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Stacks of the kernel: what the program that samples shares with its reader.
 *
 * A timer on each CPU runs the program so many times a second. It enters the stack into one map and the sample, which refers
 * to it, into another. There are two banks of these maps: the program fills one while the reader empties the other.
 *
 *   G1  Each run counts exactly one of `kept`, `user` and `lost` of its bank, on its CPU.
 *   G2  A run first counts `entered`, by an atomic that is a full barrier, then reads which bank it fills, and last counts
 *       `left`. So after the reader has switched banks, and has then seen `left` reach `entered` on a CPU, no run on that
 *       CPU fills the old bank any more.
 *   G3  `kept` is the sum of the counts in the bank's map of samples.
 */
#ifndef TOPSTAT_NETSTACK_H
#define TOPSTAT_NETSTACK_H

/* Functions of a stack that are kept, from the innermost on: the kernel's own limit, unless it is raised
 * (kernel.perf_event_max_stack). */
#define NETSTACK_FRAMES 127
#define NETSTACK_BANKS 2
/* The kernel's TASK_COMM_LEN. */
#define NETSTACK_COMM 16

struct netstack_stack {
	unsigned long long address[NETSTACK_FRAMES];
	unsigned long long frames;
};

/* What is the same of samples that are counted together. */
struct netstack_key {
	unsigned long long stack;	/* the key of the stack */
	unsigned long long cgroup;	/* as of process_who */
	unsigned int pid;		/* of the process; 0: the idle task */
	unsigned int cpu;
	char comm[NETSTACK_COMM];	/* of the process */
};

struct netstack_counts {
	unsigned long long kept;
	unsigned long long user;	/* in user space: no stack of the kernel */
	unsigned long long lost;	/* no room, or no stack could be had */
};

/* Of one CPU; all of it only grows. */
struct netstack_cpu {
	unsigned long long entered;
	unsigned long long left;
	struct netstack_counts bank[NETSTACK_BANKS];
};

/* Set by the reader before the program is loaded. */
struct netstack_constants {
	unsigned int v1_controller;	/* enum process_v1 */
};

/* Set before the program that loses packets is loaded. */
struct netstack_loss {
	unsigned int below;	/* a packet is lost if a random number of 32 bits is below this */
};

struct netstack_dropped {
	unsigned long long seen;	/* packets that have arrived */
	unsigned long long dropped;	/* of them, lost */
};

/*
 * Histograms of packets, by programs of their own.
 *
 *   G4  Each run adds to one bucket and to the sum of the histogram beside it, or to one of the counts of what is in none:
 *       so the count of a histogram is the sum of its buckets.
 *   G5  Of each copy to a process that has a time of arrival, `latency` has one entry. Where it is known how long the process
 *       waited for a CPU meanwhile, `scheduling` and `queueing` have one each, and those two add up to it; else it is counted
 *       as unsplit.
 */

/* Bucket 0 has zeroes, bucket n what is from 2^(n-1) to below 2^n, the last one all that is more: in ns, from 19.5 hours. */
#define NETSTACK_BUCKETS 48
/* Ports and processes that may be chosen. */
#define NETSTACK_CHOSEN 16
/* Waits of a thread that are remembered: one for each time that it was given a CPU. */
#define NETSTACK_WAITS 32

struct netstack_histogram {
	unsigned long long bucket[NETSTACK_BUCKETS];
	unsigned long long sum;
};

/* Of one CPU: lengths of packets, without the header of the link layer. */
struct netstack_sizes {
	struct netstack_histogram before;	/* as a device has handed them over */
	struct netstack_histogram after;	/* as protocols get them */
	unsigned long long unread;		/* ports were asked for, and are not where they can be read */
};

/* Of one CPU: copies of packets' data to processes, in ns. */
struct netstack_latencies {
	struct netstack_histogram latency;
	struct netstack_histogram scheduling;
	struct netstack_histogram queueing;
	unsigned long long copies;	/* all, with those that have no time of arrival */
	unsigned long long bytes;	/* of all copies */
	unsigned long long undated;	/* copies without a time of arrival, or with one that is yet to come */
	unsigned long long unsplit;
};

/* Set before programs are loaded; where a number is 0, nothing is chosen by it. */
struct netstack_filter {
	unsigned int netns;	/* of the device */
	unsigned int device;	/* its index */
	unsigned int ports;	/* how many there are of each */
	unsigned int pids;
	unsigned int port[NETSTACK_CHOSEN];
	unsigned int pid[NETSTACK_CHOSEN];
};

#endif /* TOPSTAT_NETSTACK_H */
