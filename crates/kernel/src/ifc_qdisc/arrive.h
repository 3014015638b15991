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
	struct settings *now;
	__u32 zero = 0;

	/* What says that it is IP and cannot be read has an empty header, and no priority. */
	read_header(front, front_length, &header);
	if (header.is_link_control)
		return OTHER;
	now = bpf_map_lookup_elem(&settings, &zero);
	if (!now)
		return DROP_AVERSE;
	return class_of(&header, now->rules, now->rules_count);
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
	const struct skb_shared_info *shared = (const void *)(skb->head + skb->end);
	__u64 count = BPF_CORE_READ(shared, gso_segs), size = BPF_CORE_READ(shared, gso_size);

	return segments_in(count, size, skb->len, length_on_wire(skb), before);
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
	struct flow_account *flow;
};

/* The flow's row, perhaps a new one. */
static __always_inline struct flow_account *flow_account(const struct flow *flow)
{
	struct flow_account *known = bpf_map_lookup_elem(&flows, flow);
	struct about *this;
	__u32 zero = 0;

	if (known)
		return known;
	this = bpf_map_lookup_elem(&about, &zero);
	if (this)
		this->flows_begun++;
	bpf_map_update_elem(&flows, flow, &unknown_flow, BPF_ANY);
	known = bpf_map_lookup_elem(&flows, flow);
	if (known)
		known->first_ns = bpf_ktime_get_boot_ns();
	return known;
}

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

/* Gives a packet into a free place. */
static __always_inline int settle(struct sk_buff *skb, struct Qdisc *qdisc, struct bpf_sk_buff_ptr *to_free,
				  const struct arrival *arrival, struct place *place)
{
	arrival->account->waiting_packets += arrival->segments;
	arrival->account->waiting_bytes += arrival->bytes;
	qdisc->q.qlen++;
	qdisc->qstats.backlog += length_on_wire(skb);
	place->arrived_ns = arrival->now_ns;
	place->bytes = arrival->bytes;
	place->segments = arrival->segments;
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
	place->arrived_ns = arrival->now_ns;
	place->bytes = arrival->bytes;
	place->segments = arrival->segments;
	skb = bpf_kptr_xchg(&place->skb, skb);
	if (skb) {
		qdisc->qstats.backlog -= length_on_wire(skb);
		bpf_qdisc_skb_drop(skb, to_free);
	}
	return NET_XMIT_SUCCESS;
}

static __always_inline int put_newest(struct sk_buff *skb, struct Qdisc *qdisc,
				      struct bpf_sk_buff_ptr *to_free, const struct arrival *arrival,
				      const struct settings *now)
{
	struct place *place = bpf_map_lookup_elem(&newest, &header.flow), fresh = {};
	struct host_address address;
	__u64 host, victim;

	if (place && place->segments)
		return replace(skb, qdisc, to_free, arrival, place);
	address = host_of(&header.flow);
	host = now->by_host ? turns_host(&address) : NONE;
	if (waiting(AOI) >= now->max_flows) {
		victim = turns_victim(&turns, host);
		if (victim == NONE)
			return refuse(skb, qdisc, to_free, arrival);
		evict(victim);
		forget_lost(qdisc);
	}
	if (!place) {
		bpf_map_update_elem(&newest, &header.flow, &fresh, BPF_NOEXIST);
		place = bpf_map_lookup_elem(&newest, &header.flow);
	}
	if (!place || !turns_join(&turns, &header.flow, host, now->by_host ? &address : NULL))
		return refuse(skb, qdisc, to_free, arrival);
	next[AOI]++;
	return settle(skb, qdisc, to_free, arrival, place);
}

/* Puts a packet that keeps the link working behind the others of its kind. */
static __always_inline int put_beside(struct sk_buff *skb, struct Qdisc *qdisc,
				      struct bpf_sk_buff_ptr *to_free, const struct arrival *arrival)
{
	struct place *place = place_beside(next[OTHER]);

	if (!place || waiting(OTHER) >= MAX_OTHER)
		return refuse(skb, qdisc, to_free, arrival);
	next[OTHER]++;
	place->flow = header.flow;
	return settle(skb, qdisc, to_free, arrival, place);
}

/* Whether the drop-averse lanes hold more than they may, with so much more. */
static __always_inline int is_over_limit(const struct account *account, const struct settings *now,
					 __u64 packets, __u64 bytes)
{
	return account->waiting_packets + packets > now->max_packets ||
	       account->waiting_bytes + bytes > now->max_bytes;
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
				    struct bpf_sk_buff_ptr *to_free, const struct arrival *arrival,
				    const struct settings *now)
{
	__u64 number = now->lanes > 1 ? bpf_skb_get_hash(skb) % now->lanes : 0, at;
	struct lane *lane = lane_of(number);
	struct place *place;

	/* A super-packet finds a place while there is one for its first segment. */
	if (!lane || (!now->drops_longest && is_over_limit(arrival->account, now, 1, arrival->bytes)))
		return refuse(skb, qdisc, to_free, arrival);
	at = next_free_slot();
	place = slot(at);
	if (!place)
		return refuse(skb, qdisc, to_free, arrival);
	free_slot_is_taken(at, place);
	place->next = NONE;
	place->flow = header.flow;
	if (lane->epoch != epoch || lane->first == NONE)
		lane->first = at;
	else
		set_next(lane->last, at);
	lane->last = at;
	lane->bytes += arrival->bytes;
	if (lane->epoch != epoch) {
		lane->epoch = epoch;
		lane->credit = now->quantum;
		codel_on_empty(&lane->codel);
		append(&new_lanes, number, lane);
	}
	next[DROP_AVERSE]++;
	settle(skb, qdisc, to_free, arrival, place);
	if (is_over_limit(arrival->account, now, 0, 0)) {
		max_queue_bytes = 0;
		bpf_loop(now->lanes, look_at_lane, NULL, 0);
		bpf_loop(MAX_LOST_AT_ONCE, shorten_longest, NULL, 0);
		forget_lost(qdisc);
	}
	return NET_XMIT_SUCCESS;
}

#endif
