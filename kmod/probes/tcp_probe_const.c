// SPDX-License-Identifier: GPL-2.0-only
/* After 6.12 the tracepoint takes a const struct sk_buff. */
#include <trace/events/tcp.h>

static void probe(void *data, struct sock *sk, const struct sk_buff *skb)
{
}

void topstat_probe(void)
{
	check_trace_callback_type_tcp_probe(probe);
}
