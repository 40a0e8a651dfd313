// SPDX-License-Identifier: GPL-2.0-only
/* After 6.12 the tracepoint also has the result of the retransmission. */
#include <trace/events/tcp.h>

static void probe(void *data, const struct sock *sk, const struct sk_buff *skb, int err)
{
}

void topstat_probe(void)
{
	check_trace_callback_type_tcp_retransmit_skb(probe);
}
