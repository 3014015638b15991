/* The queue of updates: the newest packet per flow, in the order of turns.h. For main.bpf.c only. */
#ifndef FRESHLINE_IFC_UPDATES_H
#define FRESHLINE_IFC_UPDATES_H

#include "lanes.h"

static __always_inline struct update *update(__u64 row)
{
	__u32 key = smaller(row, ~0U);

	return bpf_map_lookup_elem(&updates, &key);
}

static __always_inline struct turn_flow *turn_flow(__u64 row)
{
	struct update *at = update(row);

	return at ? &at->turn : NULL;
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

static __always_inline __u64 *flow_chain(__u64 hash)
{
	__u32 key = hash & chains_mask;

	return bpf_map_lookup_elem(&flow_chains, &key);
}

static __always_inline __u64 *host_chain(__u64 hash)
{
	__u32 key = hash & chains_mask;

	return bpf_map_lookup_elem(&host_chains, &key);
}

/* Takes the packet of a flow that was removed from the turns. */
static __always_inline struct sk_buff *take_update(__u64 row, struct place *to)
{
	struct update *from = update(row);

	if (from)
		return take(&from->place, to, AOI);
	/* Cannot happen: the flow had this row. */
	first[AOI]++;
	return NULL;
}

/* Takes the next update. */
static __always_inline struct sk_buff *take_newest(struct place *to)
{
	__u64 row = turns_serve(&turns);

	if (row != NONE)
		return take_update(row, to);
	/* Cannot happen: updates are counted when they join. */
	first[AOI] = next[AOI];
	return NULL;
}

/* Drops the first update of a host. */
static __always_inline void evict(__u64 host)
{
	__u64 row = turns_take(&turns, host);
	__u32 over = OVER;
	struct place *to = bpf_map_lookup_elem(&link, &over);
	struct sk_buff *skb;

	if (!to || row == NONE)
		return;
	skb = take_update(row, to);
	if (skb)
		lose(skb, to, LOST_TO_OVERFLOW);
}

#endif
