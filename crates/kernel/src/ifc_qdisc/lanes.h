/* The lanes of drop-averse packets: a FIFO, CoDel, or FQ-CoDel (RFC 8290), with the rules of freshline-core's
 * router::{Fifo, Codel, FqCodel}.
 *
 *     hash(flow) ─► lane: linked slots; state of CoDel; credit
 *     front of the new lanes, or of the old ones if there are no new ones:
 *         credit <= 0 ─► credit += quantum; the lane moves to the end of the old lanes
 *         empty       ─► a new lane moves to the end of the old lanes, if there are any; others leave
 *         otherwise   ─► CoDel drops the first packet, or the packet leaves: credit -= its bytes
 *
 * FIFO and CoDel have one lane. Free slots that were used before are linked in a list. For main.bpf.c only. */
#ifndef FRESHLINE_IFC_LANES_H
#define FRESHLINE_IFC_LANES_H

#include "flows.h"

/* The maximum number of packets that one overflow drops, as in Linux. */
#define MAX_LOST_AT_ONCE 64

enum loss {
	LOST_TO_OVERFLOW,
	LOST_TO_CODEL,
};

static __always_inline struct lane *lane_of(__u64 number)
{
	__u32 key = number;

	return bpf_map_lookup_elem(&lanes, &key);
}

/* The slot with this number; NULL for NONE and other numbers out of range. */
static __always_inline struct place *slot(__u64 number)
{
	__u32 key = number;

	if (number > slots_mask)
		return NULL;
	return bpf_map_lookup_elem(&slots, &key);
}

static __always_inline __u64 next_free_slot(void)
{
	return free_slot != NONE ? free_slot : used_slots;
}

static __always_inline void free_slot_is_taken(__u64 number, const struct place *place)
{
	if (free_slot == number)
		free_slot = place->next;
	else
		used_slots++;
}

static __always_inline void set_next(__u64 number, __u64 to)
{
	struct place *place = slot(number);

	if (place)
		place->next = to;
}

/* Puts a lane that is not in a list at the end of one. */
static __always_inline void append(struct lane_list *list, __u64 number, struct lane *lane)
{
	struct lane *last;

	lane->next = NONE;
	last = list->first != NONE ? lane_of(list->last) : NULL;
	if (last)
		last->next = number;
	else
		list->first = number;
	list->last = number;
}

/* Takes the packet out of a place of a queue, and copies its metadata to `to`. */
static __always_inline struct sk_buff *take(struct place *place, struct place *to, __u32 queue)
{
	struct account *account = account_of(queue);

	first[queue]++;
	account->waiting_packets -= place->segments;
	account->waiting_bytes -= place->bytes;
	to->queue = queue;
	to->arrived_ns = place->arrived_ns;
	to->bytes = place->bytes;
	to->segments = place->segments;
	to->flow_row = place->flow_row;
	to->flow_number = place->flow_number;
	return bpf_kptr_xchg(&place->skb, NULL);
}

/* Takes the first packet of a non-empty lane. */
static __always_inline struct sk_buff *take_first(struct lane *lane, struct place *to)
{
	__u64 number = lane->first;
	struct place *place = slot(number);

	if (!place) {
		/* Cannot happen: a lane links existing slots. */
		lane->first = NONE;
		return NULL;
	}
	lane->first = place->next;
	place->next = free_slot;
	free_slot = number;
	lane->bytes -= place->bytes;
	return take(place, to, DROP_AVERSE);
}

/* Drops a packet that was taken from its queue, and counts it. */
static __always_inline void lose(struct sk_buff *skb, const struct place *packet, enum loss loss)
{
	struct flow_account *flow = flow_of(packet);
	struct account *account = account_of(packet->queue);

	if (loss == LOST_TO_CODEL)
		account->congestion += packet->segments;
	else
		account->queue_full += packet->segments;
	if (flow && loss == LOST_TO_CODEL)
		flow->congestion += packet->segments;
	else if (flow)
		flow->queue_full += packet->segments;
	dropped_packets++;
	dropped_on_wire += length_on_wire(skb);
	bpf_kfree_skb(skb);
}

/* Updates the kernel's counters for the packets dropped in this call. */
static __always_inline void forget_lost(struct Qdisc *qdisc)
{
	if (!dropped_packets)
		return;
	qdisc->q.qlen -= dropped_packets;
	qdisc->qstats.backlog -= dropped_on_wire;
	qdisc->qstats.drops += dropped_packets;
	dropped_packets = 0;
	dropped_on_wire = 0;
}

/* Removes the lane at the front of its list, and appends it to the old lanes unless it leaves. */
static __always_inline void pass_turn(struct lane_list *list, struct lane *lane, int leaves)
{
	__u64 number = list->first;

	list->first = lane->next;
	if (leaves)
		lane->epoch = 0;
	else
		append(&old_lanes, number, lane);
}

/* One step towards the next drop-averse packet: returns the packet, or NULL if the lane at the front has
 * passed its turn or CoDel has dropped its packet. */
static __always_inline struct sk_buff *take_turn(struct place *to, __u64 now_ns)
{
	int is_new = new_lanes.first != NONE;
	struct lane *lane = lane_of(is_new ? new_lanes.first : old_lanes.first);
	struct sk_buff *skb;
	__u64 waited_ns;

	if (!lane)
		return NULL;
	if (lane->credit <= 0 || lane->first == NONE) {
		int leaves = lane->credit > 0 && !(is_new && old_lanes.first != NONE);

		if (lane->credit <= 0)
			lane->credit += settings.quantum;
		if (is_new)
			pass_turn(&new_lanes, lane, leaves);
		else
			pass_turn(&old_lanes, lane, leaves);
		return NULL;
	}
	skb = take_first(lane, to);
	if (!skb)
		return NULL;
	waited_ns = larger(now_ns, to->arrived_ns) - to->arrived_ns;
	if (codel_strikes(&lane->codel, now_ns, waited_ns, lane->bytes, &settings.codel)) {
		lose(skb, to, LOST_TO_CODEL);
		return NULL;
	}
	lane->credit -= to->bytes;
	if (!waiting(DROP_AVERSE)) {
		/* All lanes are empty, and become new with their next packet. */
		new_lanes.first = NONE;
		old_lanes.first = NONE;
		epoch++;
	}
	return skb;
}

#endif
