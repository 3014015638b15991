/* A packet's way out of the queueing discipline: out of its queue, onto the link, and off it when its
 * transmission is over. For main.bpf.c alone. */
#ifndef FRESHLINE_IFC_LEAVE_H
#define FRESHLINE_IFC_LEAVE_H

#include "updates.h"

static __always_inline struct sk_buff *take_beside(struct place *to)
{
	struct place *place = place_beside(first[OTHER]);
	struct account *account = account_of(OTHER);
	struct sk_buff *skb;

	first[OTHER]++;
	to->queue = OTHER;
	if (!place || !account)
		return NULL;
	to->flow = place->flow;
	skb = take(place, to);
	account->waiting_packets -= to->segments;
	account->waiting_bytes -= to->bytes;
	return skb;
}

/* Takes the next packet of a queue in which there is one, other than the drop-averse one. */
static __always_inline struct sk_buff *take_next(__u32 queue, struct place *to)
{
	return queue == AOI ? take_newest(to) : take_beside(to);
}

/* The queue that is to be served; QUEUES for none. */
static __always_inline __u32 choose(__u64 now_ns, const struct settings *now)
{
	__u64 updates = waiting(AOI), beside = waiting(OTHER), others = waiting(DROP_AVERSE) + segments_left;

	if (!updates && !beside && !others)
		return QUEUES;
	if (scheduler_prefers(&scheduler, now_ns, &now->scheduler) == AOI ? updates : !beside && !others)
		return AOI;
	return beside_goes_first(beside, others, beside_was_last) ? OTHER : DROP_AVERSE;
}

/* Puts a packet on a line. */
static __always_inline void occupy(struct sk_buff *skb, struct place *line)
{
	struct account *account = account_of(line->queue);

	/* It may have come after the time at which the one before was due. */
	line->waited_ns = larger(shaper.free_ns, line->arrived_ns) - line->arrived_ns;
	if (account) {
		account->on_link_packets = line->segments;
		account->on_link_bytes = line->bytes;
	}
	skb = bpf_kptr_xchg(&line->skb, skb);
	if (skb)
		bpf_kfree_skb(skb);
}

/* The bytes of the segment whose turn it is: all of them have the packet's together. */
static __always_inline __u64 segment(const struct place *line)
{
	__u64 all = larger(line->segments, 1), after = segments_left - 1;

	return line->bytes * (all - after) / all - line->bytes * (all - segments_left) / all;
}

/* Begins to send the next packet or segment, if one waits; at the device's own rate all segments at once.
 * Whether to go on looking for one. */
static __always_inline int start(const struct settings *now)
{
	__u32 queue = choose(shaper.free_ns, now), key = queue == DROP_AVERSE ? IN_SEGMENTS : WHOLE;
	struct place *line = bpf_map_lookup_elem(&link, &key);
	struct sk_buff *skb;
	__u64 bytes, segments = 1;

	if (!line || queue >= QUEUES)
		return 0;
	if (queue == DROP_AVERSE) {
		if (!segments_left) {
			skb = take_turn(line, shaper.free_ns, now);
			if (!skb)
				return 1;
			occupy(skb, line);
			segments_left = now->rate ? larger(line->segments, 1) : 1;
		}
		beside_was_last = 0;
		bytes = now->rate ? segment(line) : line->bytes;
		scheduler_on_sent(&scheduler, DROP_AVERSE, bytes, &now->scheduler);
	} else {
		skb = queue == AOI ? take_next(AOI, line) : take_next(OTHER, line);
		if (!skb)
			return 0;
		occupy(skb, line);
		bytes = line->bytes;
		segments = larger(line->segments, 1);
		if (queue == OTHER)
			beside_was_last = 1;
		scheduler_on_sent(&scheduler, queue == AOI ? AOI : DROP_AVERSE, bytes, &now->scheduler);
	}
	if (now->rate)
		shaper_send(&shaper, segments * on_link(bytes / segments, &now->framing), now->rate);
	sending = key + 1;
	return 0;
}

static __always_inline void count_sent(const struct place *packet)
{
	__u64 bucket = sojourn_bucket(packet->waited_ns), of_flow = flow_sojourn_bucket(bucket), *sojourn;
	struct account *account = account_of(packet->queue);
	__u32 key = packet->queue * SOJOURN_BUCKETS + bucket;
	__u64 at_ns = bpf_ktime_get_boot_ns();
	struct flow_account *flow;

	if (!account)
		return;
	account->on_link_packets = 0;
	account->on_link_bytes = 0;
	account->packets_out += packet->segments;
	account->bytes_out += packet->bytes;
	recent_count(&account->recent, at_ns, packet->bytes);
	if (packet->queue == OTHER)
		return;
	sojourn = bpf_map_lookup_elem(&sojourns, &key);
	if (sojourn)
		(*sojourn)++;
	flow = bpf_map_lookup_elem(&flows, &packet->flow);
	if (!flow)
		return;
	flow->packets_out += packet->segments;
	flow->bytes_out += packet->bytes;
	recent_count(&flow->recent, at_ns, packet->bytes);
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
 * nothing is over. At the device's own rate the packet leaves as it begins, and the next one does not
 * begin: what comes until the device asks again may overtake it. */
static long step(__u64 round, __u64 *now_ns)
{
	struct settings *now;
	__u32 zero = 0;
	int has_left = 0, looks_on;

	now = bpf_map_lookup_elem(&settings, &zero);
	if (!now)
		return 1;
	if (!now->rate) {
		shaper_on_arrival(&shaper, *now_ns);
		looks_on = sending || start(now);
		return sending ? finish() : !looks_on;
	}
	if (sending && *now_ns < shaper.free_ns)
		return 1;
	if (sending)
		has_left = finish();
	looks_on = start(now);
	return has_left || (!sending && !looks_on);
}

#endif
