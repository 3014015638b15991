/* A packet's way into the queueing discipline: which queue it belongs to, and its place there. For
 * main.bpf.c alone. */
#ifndef FRESHLINE_IFC_ARRIVE_H
#define FRESHLINE_IFC_ARRIVE_H

#include "state.h"

#include <bpf/bpf_core_read.h>

/* Tells what is in `front`: its header, and to which queue it belongs. By itself for the verifier, which
 * would follow each path through it from each place before. */
__noinline int classify(void)
{
	struct settings *now;
	__u32 zero = 0;

	/* What says that it is IP and cannot be read has an empty header, and no priority. */
	read_header(front, front_length, &header);
	now = bpf_map_lookup_elem(&settings, &zero);
	if (!now)
		return DROP_AVERSE;
	return class_of(&header, now->rules, now->rules_count);
}

/* Where the IP header begins, from the packet's first byte on. */
static __always_inline __u32 ip_at(const struct sk_buff *skb)
{
	return skb->head + skb->network_header - skb->data;
}

/* Copies a packet's front, and gives its queue. */
static __always_inline __u32 queue_of(struct sk_buff *skb)
{
	__u32 at = ip_at(skb), length = skb->len;
	struct bpf_dynptr packet;

	header.flow.protocol = 0;
	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return BESIDE;
	front_length = 0;
	if (at >= length || bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &packet))
		return classify();
	length -= at;
	barrier_var(length);
	if (length > FRONT)
		length = FRONT;
	if (!bpf_dynptr_read(front, length, &packet, at, 0))
		front_length = length;
	return classify();
}

static __always_inline __u64 segments_of(const struct sk_buff *skb)
{
	const struct skb_shared_info *shared = (const void *)(skb->head + skb->end);

	return larger(BPF_CORE_READ(shared, gso_segs), 1);
}

/* How long it is, from the IP header on, each segment of a super-packet by itself. */
static __always_inline __u64 bytes_of(const struct sk_buff *skb, __u64 segments)
{
	__u64 all = length_on_wire(skb), before = ip_at(skb) * segments;

	return all > before ? all - before : all;
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
	return bpf_map_lookup_elem(&flows, flow);
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
				      __u64 most)
{
	struct place *place = bpf_map_lookup_elem(&newest, &header.flow), fresh = {};
	__u32 key = next[AOI] & tokens_mask;
	struct flow *token;

	if (place && place->segments)
		return replace(skb, qdisc, to_free, arrival, place);
	token = bpf_map_lookup_elem(&tokens, &key);
	if (!token || waiting(AOI) >= most)
		return refuse(skb, qdisc, to_free, arrival);
	if (!place) {
		bpf_map_update_elem(&newest, &header.flow, &fresh, BPF_NOEXIST);
		place = bpf_map_lookup_elem(&newest, &header.flow);
	}
	if (!place)
		return refuse(skb, qdisc, to_free, arrival);
	*token = header.flow;
	next[AOI]++;
	return settle(skb, qdisc, to_free, arrival, place);
}

static __always_inline int put_last(struct sk_buff *skb, struct Qdisc *qdisc,
				    struct bpf_sk_buff_ptr *to_free, const struct arrival *arrival,
				    __u32 queue)
{
	struct place *place = slot(queue, next[queue]);

	if (!place)
		return refuse(skb, qdisc, to_free, arrival);
	next[queue]++;
	place->flow = header.flow;
	return settle(skb, qdisc, to_free, arrival, place);
}

#endif
