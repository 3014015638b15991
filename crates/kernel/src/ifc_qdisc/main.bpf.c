/* Freshness control as a queueing discipline of the kernel, at the root of one device: a queue of the newest
 * update per flow, FQ-CoDel (or CoDel, or a FIFO) for drop-averse packets, a scheduler that shares the link
 * between them, and a shaper.
 *
 *                ┌ updates: one packet per flow, hosts in turn (turns.h) ┐
 *  ─► class_of ──┼ lanes: a CoDel queue per hash of flows (lanes.h)      ├─► scheduler ─► link ─►
 *                └ a ring of ARP, LLDP, … (at most every second turn)    ┘
 *
 * With a rate, a packet leaves when its transmission is over. Without a rate, a packet leaves when the device
 * requests one, and a queue forms here while the device's own limit (BQL, a full ring) is reached. The program
 * cannot split super-packets: a drop-averse one is scheduled segment by segment, interleaved with updates, and
 * leaves when its last segment is over.
 *
 * The kernel calls one function at a time (the lock of the root discipline). Each packet has one owner, the
 * holder of its pointer; a pointer in a map is only exchanged for another one, so that no packet is lost or
 * duplicated. */
#include "qdisc.h"

#include <bpf/bpf_tracing.h>

#include "leave.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Whether packets or segments are queued behind the current transmission. */
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
		arrival.flow = flow_account(&header.flow, arrival.hash, &arrival.flow_row);
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
		arrival.flow->last_ns = arrival.now_ns;
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

/* Returns a packet whose transmission is over. The next transmission starts at the end of the last one, even if
 * this function is called up to 5 ms late: so the rate is exact, and a late timer does not delay the following
 * packets. */
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
	shaper_on_asked(&shaper, now_ns, settings.rate);
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

/* Each loaded program serves one queueing discipline, as the maps are its queues. */
SEC("struct_ops")
int BPF_PROG(ifc_init, struct Qdisc *qdisc, struct nlattr *options, struct netlink_ext_ack *extack)
{
	if (owner)
		return -EBUSY;
	owner = (__u64)qdisc;
	/* Only once: rows in the maps are found by hashes with these secrets. */
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

/* Drops the next queued packet of AOI or OTHER; ends the loop if the queue is empty. */
static __always_inline long drop_next(__u32 queue)
{
	struct place *line = line_of(queue);
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

/* Drops the packet on a line. */
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

/* Called when the device goes down, and before `destroy`. */
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

/* Also called after an init that failed. */
SEC("struct_ops")
void BPF_PROG(ifc_destroy, struct Qdisc *qdisc)
{
	if (owner != (__u64)qdisc)
		return;
	about.is_in_place = 0;
	owner = 0;
}

/* The loader replaces `id` by a name that is unique per device. */
SEC(".struct_ops.link")
struct Qdisc_ops freshline_ifc = {
	.enqueue = (void *)ifc_enqueue,
	.dequeue = (void *)ifc_dequeue,
	.init = (void *)ifc_init,
	.reset = (void *)ifc_reset,
	.destroy = (void *)ifc_destroy,
	.id = "freshline_ifc",
};
