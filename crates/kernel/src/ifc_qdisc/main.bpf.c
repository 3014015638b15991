/* Freshness control as a queueing discipline of the kernel, at the root of one device: the newest update
 * of each flow, a drop-averse FIFO, a scheduler between them, and a shaper behind.
 *
 *                ┌ newest: a packet a flow ◄─ tokens: flows in turn ┐
 *  ─► class_of ──┼ slots: a ring of drop-averse packets             ├─► scheduler ─► link ─►
 *                └ slots: a ring of what is no IP ──────────────────┘
 *
 * A packet leaves when its transmission is over. Super-packets cannot be taken apart here: a drop-averse
 * one is sent segment by segment, with updates between, and leaves when the last segment is over.
 *
 * The kernel calls one function at a time (the lock of the root). A packet is owned by whoever holds its
 * pointer; in a map it is exchanged for another, so that none is lost and none is there twice. */
#include "qdisc.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "intf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* How many places the rings have, less one; powers of two, less one. */
const volatile __u32 tokens_mask;
const volatile __u32 slots_mask;

/* How long until the kernel asks again should a packet be missing where one is counted. */
#define AGAIN_NS 1000000
/* More than wait in a queue. */
#define MOST_WAITING (1 << 20)
/* How many transmissions may be over when the kernel asks, until it has to ask again. */
#define MOST_STEPS 256

/* A packet, and what is to be remembered of it. */
struct place {
	struct sk_buff __kptr *skb;
	__u64 arrived_ns;
	__u64 bytes;
	/* More than one of a super-packet. */
	__u64 segments;
	__u64 queue;
	struct flow flow;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

/* The newest packet of each flow that has one waiting. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow);
	__type(value, struct place);
} newest SEC(".maps");

/* These flows, in the order in which they have come. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} tokens SEC(".maps");

/* Drop-averse packets, and behind them MOST_BESIDE places for what is no IP. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct place);
} slots SEC(".maps");

/* What is being sent: an update, or what is no IP; and a drop-averse packet, of which updates may have
 * interrupted the segments. And a packet whose transmission is over. */
enum line {
	WHOLE,
	IN_SEGMENTS,
	OVER,
	LINES,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LINES);
	__type(key, __u32);
	__type(value, struct place);
} link SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, QUEUES);
	__type(key, __u32);
	__type(value, struct account);
} books SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct about);
} about SEC(".maps");

/* Nothing here reads it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct found);
} found SEC(".maps");

/* How long packets waited: the buckets of each class. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CLASSES * SOJOURN_BUCKETS);
	__type(key, __u32);
	__type(value, __u64);
} sojourns SEC(".maps");

/* Those that have been silent for long make room for new ones. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct flow);
	__type(value, struct flow_account);
} flows SEC(".maps");

/* Of the one queueing discipline that this program is: who it is, 0 for none. Not static, or the
 * compiler takes structs apart, whose types the kernel is then told wrong. */
__u64 owner;
struct scheduler_state scheduler;
struct shaper shaper;
/* The places of the rings, counted without end. */
__u32 first[QUEUES];
__u32 next[QUEUES];
/* Which line is in transmission, counted from 1; 0 for none. */
__u64 sending;
/* How many segments of the drop-averse packet are not over. */
__u64 segments_left;
/* The packet that has just come. */
__u8 front[FRONT_MEMORY];
__u32 front_length;
struct header header;

static __always_inline struct account *account_of(__u32 queue)
{
	return bpf_map_lookup_elem(&books, &queue);
}

/* Tells what is in `front`: its header, and to which queue it belongs. By itself for the verifier, which
 * would follow each path through it from each place before. */
