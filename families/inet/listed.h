/* SPDX-License-Identifier: GPL-2.0-only */
/* The list of active connections, on hosts whose readers go through all connections: they skip those that are not listed. */
#ifndef TOPSTAT_INET_LISTED_H
#define TOPSTAT_INET_LISTED_H

#include "cell.h"

TS_INLINE int inet_is_listed(const struct inet_object *o)
{
	return !!(ts_read(o->listed) & INET_LISTED);
}

TS_INLINE int inet_list(struct sock *sk, struct tcp_sock *tp, struct inet_object *o)
{
	ts_write(o->listed, INET_LISTED | (u32)host_jiffies());
	return host_nothing();
}

TS_INLINE u32 inet_unlist(struct sock *sk, struct inet_object *o)
{
	return inet_leaves(o, INET_LISTED, INET_LEAVING);
}

#endif /* TOPSTAT_INET_LISTED_H */
