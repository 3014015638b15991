/* A packet's way into the queueing discipline: which queue it belongs to, and its place there. For
 * main.bpf.c alone. */
#ifndef FRESHLINE_IFC_ARRIVE_H
#define FRESHLINE_IFC_ARRIVE_H

#include "updates.h"

#include <bpf/bpf_core_read.h>

/* Tells what is in `front`: its header, and to which queue it belongs. By itself for the verifier, which
 * would follow each path through it from each place before. */
__noinline int classify(void)
{
	/* What says that it is IP and cannot be read has an empty header, and no priority. */
	read_header(front, front_length, &header);
	if (header.is_link_control)
		return OTHER;
	return class_of(&header, settings.rules, settings.rules_count);
}

/* Copies the front of a packet from its byte `at` on; nothing of it where it ends before. */
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

/* Copies a packet's front, and gives its queue and `before`. A tag that the device adds is beside the
 * packet, whose protocol is that of the content. A tag in the packet itself is its protocol: that of a
 * frame with two of them that a bridge forwards, or of one that a packet socket or a virtual machine
 * sent. The kernel may take the first tag for the network header. */
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
		/* No rule speaks of it: its flow is not known, of which `any` would keep the newest packet. */
		__builtin_memset(&header, 0, sizeof(header));
		return is_link_protocol(protocol) ? OTHER : DROP_AVERSE;
	}
	read_front(skb, before);
	return classify();
}

/* These two are of a packet that queue_of has read. */
static __always_inline __u64 segments_of(const struct sk_buff *skb)
{
	const struct skb_shared_info *shared = bpf_core_cast(skb->head + skb->end, struct skb_shared_info);

	return segments_in(shared->gso_segs, shared->gso_size, skb->len, length_on_wire(skb), before);
}

/* How long it is, from the IP header on, each segment of a super-packet by itself. */
static __always_inline __u64 bytes_of(const struct sk_buff *skb, __u64 segments)
{
	__u64 all = length_on_wire(skb), headers = before * segments;

	return all > headers ? all - headers : all;
}

/* What has come, for the functions that find a place for it. */
struct arrival {
	__u64 now_ns;
	__u64 bytes;
	__u64 segments;
	struct account *account;
	/* What is known of its flow, and in which row of `flows`; NULL and NONE where it has none. */
	struct flow_account *flow;
	__u64 flow_row;
	__u64 hash;
};

/* Notes which stream the packet looks like. Whether it is drop-averse as an earlier packet of its flow
 * looked like one. */
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

/* Notes what is to be remembered of a packet at its place. */
static __always_inline void note(struct place *place, const struct arrival *arrival)
{
	place->arrived_ns = arrival->now_ns;
	place->bytes = arrival->bytes;
	place->segments = arrival->segments;
	place->flow_row = arrival->flow_row;
	place->flow_number = arrival->flow ? arrival->flow->number : 0;
}

/* Gives a packet into a free place. */
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

/* Gives an update into the place of an older one of its flow. */
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

/* Gives an update into the place of the older one of its flow, or a place in turn. */
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

/* Puts a packet that keeps the link working behind the others of its kind. */
static __always_inline int put_beside(struct sk_buff *skb, struct Qdisc *qdisc,
				      struct bpf_sk_buff_ptr *to_free, const struct arrival *arrival)
{
	struct place *place = place_beside(next[OTHER]);

	if (!place || waiting(OTHER) >= MAX_OTHER)
		return refuse(skb, qdisc, to_free, arrival);
	next[OTHER]++;
	return settle(skb, qdisc, to_free, arrival, place);
}

/* Whether the drop-averse lanes hold more than they may, with so much more. */
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

/* Drops the oldest packet of the longest lane, until it has lost half of its bytes. */
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

	/* A super-packet finds a place while there is one for its first segment. */
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
