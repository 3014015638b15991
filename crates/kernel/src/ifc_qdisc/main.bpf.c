/* Freshness control as a queueing discipline of the kernel, at the root of one device: the newest update
 * of each flow, FQ-CoDel (or CoDel, or a FIFO) for drop-averse packets, a scheduler between them, and a shaper behind.
 *
 *                ┌ newest: a packet a flow ◄─ hosts in turn         ┐
 *  ─► class_of ──┼ lanes: a CoDel queue a hash of flows (lanes.h)   ├─► scheduler ─► link ─►
 *                └ a ring of ARP, LLDP, … (every second turn) ──────┘
 *
 * A packet leaves when its transmission is over, or without a rate as the device asks for one: the queue
 * is then what the device's own limit (BQL, a full ring) leaves here. Super-packets cannot be taken apart here: a drop-averse
 * one is sent segment by segment, with updates between, and leaves when the last segment is over.
 *
 * The kernel calls one function at a time (the lock of the root). A packet is owned by whoever holds its
 * pointer; in a map it is exchanged for another, so that none is lost and none is there twice. */
#include "qdisc.h"

#include <bpf/bpf_tracing.h>

#include "leave.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Whether the link has something to send after what it is sending. */
static __always_inline int is_busy(void)
{
	return waiting(AOI) || waiting(DROP_AVERSE) || waiting(OTHER) ||
	       segments_left > (sending == IN_SEGMENTS + 1);
}

SEC("struct_ops")
int BPF_PROG(ifc_enqueue, struct sk_buff *skb, struct Qdisc *qdisc, struct bpf_sk_buff_ptr *to_free)
{
	struct arrival arrival = { .now_ns = bpf_ktime_get_ns(), .flow_row = NONE };
	__u32 queue = queue_of(skb);
	struct account *account;

	if (queue != OTHER) {
		arrival.hash = hash_of_flow(secrets, &header.flow);
		arrival.flow =
			flow_account(&header.flow, arrival.hash, arrival.now_ns, &arrival.flow_row);
	}
	if (arrival.flow && is_of_stream(arrival.flow))
		queue = DROP_AVERSE;
	account = account_of(queue);
	arrival.segments = segments_of(skb);
	arrival.bytes = bytes_of(skb, arrival.segments);
	arrival.account = account;
	account->packets_in += arrival.segments;
	account->bytes_in += arrival.bytes;
	about.super_packets += arrival.segments > 1;
	if (arrival.flow) {
		arrival.flow->class = queue;
		arrival.flow->packets_in += arrival.segments;
		arrival.flow->bytes_in += arrival.bytes;
	}
	if (!is_busy()) {
		shaper_on_arrival(&shaper, arrival.now_ns);
		if (!sending && settings.rate && shaper.free_ns == arrival.now_ns &&
		    (queue != DROP_AVERSE || !is_over_limit(account, arrival.segments, arrival.bytes)))
			return send_at_once(skb, qdisc, to_free, &arrival, queue);
	}
	if (queue == AOI)
		return put_newest(skb, qdisc, to_free, &arrival);
	if (queue == OTHER)
		return put_beside(skb, qdisc, to_free, &arrival);
	return put_last(skb, qdisc, to_free, &arrival);
}

/* Gives what the link has sent. The next transmission begins where the last one ended, however late this
 * is called: so the rate is exact, and a packet that is late does not delay those behind it. */
SEC("struct_ops")
struct sk_buff *BPF_PROG(ifc_dequeue, struct Qdisc *qdisc)
{
	__u32 over = OVER;
	struct place *line;
	struct sk_buff *sent;
	__u64 now_ns;

	if (!sending && !is_busy())
		return NULL;
	now_ns = bpf_ktime_get_ns();
	bpf_loop(MAX_STEPS, step, &now_ns, 0);
	forget_lost(qdisc);
	line = bpf_map_lookup_elem(&link, &over);
	if (!line)
		return NULL;
	sent = bpf_kptr_xchg(&line->skb, NULL);
	if (sent) {
		qdisc->q.qlen--;
		qdisc->qstats.backlog -= length_on_wire(sent);
		bpf_qdisc_bstats_update(qdisc, sent);
		return sent;
	}
	if (sending)
		bpf_qdisc_watchdog_schedule(qdisc, shaper.free_ns, 0);
	else if (is_busy())
		bpf_qdisc_watchdog_schedule(qdisc, now_ns + AGAIN_NS, 0);
	return NULL;
}

