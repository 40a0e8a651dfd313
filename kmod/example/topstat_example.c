// SPDX-License-Identifier: GPL-2.0-only
/* An example for docs/kmod-api.md: ranks network namespaces by the bytes of the IPv4 packets that they receive and send. */

#include <linux/module.h>
#include <linux/netfilter_ipv4.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include "topstat.h"

struct counted_net {
	struct topstat_dynamic counted;
	struct net *net;
};

enum { RX, TX };

static unsigned int net_id;
static struct topstat_sample *sample;
static struct topstat_table *bytes;
static DEFINE_STATIC_KEY_FALSE(bytes_is_on);

static unsigned int count(void *part, struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct counted_net *of = net_generic(state->net, net_id);

	topstat_push_if(&bytes_is_on, bytes, &of->counted.object, skb->len, (unsigned long)part);
	return NF_ACCEPT;
}

static const struct nf_hook_ops hooks[] = {
	{ .hook = count, .pf = NFPROTO_IPV4, .hooknum = NF_INET_PRE_ROUTING, .priority = NF_IP_PRI_FIRST, .priv = (void *)RX },
	{ .hook = count, .pf = NFPROTO_IPV4, .hooknum = NF_INET_POST_ROUTING, .priority = NF_IP_PRI_LAST, .priv = (void *)TX },
};

static int __net_init net_begins(struct net *net)
{
	struct counted_net *of = net_generic(net, net_id);

	of->net = net;
	topstat_dynamic_init(&of->counted);
	return nf_register_net_hooks(net, hooks, ARRAY_SIZE(hooks));
}

/* An RCU grace period lies between this call and the end of the memory. */
static void __net_exit net_ends(struct net *net)
{
	struct counted_net *of = net_generic(net, net_id);

	nf_unregister_net_hooks(net, hooks, ARRAY_SIZE(hooks));
	topstat_object_dead(&of->counted.object);
}

static struct pernet_operations nets = {
	.init = net_begins,
	.pre_exit = net_ends,
	.id = &net_id,
	.size = sizeof(struct counted_net),
};

static void describe(struct topstat_table *table, const struct topstat_object *object, struct topstat_row *row, void *private)
{
	const struct counted_net *of = container_of(object, struct counted_net, counted.object);

	topstat_row_netns(row, of->net);
}

static const struct topstat_column columns[] = { { "netns" } };

static const struct topstat_sample_info about_sample = {
	.name = "example",
	.columns = columns,
	.column_count = ARRAY_SIZE(columns),
	.parts = { "rx", "tx" },
	.describe = describe,
};

static const struct topstat_table_info about_bytes = {
	.name = "bps", .unit = TOPSTAT_BITS, .sums = "bytes", .key = &bytes_is_on,
};

static int __init example_init(void)
{
	int error;

	sample = topstat_sample_register(&about_sample);
	bytes = topstat_table_add(sample, &about_bytes);
	topstat_table_complete(bytes); /* no object is older than the table */
	error = register_pernet_subsys(&nets);
	if (error)
		topstat_sample_unregister(sample);
	return error;
}

static void __exit example_exit(void)
{
	unregister_pernet_subsys(&nets);
	topstat_sample_unregister(sample);
}

module_init(example_init);
module_exit(example_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("an example of topstat.h: traffic by network namespace");