__noinline int classify(void)
{
	struct settings *now;
	__u32 zero = 0;

	if (!read_header(front, front_length, &header))
		return BESIDE;
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
	if (at >= length || bpf_dynptr_from_skb((struct __sk_buff *)skb, 0, &packet))
		return BESIDE;
	length -= at;
	barrier_var(length);
	if (length > FRONT)
		length = FRONT;
	if (bpf_dynptr_read(front, length, &packet, at, 0))
		return BESIDE;
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
	struct flow_account *known = bpf_map_lookup_elem(&flows, flow), fresh = {};
	struct about *this;
	__u32 zero = 0;

	if (known)
		return known;
	this = bpf_map_lookup_elem(&about, &zero);
	if (this)
		this->flows_begun++;
	bpf_map_update_elem(&flows, flow, &fresh, BPF_ANY);
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

/* How many places of a queue's ring are taken; a queue is a constant. */
#define waiting(queue) ((__u32)(next[queue] - first[queue]))

static __always_inline int put_newest(struct sk_buff *skb, struct Qdisc *qdisc,
				      struct bpf_sk_buff_ptr *to_free, const struct arrival *arrival,
				      __u64 most)
{
	struct place *place = bpf_map_lookup_elem(&newest, &header.flow), fresh = {};
	__u32 key = next[AOI] & tokens_mask;
	struct flow *token;

	if (place)
		return replace(skb, qdisc, to_free, arrival, place);
	token = bpf_map_lookup_elem(&tokens, &key);
	if (!token || waiting(AOI) >= most ||
	    bpf_map_update_elem(&newest, &header.flow, &fresh, BPF_NOEXIST))
		return refuse(skb, qdisc, to_free, arrival);
	place = bpf_map_lookup_elem(&newest, &header.flow);
	if (!place)
		return refuse(skb, qdisc, to_free, arrival);
	*token = header.flow;
	next[AOI]++;
	return settle(skb, qdisc, to_free, arrival, place);
}

/* Where the packet of this number is, in the ring of a queue. */
static __always_inline struct place *slot(__u32 queue, __u32 number)
{
	__u32 key = number & slots_mask;

	if (queue == BESIDE)
		key = slots_mask + 1 + (number & (MOST_BESIDE - 1));
	return bpf_map_lookup_elem(&slots, &key);
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

/* Whether the link has something to send after what it is sending. */
static __always_inline int is_busy(void)
{
	return waiting(AOI) || waiting(DROP_AVERSE) || waiting(BESIDE) ||
	       segments_left > (sending == IN_SEGMENTS + 1);
}

SEC("struct_ops")
int BPF_PROG(ifc_enqueue, struct sk_buff *skb, struct Qdisc *qdisc, struct bpf_sk_buff_ptr *to_free)
{
	struct arrival arrival = { .now_ns = bpf_ktime_get_ns(), .segments = segments_of(skb) };
	__u32 queue = queue_of(skb), zero = 0;
	struct settings *now = bpf_map_lookup_elem(&settings, &zero);
	struct about *this = bpf_map_lookup_elem(&about, &zero);
	struct account *account = account_of(queue);

	if (!now || !account || !this) {
		bpf_qdisc_skb_drop(skb, to_free);
		return NET_XMIT_DROP;
	}
	arrival.bytes = bytes_of(skb, arrival.segments);
	arrival.account = account;
	account->packets_in += arrival.segments;
	account->bytes_in += arrival.bytes;
	this->super_packets += arrival.segments > 1;
	if (queue != BESIDE)
		arrival.flow = flow_account(&header.flow);
	if (arrival.flow) {
		arrival.flow->class = queue;
		arrival.flow->packets_in += arrival.segments;
		arrival.flow->bytes_in += arrival.bytes;
	}
	if (!is_busy())
		shaper_on_arrival(&shaper, arrival.now_ns);
	if (queue == AOI)
		return put_newest(skb, qdisc, to_free, &arrival, now->most_flows);
	if (queue == BESIDE) {
		if (waiting(BESIDE) >= MOST_BESIDE)
			return refuse(skb, qdisc, to_free, &arrival);
		return put_last(skb, qdisc, to_free, &arrival, BESIDE);
	}
	if (account->waiting_packets >= now->most_packets || waiting(DROP_AVERSE) > slots_mask ||
	    account->waiting_bytes + arrival.bytes > now->most_bytes)
		return refuse(skb, qdisc, to_free, &arrival);
	return put_last(skb, qdisc, to_free, &arrival, DROP_AVERSE);
}

/* Takes the packet out of a place, and what is known of it. */
static __always_inline struct sk_buff *take(struct place *place, struct place *to)
{
	to->arrived_ns = place->arrived_ns;
	to->bytes = place->bytes;
	to->segments = place->segments;
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
	__u64 updates = waiting(AOI), others = waiting(DROP_AVERSE) + segments_left;

	if (waiting(BESIDE))
		return BESIDE;
	if (!updates && !others)
		return QUEUES;
	if (scheduler_prefers(&scheduler, now_ns, &now->scheduler) == AOI)
		return updates ? AOI : DROP_AVERSE;
	return others ? DROP_AVERSE : AOI;
}

static __always_inline void count_sojourn(const struct place *packet, __u64 starts_ns)
{
	/* It may have come after the time at which the one before was due. */
	__u64 ns = starts_ns > packet->arrived_ns ? starts_ns - packet->arrived_ns : 0, *count;
	__u32 key = packet->queue * SOJOURN_BUCKETS + sojourn_bucket(ns);

	if (packet->queue >= CLASSES)
		return;
	count = bpf_map_lookup_elem(&sojourns, &key);
	if (count)
		(*count)++;
}

/* Puts the next packet of a queue on a line. Whether there was one. */
static __always_inline int occupy(__u32 queue, struct place *line)
{
	struct sk_buff *skb = take_next(queue, line);
	struct account *account = account_of(queue);

	if (!skb)
		return 0;
	count_sojourn(line, shaper.free_ns);
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
		if (queue == AOI)
			scheduler_on_sent(&scheduler, AOI, bytes, &now->scheduler);
	}
	shaper_send(&shaper, bytes, now->rate);
	sending = key + 1;
}

static __always_inline void count_sent(const struct place *packet)
{
	struct account *account = account_of(packet->queue);
	struct flow_account *flow;

	if (!account)
		return;
	account->on_link_packets = 0;
	account->on_link_bytes = 0;
	account->packets_out += packet->segments;
	account->bytes_out += packet->bytes;
	if (packet->queue == BESIDE)
		return;
	flow = bpf_map_lookup_elem(&flows, &packet->flow);
	if (!flow)
		return;
	flow->packets_out += packet->segments;
	flow->bytes_out += packet->bytes;
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

/* Gives what the link has sent. The next transmission begins where the last one ended, however late this
 * is called: so the rate is exact, and a packet that is late does not delay those behind it. */
SEC("struct_ops")
struct sk_buff *BPF_PROG(ifc_dequeue, struct Qdisc *qdisc)
{
	__u64 now_ns = bpf_ktime_get_ns();
	__u32 over = OVER;
	struct place *line;
	struct sk_buff *sent;

	bpf_loop(MOST_STEPS, step, &now_ns, 0);
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
	__u32 zero = 0;
	struct about *this = bpf_map_lookup_elem(&about, &zero);

	if (owner || !this)
		return -EBUSY;
	owner = (__u64)qdisc;
	this->is_in_place = 1;
	this->since_boot_ns = bpf_ktime_get_boot_ns();
	return 0;
}

static __always_inline void vanish(struct sk_buff *skb, const struct place *place)
{
	struct account *account = account_of(place->queue);

	if (account)
		account->vanished += place->segments;
	bpf_kfree_skb(skb);
}

/* Drops the next packet that waits in a queue; ends the loop when none does. */
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
	return drop_next(DROP_AVERSE);
}

static long drop_beside(__u64 round, void *nothing)
{
	return drop_next(BESIDE);
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
	if (account) {
		account->on_link_packets = 0;
		account->on_link_bytes = 0;
	}
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
	bpf_loop(MOST_WAITING, drop_update, NULL, 0);
	bpf_loop(MOST_WAITING, drop_drop_averse, NULL, 0);
	bpf_loop(MOST_WAITING, drop_beside, NULL, 0);
	qdisc->q.qlen = 0;
	qdisc->qstats.backlog = 0;
}

/* Also comes after an init that failed. */
SEC("struct_ops")
void BPF_PROG(ifc_destroy, struct Qdisc *qdisc)
{
	__u32 zero = 0;
	struct about *this = bpf_map_lookup_elem(&about, &zero);

	if (!this || owner != (__u64)qdisc)
		return;
	this->is_in_place = 0;
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
