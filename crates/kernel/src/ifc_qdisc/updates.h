/* The updates: the newest packet of each flow, in the order of turns.h. For main.bpf.c alone. */
#ifndef FRESHLINE_IFC_UPDATES_H
#define FRESHLINE_IFC_UPDATES_H

#include "lanes.h"

static __always_inline struct turn_flow *turn_flow(__u64 row)
{
	__u32 key = smaller(row, ~0U);

	return bpf_map_lookup_elem(&turn_flows, &key);
}

static __always_inline struct turn_host *turn_host(__u64 row)
{
	__u32 key = smaller(row, ~0U);

	return bpf_map_lookup_elem(&turn_hosts, &key);
}

static __always_inline __u64 *hosts_with(__u64 flows)
{
	__u32 key = flows;

	return bpf_map_lookup_elem(&hosts_by_flows, &key);
}

static __always_inline __u64 host_row(const struct host_address *address)
{
	const __u64 *row = bpf_map_lookup_elem(&host_rows, address);

	return row ? *row : NONE;
}

static __always_inline void set_host_row(const struct host_address *address, __u64 row)
{
	bpf_map_update_elem(&host_rows, address, &row, BPF_ANY);
}

static __always_inline void forget_host_row(const struct host_address *address)
{
	bpf_map_delete_elem(&host_rows, address);
}

/* Takes the packet of `to->flow`, which has left the turns. */
static __always_inline struct sk_buff *take_update(struct place *to)
{
	struct place *place = bpf_map_lookup_elem(&newest, &to->flow);
	struct account *account = account_of(AOI);
	struct sk_buff *skb;

	first[AOI]++;
	to->queue = AOI;
	if (!place || !account)
		return NULL;
	skb = take(place, to);
	bpf_map_delete_elem(&newest, &to->flow);
	account->waiting_packets -= to->segments;
	account->waiting_bytes -= to->bytes;
	return skb;
}

/* Takes the update whose turn it is. */
static __always_inline struct sk_buff *take_newest(struct place *to)
{
	if (turns_serve(&turns, &to->flow))
		return take_update(to);
	/* Never: updates are counted as they join. */
	first[AOI] = next[AOI];
	return NULL;
}

/* Drops the first update of a host. */
static __always_inline void evict(__u64 host)
{
	__u32 over = OVER;
	struct place *to = bpf_map_lookup_elem(&link, &over);
	struct sk_buff *skb;

	if (!to || !turns_take(&turns, host, &to->flow))
		return;
	skb = take_update(to);
	if (skb)
		lose(skb, to, LOST_TO_OVERFLOW);
}

#endif
