/* Enqueues a packet: finds its queue, and its place there. For main.bpf.c only. */
#ifndef FRESHLINE_IFC_ARRIVE_H
#define FRESHLINE_IFC_ARRIVE_H

#include "updates.h"

#include <bpf/bpf_core_read.h>

/* Parses the header in `front`, and returns the packet's queue. A separate function, as the verifier would
 * otherwise check each path through it once per path of the caller. */
__noinline int classify(void)
{
	/* A malformed IP packet has an empty header, and is drop-averse. */
	read_header(front, front_length, &header);
	if (header.is_link_control)
		return OTHER;
	return class_of(&header, settings.rules, settings.rules_count);
}

/* Copies the front of a packet, from its byte `at` on; nothing if the packet is shorter. */
static __always_inline void read_front(struct sk_buff *skb, __u32 at)
{
	__u32 length = skb->len;
	struct bpf_dynptr packet;

	front_length = 0;
	if (at >= length || bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &packet))
		return;
	length -= at;
	barrier_var(length);
	if (length > FRONT)
		length = FRONT;
	if (!bpf_dynptr_read(front, length, &packet, at, 0))
		front_length = length;
}

/* Copies a packet's front, sets `before`, and returns the packet's queue. A VLAN tag that the device adds is
 * metadata of the packet, whose protocol is then that of the content. A tag in the packet itself is the
 * packet's protocol: such frames are forwarded by a bridge (with two tags), or sent by a packet socket or a
 * virtual machine. The kernel may regard the first tag as the network header. */
static __always_inline __u32 queue_of(struct sk_buff *skb)
{
	__u16 protocol = bpf_ntohs(skb->protocol);
	struct content content;

	before = skb->head + skb->network_header - skb->data;
	if (is_tag(protocol)) {
		read_front(skb, 0);
		content = content_of(front, front_length);
		protocol = content.ether_type;
		before = content.at;
	}
	if (!is_ip(protocol)) {
		/* Rules do not apply: its flow is unknown, and with `any` only the newest packet would stay. */
		__builtin_memset(&header, 0, sizeof(header));
		return is_link_protocol(protocol) ? OTHER : DROP_AVERSE;
	}
	read_front(skb, before);
	return classify();
}

/* The next two functions need the values that queue_of has set for this packet. */
static __always_inline __u64 segments_of(const struct sk_buff *skb)
{
	const struct skb_shared_info *shared = bpf_core_cast(skb->head + skb->end, struct skb_shared_info);

	return segments_in(shared->gso_segs, shared->gso_size, skb->len, length_on_wire(skb), before);
}

/* The packet's length from the IP header on, as the sum over the segments of a super-packet. */
static __always_inline __u64 bytes_of(const struct sk_buff *skb, __u64 segments)
{
	__u64 all = length_on_wire(skb), headers = before * segments;

	return all > headers ? all - headers : all;
}

/* An arriving packet, for the functions that enqueue it. */
struct arrival {
	__u64 now_ns;
	__u64 bytes;
	__u64 segments;
	struct account *account;
	/* Its flow's account, and the account's row in `flows`; NULL and NONE without a flow. */
	struct flow_account *flow;
	__u64 flow_row;
	__u64 hash;
};

/* Records the stream protocol that the packet looks like. Returns whether the packet is drop-averse because
 * an earlier packet of its flow looked like a stream. */
static __always_inline int is_of_stream(struct flow_account *flow)
{
	if (header.stream)
		flow->stream = header.stream;
	return header.is_guarded && flow->stream;
}

static __always_inline int refuse(struct sk_buff *skb, struct Qdisc *qdisc,
				  struct bpf_sk_buff_ptr *to_free, const struct arrival *arrival)
{
	arrival->account->queue_full += arrival->segments;
	if (arrival->flow)
		arrival->flow->queue_full += arrival->segments;
	qdisc->qstats.drops++;
	bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_DROP;
}

/* Stores the metadata of a packet in its place. */
static __always_inline void note(struct place *place, const struct arrival *arrival)
{
	place->arrived_ns = arrival->now_ns;
	place->bytes = arrival->bytes;
	place->segments = arrival->segments;
	place->flow_row = arrival->flow_row;
	place->flow_number = arrival->flow ? arrival->flow->number : 0;
}

/* Puts a packet into a free place. */
static __always_inline int settle(struct sk_buff *skb, struct Qdisc *qdisc, struct bpf_sk_buff_ptr *to_free,
				  const struct arrival *arrival, struct place *place)
{
	arrival->account->waiting_packets += arrival->segments;
	arrival->account->waiting_bytes += arrival->bytes;
	qdisc->q.qlen++;
	qdisc->qstats.backlog += length_on_wire(skb);
	note(place, arrival);
	skb = bpf_kptr_xchg(&place->skb, skb);
	if (skb)
		bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_SUCCESS;
}

