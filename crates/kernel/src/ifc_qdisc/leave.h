/* Dequeues packets: from the queue onto the link, and to the device when the transmission is over. For
 * main.bpf.c only. */
#ifndef FRESHLINE_IFC_LEAVE_H
#define FRESHLINE_IFC_LEAVE_H

#include "arrive.h"

static __always_inline struct sk_buff *take_beside(struct place *to)
{
	struct place *place = place_beside(first[OTHER]);

	if (place)
		return take(place, to, OTHER);
	/* Cannot happen: the ring has MAX_OTHER places. */
	first[OTHER]++;
	return NULL;
}

/* Takes the next packet of a non-empty queue, AOI or OTHER. */
static __always_inline struct sk_buff *take_next(__u32 queue, struct place *to)
{
	return queue == AOI ? take_newest(to) : take_beside(to);
}

/* The queue to serve next; QUEUES if all are empty. */
static __always_inline __u32 choose(__u64 now_ns)
{
	__u64 updates = waiting(AOI), beside = waiting(OTHER), others = waiting(DROP_AVERSE) + segments_left;

	if (!updates && !beside && !others)
		return QUEUES;
	if (scheduler_prefers(&scheduler, now_ns, &settings.scheduler) == AOI ? updates : !beside && !others)
		return AOI;
	return beside_goes_first(beside, others, beside_was_last) ? OTHER : DROP_AVERSE;
}

/* The line of the link for the packets of this queue. */
static __always_inline struct place *line_of(__u32 queue)
{
	__u32 key = queue == DROP_AVERSE ? IN_SEGMENTS : WHOLE;

	return bpf_map_lookup_elem(&link, &key);
}

/* Puts a packet on a line of the link. */
static __always_inline void occupy(struct sk_buff *skb, struct place *line)
{
	struct account *account = account_of(line->queue);

	if (line->queue == DROP_AVERSE)
		segments_left = settings.rate ? larger(line->segments, 1) : 1;
	/* It may have arrived after the end of the last transmission. */
	line->waited_ns = larger(shaper.free_ns, line->arrived_ns) - line->arrived_ns;
	account->on_link_packets = line->segments;
	account->on_link_bytes = line->bytes;
	skb = bpf_kptr_xchg(&line->skb, skb);
	if (skb)
		bpf_kfree_skb(skb);
}

/* The bytes of the next segment: the sum over all segments is the packet's length. */
static __always_inline __u64 segment(const struct place *line)
{
	__u64 all = larger(line->segments, 1), after = segments_left - 1;

	return line->bytes * (all - after) / all - line->bytes * (all - segments_left) / all;
}

/* Starts the transmission of the packet on a line, or of its next segment; at the device's own rate, of all
 * segments at once. */
static __always_inline void transmit(const struct place *line)
{
	__u64 queue = line->queue, bytes = line->bytes, segments = larger(line->segments, 1);

	if (queue == DROP_AVERSE) {
		segments = 1;
		if (settings.rate)
			bytes = segment(line);
	}
	beside_was_last = queue == AOI ? beside_was_last : queue == OTHER;
	scheduler_on_sent(&scheduler, queue == AOI ? AOI : DROP_AVERSE, bytes, &settings.scheduler);
	if (settings.rate)
		shaper_send(&shaper, segments * on_link(bytes / segments, &settings.framing), settings.rate);
	sending = (queue == DROP_AVERSE ? IN_SEGMENTS : WHOLE) + 1;
}

/* Starts the transmission of the next packet or segment, if there is one. Returns whether a further call may
 * find one. */
static __always_inline int start(void)
{
	__u32 queue = choose(shaper.free_ns);
	struct place *line = line_of(queue);
	struct sk_buff *skb;

	if (!line || queue >= QUEUES)
		return 0;
	if (queue != DROP_AVERSE || !segments_left) {
		skb = queue == DROP_AVERSE ? take_turn(line, shaper.free_ns) : take_next(queue, line);
		if (!skb)
			return queue == DROP_AVERSE;
		occupy(skb, line);
	}
	transmit(line);
	return 0;
}

/* Starts the transmission of an arriving packet at once, as the link is idle and all queues are empty. */
static __always_inline int send_at_once(struct sk_buff *skb, struct Qdisc *qdisc,
					struct bpf_sk_buff_ptr *to_free, const struct arrival *arrival,
					__u32 queue)
{
	struct place *line = line_of(queue);

	if (!line)
		return refuse(skb, qdisc, to_free, arrival);
	qdisc->q.qlen++;
	qdisc->qstats.backlog += length_on_wire(skb);
	note(line, arrival);
	line->queue = queue;
	/* The intervals of TDM go on. */
	scheduler_prefers(&scheduler, shaper.free_ns, &settings.scheduler);
	occupy(skb, line);
	transmit(line);
	return NET_XMIT_SUCCESS;
}

static __always_inline void count_sent(const struct place *packet)
{
	__u64 bucket = sojourn_bucket(packet->waited_ns), of_flow = flow_sojourn_bucket(bucket), *sojourn;
	struct account *account = account_of(packet->queue);
	__u32 key = packet->queue * SOJOURN_BUCKETS + bucket;
	__u64 at_ns = bpf_ktime_get_boot_ns();
	struct flow_account *flow;

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
	flow = flow_of(packet);
	if (!flow)
		return;
	flow->packets_out += packet->segments;
	flow->bytes_out += packet->bytes;
	recent_count(&flow->recent, at_ns, packet->bytes);
	flow->sojourns[of_flow]++;
}

/* Ends a transmission. Returns whether it was that of a whole packet or of its last segment; then the packet
 * is in the line OVER. */
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

/* Ends the transmission if its time is over, and starts the next one. The loop ends when a packet has left, or
 * when no transmission is over. At the device's own rate a packet leaves when its transmission starts, and the
 * next one does not start: packets that arrive before the device's next request may overtake it. */
static long step(__u64 round, __u64 *now_ns)
{
	int has_left = 0, looks_on;

	if (!settings.rate) {
		shaper_on_arrival(&shaper, *now_ns);
		looks_on = sending || start();
		return sending ? finish() : !looks_on;
	}
	if (sending && *now_ns < shaper.free_ns)
		return 1;
	if (sending)
		has_left = finish();
	looks_on = start();
	return has_left || (!sending && !looks_on);
}

#endif