/* One queueing discipline a program, as the maps are its queues. */
SEC("struct_ops")
int BPF_PROG(ifc_init, struct Qdisc *qdisc, struct nlattr *options, struct netlink_ext_ack *extack)
{
	if (owner)
		return -EBUSY;
	owner = (__u64)qdisc;
	/* Once: what is in place is found by them. */
	for (__u32 at = 0; at < SECRETS && !secrets[SECRETS - 1]; at++)
		secrets[at] = (__u64)bpf_get_prandom_u32() << 32 | bpf_get_prandom_u32();
	about.is_in_place = 1;
	about.since_boot_ns = bpf_ktime_get_boot_ns();
	return 0;
}

static __always_inline void vanish(struct sk_buff *skb, const struct place *place)
{
	struct account *account = account_of(place->queue);

	account->vanished += place->segments;
	bpf_kfree_skb(skb);
}

/* Drops the next packet that waits, an update or one of OTHER; ends the loop when none does. */
static __always_inline long drop_next(__u32 queue)
{
	__u32 whole = WHOLE;
	struct place *line = bpf_map_lookup_elem(&link, &whole);
	struct sk_buff *skb;

	if (!line || !waiting(queue))
		return 1;
	skb = take_next(queue, line);
	if (skb)
		vanish(skb, line);
	return 0;
}

static long drop_update(__u64 round, void *nothing)
{
	return drop_next(AOI);
}

static long drop_drop_averse(__u64 round, void *nothing)
{
	__u32 over = OVER;
	int is_new = new_lanes.first != NONE;
	struct place *to = bpf_map_lookup_elem(&link, &over);
	struct lane *lane = lane_of(is_new ? new_lanes.first : old_lanes.first);
	struct sk_buff *skb;

	if (!lane || !to)
		return 1;
	if (lane->first == NONE) {
		if (is_new)
			pass_turn(&new_lanes, lane, 1);
		else
			pass_turn(&old_lanes, lane, 1);
		return 0;
	}
	skb = take_first(lane, to);
	if (skb)
		vanish(skb, to);
	return 0;
}

static long drop_beside(__u64 round, void *nothing)
{
	return drop_next(OTHER);
}

/* Drops what is being sent. */
static __always_inline void clear(__u32 key)
{
	struct place *line = bpf_map_lookup_elem(&link, &key);
	struct account *account;
	struct sk_buff *skb;

	if (!line)
		return;
	skb = bpf_kptr_xchg(&line->skb, NULL);
	if (!skb)
		return;
	account = account_of(line->queue);
	account->on_link_packets = 0;
	account->on_link_bytes = 0;
	vanish(skb, line);
}

/* Comes when the device goes down, and before `destroy`. */
SEC("struct_ops")
void BPF_PROG(ifc_reset, struct Qdisc *qdisc)
{
	if (owner != (__u64)qdisc)
		return;
	clear(WHOLE);
	clear(IN_SEGMENTS);
	sending = 0;
	segments_left = 0;
	bpf_loop(MAX_WAITING, drop_update, NULL, 0);
	bpf_loop(MAX_WAITING, drop_drop_averse, NULL, 0);
	bpf_loop(MAX_WAITING, drop_beside, NULL, 0);
	qdisc->q.qlen = 0;
	qdisc->qstats.backlog = 0;
}

/* Also comes after an init that failed. */
SEC("struct_ops")
void BPF_PROG(ifc_destroy, struct Qdisc *qdisc)
{
	if (owner != (__u64)qdisc)
		return;
	about.is_in_place = 0;
	owner = 0;
}

/* The loader gives it a name that no other device's has. */
SEC(".struct_ops.link")
struct Qdisc_ops freshline_ifc = {
	.enqueue = (void *)ifc_enqueue,
	.dequeue = (void *)ifc_dequeue,
	.init = (void *)ifc_init,
	.reset = (void *)ifc_reset,
	.destroy = (void *)ifc_destroy,
	.id = "freshline_ifc",
};