/* Replaces the queued update of a flow by a newer one. */
static __always_inline int replace(struct sk_buff *skb, struct Qdisc *qdisc, struct bpf_sk_buff_ptr *to_free,
				   const struct arrival *arrival, struct place *place)
{
	struct account *account = arrival->account;
	__u64 segments = place->segments;

	account->waiting_packets += arrival->segments - segments;
	account->waiting_bytes += arrival->bytes - place->bytes;
	account->replaced += segments;
	if (arrival->flow)
		arrival->flow->replaced += segments;
	qdisc->qstats.drops++;
	qdisc->qstats.backlog += length_on_wire(skb);
	note(place, arrival);
	skb = bpf_kptr_xchg(&place->skb, skb);
	if (skb) {
		qdisc->qstats.backlog -= length_on_wire(skb);
		bpf_qdisc_skb_drop(skb, to_free);
	}
	return NET_XMIT_SUCCESS;
}

/* Enqueues an update: it replaces the queued update of its flow, or its flow joins the turns. */
static __always_inline int put_newest(struct sk_buff *skb, struct Qdisc *qdisc,
				      struct bpf_sk_buff_ptr *to_free, const struct arrival *arrival)
{
	__u64 row = turns_flow(&header.flow, arrival->hash), host = NONE, victim;
	struct update *at = update(row);
	struct host_key key;

	if (at)
		return replace(skb, qdisc, to_free, arrival, &at->place);
	if (settings.by_host) {
		key = host_of(secrets, &header.flow);
		host = turns_host(&key);
	}
	if (row == NO_ROOM || host == NO_ROOM)
		return refuse(skb, qdisc, to_free, arrival);
	if (waiting(AOI) >= settings.max_flows) {
		victim = turns_victim(&turns, host);
		if (victim == NONE)
			return refuse(skb, qdisc, to_free, arrival);
		evict(victim);
		forget_lost(qdisc);
	}
	row = turns_join(&turns, &header.flow, arrival->hash, host, settings.by_host ? &key : NULL);
	at = update(row);
	if (!at)
		return refuse(skb, qdisc, to_free, arrival);
	next[AOI]++;
	return settle(skb, qdisc, to_free, arrival, &at->place);
}

/* Puts a link control packet at the end of its ring. */
static __always_inline int put_beside(struct sk_buff *skb, struct Qdisc *qdisc,
				      struct bpf_sk_buff_ptr *to_free, const struct arrival *arrival)
{
	struct place *place = place_beside(next[OTHER]);

	if (!place || waiting(OTHER) >= MAX_OTHER)
		return refuse(skb, qdisc, to_free, arrival);
	next[OTHER]++;
	return settle(skb, qdisc, to_free, arrival, place);
}

/* Whether the drop-averse lanes exceed their limits, with this many packets and bytes in addition. */
static __always_inline int is_over_limit(const struct account *account, __u64 packets, __u64 bytes)
{
	return account->waiting_packets + packets > settings.max_packets ||
	       account->waiting_bytes + bytes > settings.max_bytes;
}

static long look_at_lane(__u64 number, void *nothing)
{
	struct lane *lane = lane_of(number);

	if (!lane)
		return 1;
	if (lane->bytes > max_queue_bytes) {
		max_queue_bytes = lane->bytes;
		longest = number;
	}
	return 0;
}

/* Drops the oldest packet of the longest lane, unless the lane has lost half of its bytes already. */
static long shorten_longest(__u64 round, void *nothing)
{
	__u32 over = OVER;
	struct place *to = bpf_map_lookup_elem(&link, &over);
	struct lane *lane = lane_of(longest);
	struct sk_buff *skb;

	if (!lane || !to || lane->first == NONE || lane->bytes <= max_queue_bytes / 2)
		return 1;
	skb = take_first(lane, to);
	if (skb)
		lose(skb, to, LOST_TO_OVERFLOW);
	return 0;
}

/* Puts a drop-averse packet at the end of the lane of its flow. */
static __always_inline int put_last(struct sk_buff *skb, struct Qdisc *qdisc,
				    struct bpf_sk_buff_ptr *to_free, const struct arrival *arrival)
{
	__u64 number = settings.lanes > 1 ? bpf_skb_get_hash(skb) % settings.lanes : 0, at;
	struct lane *lane = lane_of(number);
	struct place *place;

	/* A super-packet is accepted if there is room for its first segment. */
	if (!lane || (!settings.drops_longest && is_over_limit(arrival->account, 1, arrival->bytes)))
		return refuse(skb, qdisc, to_free, arrival);
	at = next_free_slot();
	place = slot(at);
	if (!place)
		return refuse(skb, qdisc, to_free, arrival);
	free_slot_is_taken(at, place);
	place->next = NONE;
	if (lane->epoch != epoch || lane->first == NONE)
		lane->first = at;
	else
		set_next(lane->last, at);
	lane->last = at;
	lane->bytes += arrival->bytes;
	if (lane->epoch != epoch) {
		lane->epoch = epoch;
		lane->credit = settings.quantum;
		codel_on_empty(&lane->codel);
		append(&new_lanes, number, lane);
	}
	next[DROP_AVERSE]++;
	settle(skb, qdisc, to_free, arrival, place);
	if (is_over_limit(arrival->account, 0, 0)) {
		max_queue_bytes = 0;
		bpf_loop(settings.lanes, look_at_lane, NULL, 0);
		bpf_loop(MAX_LOST_AT_ONCE, shorten_longest, NULL, 0);
		forget_lost(qdisc);
	}
	return NET_XMIT_SUCCESS;
}

#endif
