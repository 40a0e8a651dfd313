/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Stacks of the kernel: the types that the sampling program shares with its reader.
 *
 * A timer on each CPU runs the program at a fixed rate. The program enters the stack into one map, and the sample, which
 * refers to the stack, into another. There are two banks of these maps: the program fills one while the reader empties the
 * other.
 *
 *   NS1 Each run counts exactly one of `kept`, `user` and `lost` of its bank, on its CPU.
 *   NS2 A run first counts `entered`, by an atomic that is a full barrier, then reads which bank it fills, and last counts
 *       `left`. So after the reader has switched banks, and has then seen `left` reach `entered` on a CPU, no run on that
 *       CPU fills the old bank any more.
 *   NS3 `kept` is the sum of the counts in the bank's map of samples.
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

/* Samples with equal keys are counted together. */
struct netstack_key {
	unsigned long long stack;	/* the key of the stack */
	unsigned long long cgroup;	/* as in process_who */
	unsigned int pid;		/* of the process; 0: the idle task */
	unsigned int cpu;
	char comm[NETSTACK_COMM];	/* of the process */
};

struct netstack_counts {
	unsigned long long kept;
	unsigned long long user;	/* in user space: no stack of the kernel */
	unsigned long long lost;	/* no room, or the stack could not be read */
};

/* The counts of one CPU; they only grow. */
struct netstack_cpu {
	unsigned long long entered;
	unsigned long long left;
	struct netstack_counts bank[NETSTACK_BANKS];
};

/* The reader sets these before the program is loaded. */
struct netstack_constants {
	unsigned int v1_controller;	/* enum process_v1 */
};

/* Set before the program that drops packets is loaded. */
struct netstack_loss {
	unsigned int below;	/* a packet is dropped if a random number of 32 bits is below this */
};

struct netstack_dropped {
	unsigned long long seen;	/* packets that have arrived */
	unsigned long long dropped;	/* packets of these that were dropped */
};

/*
 * Histograms of packets, by separate programs.
 *
 *   NS4 Each run adds to one bucket and to the histogram's sum, or to one of the counts of packets in no histogram: so the
 *       count of a histogram is the sum of its buckets.
 *   NS5 Each copy to a process with a time of arrival adds one entry to `latency`. If the time that the process waited for a
 *       CPU since the arrival is known, the copy adds one entry each to `scheduling` and `queueing`, and the two values add
 *       up to the latency; else the copy counts as unsplit.
 *   NS6 A run adds to `copies` first and to `done` last. A reader gets the fields in their order. So where the two are equal, no run
 *       was under way while the fields were read, and NS5 holds for them.
 */

/* Bucket 0 has zeroes, bucket n the values from 2^(n-1) to below 2^n, the last one all larger values: in ns, from 19.5 hours. */
#define NETSTACK_BUCKETS 48
/* Ports, and processes, that may be chosen. */
#define NETSTACK_CHOSEN 16
/* Waits of a thread that are remembered: one for each time that the thread was given a CPU. */
#define NETSTACK_WAITS 32

struct netstack_histogram {
	unsigned long long bucket[NETSTACK_BUCKETS];
	unsigned long long sum;
};

/* On one CPU: lengths of packets, without the header of the link layer. */
struct netstack_sizes {
	struct netstack_histogram before;	/* as a device has handed them over */
	struct netstack_histogram after;	/* as protocols get them */
	unsigned long long unread;		/* a port was chosen, and the packet's ports can't be read */
};

/* On one CPU: copies of packets' data to processes, in ns. */
struct netstack_latencies {
	unsigned long long done;
	struct netstack_histogram latency;
	struct netstack_histogram scheduling;
	struct netstack_histogram queueing;
	unsigned long long bytes;	/* of all copies */
	unsigned long long undated;	/* copies without a time of arrival, or with one in the future */
	unsigned long long unsplit;
	unsigned long long copies;	/* all copies, with copies without a time of arrival */
};

/* Set before programs are loaded. A number of 0 chooses everything. */
struct netstack_filter {
	unsigned int netns;	/* the device's namespace */
	unsigned int device;	/* the device's index */
	unsigned int ports;	/* number of ports in `port`; `pids`: of processes in `pid` */
	unsigned int pids;
	unsigned int port[NETSTACK_CHOSEN];
	unsigned int pid[NETSTACK_CHOSEN];
};

#endif /* TOPSTAT_NETSTACK_H */
