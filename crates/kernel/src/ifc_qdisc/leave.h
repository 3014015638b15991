/* A packet's way out of the queueing discipline: out of its queue, onto the link, and off it when its
 * transmission is over. For main.bpf.c alone. */
#ifndef FRESHLINE_IFC_LEAVE_H
#define FRESHLINE_IFC_LEAVE_H

#include "state.h"

/* Takes the packet out of a place, and what is known of it. */
static __always_inline struct sk_buff *take(struct place *place, struct place *to)
{
	to->arrived_ns = place->arrived_ns;
	to->bytes = place->bytes;
	to->segments = place->segments;
	/* For `put_newest`, should the kernel not delete the slot. */
	place->segments = 0;
	return bpf_kptr_xchg(&place->skb, NULL);
}

/* The packet of the flow that has waited longest. */
static __always_inline struct sk_buff *take_newest(struct place *to)
{
	__u32 key = first[AOI] & tokens_mask;
	struct flow *token = bpf_map_lookup_elem(&tokens, &key);
	struct sk_buff *skb;
	struct place *place;

	first[AOI]++;
	if (!token)
		return NULL;
	to->flow = *token;
	place = bpf_map_lookup_elem(&newest, token);
	if (!place)
		return NULL;
	skb = take(place, to);
	bpf_map_delete_elem(&newest, token);
	return skb;
}

static __always_inline struct sk_buff *take_first(__u32 queue, struct place *to)
{
	struct place *place = slot(queue, first[queue]);

	first[queue]++;
	if (!place)
		return NULL;
	to->flow = place->flow;
	return take(place, to);
}

/* Takes the next packet of a queue in which there is one. */
static __always_inline struct sk_buff *take_next(__u32 queue, struct place *to)
{
	struct account *account = account_of(queue);
	struct sk_buff *skb;

	if (!account)
		return NULL;
	to->queue = queue;
	if (queue == AOI)
		skb = take_newest(to);
	else if (queue == DROP_AVERSE)
		skb = take_first(DROP_AVERSE, to);
	else
		skb = take_first(BESIDE, to);
	if (skb) {
		account->waiting_packets -= to->segments;
		account->waiting_bytes -= to->bytes;
	}
	return skb;
}

/* The queue that is to be served; QUEUES for none. */
static __always_inline __u32 choose(__u64 now_ns, const struct settings *now)
{
	__u64 updates = waiting(AOI), others = waiting(DROP_AVERSE) + waiting(BESIDE) + segments_left;

	if (!updates && !others)
		return QUEUES;
	if (scheduler_prefers(&scheduler, now_ns, &now->scheduler) == AOI ? updates : !others)
		return AOI;
	return waiting(BESIDE) ? BESIDE : DROP_AVERSE;
}

/* Puts the next packet of a queue on a line. Whether there was one. */
static __always_inline int occupy(__u32 queue, struct place *line)
{
	struct sk_buff *skb = take_next(queue, line);
	struct account *account = account_of(queue);

	if (!skb)
		return 0;
	/* It may have come after the time at which the one before was due. */
	line->waited_ns = larger(shaper.free_ns, line->arrived_ns) - line->arrived_ns;
	if (account) {
		account->on_link_packets = line->segments;
		account->on_link_bytes = line->bytes;
	}
	skb = bpf_kptr_xchg(&line->skb, skb);
	if (skb)
		bpf_kfree_skb(skb);
	return 1;
}

/* The bytes of the segment whose turn it is: all of them have the packet's together. */
static __always_inline __u64 segment(const struct place *line)
{
	__u64 all = larger(line->segments, 1), after = segments_left - 1;

	return line->bytes * (all - after) / all - line->bytes * (all - segments_left) / all;
}

/* Begins to send the next packet or segment, if one waits. */
static __always_inline void start(const struct settings *now)
{
	__u32 queue = choose(shaper.free_ns, now), key = queue == DROP_AVERSE ? IN_SEGMENTS : WHOLE;
	struct place *line = bpf_map_lookup_elem(&link, &key);
	__u64 bytes;

	if (!line || queue >= QUEUES)
		return;
	if (queue == DROP_AVERSE) {
		if (!segments_left) {
			if (!occupy(DROP_AVERSE, line))
				return;
			segments_left = line->segments;
		}
		bytes = segment(line);
		scheduler_on_sent(&scheduler, DROP_AVERSE, bytes, &now->scheduler);
	} else {
		if (!(queue == AOI ? occupy(AOI, line) : occupy(BESIDE, line)))
			return;
		bytes = line->bytes;
		scheduler_on_sent(&scheduler, queue == AOI ? AOI : DROP_AVERSE, bytes, &now->scheduler);
	}
	shaper_send(&shaper, bytes, now->rate);
	sending = key + 1;
}

static __always_inline void count_sent(const struct place *packet)
{
	__u64 bucket = sojourn_bucket(packet->waited_ns), of_flow = flow_sojourn_bucket(bucket), *sojourn;
	struct account *account = account_of(packet->queue);
	__u32 key = packet->queue * SOJOURN_BUCKETS + bucket;
	struct flow_account *flow;

	if (!account)
		return;
	account->on_link_packets = 0;
	account->on_link_bytes = 0;
	account->packets_out += packet->segments;
	account->bytes_out += packet->bytes;
	if (packet->queue == BESIDE)
		return;
	sojourn = bpf_map_lookup_elem(&sojourns, &key);
	if (sojourn)
		(*sojourn)++;
	flow = bpf_map_lookup_elem(&flows, &packet->flow);
	if (!flow)
		return;
	flow->packets_out += packet->segments;
	flow->bytes_out += packet->bytes;
	flow->sojourns[of_flow]++;
}

/* A transmission is over. Whether a packet has left with it, which is in the line OVER then. */
static __always_inline int finish(void)
{
	__u32 key = sending == IN_SEGMENTS + 1 ? IN_SEGMENTS : WHOLE, over = OVER;
	struct place *line = bpf_map_lookup_elem(&link, &key), *to = bpf_map_lookup_elem(&link, &over);
	struct sk_buff *skb;

	sending = 0;
	if (key == IN_SEGMENTS && segments_left && --segments_left)
		return 0;
	if (!line || !to)
		return 0;
	count_sent(line);
	skb = bpf_kptr_xchg(&line->skb, NULL);
	if (!skb)
		return 0;
	skb = bpf_kptr_xchg(&to->skb, skb);
	if (skb)
		bpf_kfree_skb(skb);
	return 1;
}

/* Ends a transmission whose time is over, and begins the next one. Goes on until a packet has left, or
 * nothing is over. */
static long step(__u64 round, __u64 *now_ns)
{
	struct settings *now;
	__u32 zero = 0;
	int has_left = 0;

	now = bpf_map_lookup_elem(&settings, &zero);
	if (!now || (sending && *now_ns < shaper.free_ns))
		return 1;
	if (sending)
		has_left = finish();
	start(now);
	return has_left || !sending;
}

#endif
