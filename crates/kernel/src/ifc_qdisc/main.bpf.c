/* Freshness control as a queueing discipline of the kernel, at the root of one device: the newest update
 * of each flow, a drop-averse FIFO, a scheduler between them, and a shaper behind.
 *
 *                ┌ newest: a packet a flow ◄─ tokens: flows in turn ┐
 *  ─► class_of ──┼ slots: a ring of drop-averse packets             ├─► scheduler ─► link ─►
 *                └ slots: a ring of what is no IP ──────────────────┘             one packet, until
 *                                                                                 its time is over
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
/* More than wait in all queues. */
#define MOST_WAITING (1 << 20)

/* A packet, and what is to be remembered of it. */
struct place {
	struct sk_buff __kptr *skb;
	__u64 arrived_ns;
	__u64 bytes;
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

/* The packet that is being sent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
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
/* Whether a packet is on the link. */
__u64 is_sending;
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

/* How long it is, from the IP header on, each segment of a super-packet by itself. */
static __always_inline __u64 bytes_of(const struct sk_buff *skb)
{
	const struct skb_shared_info *shared = (const void *)(skb->head + skb->end);
	__u64 all = length_on_wire(skb), before = ip_at(skb), segments = BPF_CORE_READ(shared, gso_segs);

	before *= larger(segments, 1);
	return all > before ? all - before : all;
}

static __always_inline int is_super(const struct sk_buff *skb)
{
	const struct skb_shared_info *shared = (const void *)(skb->head + skb->end);

	return BPF_CORE_READ(shared, gso_segs) > 1;
}

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
				  struct bpf_sk_buff_ptr *to_free, struct account *account,
				  struct flow_account *flow)
{
	account->queue_full++;
	if (flow)
		flow->queue_full++;
	qdisc->qstats.drops++;
	bpf_qdisc_skb_drop(skb, to_free);
	return NET_XMIT_DROP;
}

static __always_inline void count_waiting(struct Qdisc *qdisc, struct sk_buff *skb,
					  struct account *account, __u64 bytes)
{
	account->waiting_packets++;
	account->waiting_bytes += bytes;
	qdisc->q.qlen++;
	qdisc->qstats.backlog += length_on_wire(skb);
}

/* An update takes the place of an older one of its flow, or a place of its own. */
static __always_inline int put_newest(struct sk_buff *skb, struct Qdisc *qdisc,
				      struct bpf_sk_buff_ptr *to_free, struct account *account,
				      struct flow_account *flow, __u64 most, __u64 now_ns, __u64 bytes)
{
	struct place *place = bpf_map_lookup_elem(&newest, &header.flow), fresh = {};
	__u32 key = next[AOI] & tokens_mask;
	struct flow *token;
	struct sk_buff *old;

	if (place) {
		qdisc->qstats.backlog += length_on_wire(skb);
		account->waiting_bytes += bytes - place->bytes;
		place->arrived_ns = now_ns;
		place->bytes = bytes;
		old = bpf_kptr_xchg(&place->skb, skb);
		if (old) {
			account->replaced++;
			if (flow)
				flow->replaced++;
			qdisc->qstats.backlog -= length_on_wire(old);
			qdisc->qstats.drops++;
			bpf_qdisc_skb_drop(old, to_free);
		}
		return NET_XMIT_SUCCESS;
	}
	token = bpf_map_lookup_elem(&tokens, &key);
	if (!token || account->waiting_packets >= most ||
	    bpf_map_update_elem(&newest, &header.flow, &fresh, BPF_NOEXIST))
		return refuse(skb, qdisc, to_free, account, flow);
	place = bpf_map_lookup_elem(&newest, &header.flow);
	if (!place)
		return refuse(skb, qdisc, to_free, account, flow);
	*token = header.flow;
	next[AOI]++;
	count_waiting(qdisc, skb, account, bytes);
	place->arrived_ns = now_ns;
	place->bytes = bytes;
	old = bpf_kptr_xchg(&place->skb, skb);
	if (old)
		bpf_qdisc_skb_drop(old, to_free);
	return NET_XMIT_SUCCESS;
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
				    struct bpf_sk_buff_ptr *to_free, struct account *account,
				    struct flow_account *flow, __u32 queue, __u64 now_ns, __u64 bytes)
{
	__u32 at = queue == BESIDE ? BESIDE : DROP_AVERSE;
	struct place *place = slot(queue, next[at]);
	struct sk_buff *old;

	if (!place)
		return refuse(skb, qdisc, to_free, account, flow);
	next[at]++;
	count_waiting(qdisc, skb, account, bytes);
	place->arrived_ns = now_ns;
	place->bytes = bytes;
	place->flow = header.flow;
	old = bpf_kptr_xchg(&place->skb, skb);
	if (old)
		bpf_qdisc_skb_drop(old, to_free);
	return NET_XMIT_SUCCESS;
}

static __always_inline __u64 waiting(__u32 queue)
{
	struct account *account = account_of(queue);

	return account ? account->waiting_packets : 0;
}

SEC("struct_ops")
int BPF_PROG(ifc_enqueue, struct sk_buff *skb, struct Qdisc *qdisc, struct bpf_sk_buff_ptr *to_free)
{
	__u64 now_ns = bpf_ktime_get_ns(), bytes = bytes_of(skb);
	__u32 queue = queue_of(skb), zero = 0;
	struct settings *now = bpf_map_lookup_elem(&settings, &zero);
	struct account *account = account_of(queue);
	struct about *this = bpf_map_lookup_elem(&about, &zero);
	struct flow_account *flow = NULL;

	if (!now || !account || !this) {
		bpf_qdisc_skb_drop(skb, to_free);
		return NET_XMIT_DROP;
	}
	if (is_super(skb))
		this->super_packets++;
	account->packets_in++;
	account->bytes_in += bytes;
	if (queue != BESIDE)
		flow = flow_account(&header.flow);
	if (flow) {
		flow->class = queue;
		flow->packets_in++;
		flow->bytes_in += bytes;
	}
	if (!waiting(AOI) && !waiting(DROP_AVERSE) && !waiting(BESIDE))
		shaper_on_arrival(&shaper, now_ns);
	if (queue == AOI)
		return put_newest(skb, qdisc, to_free, account, flow, now->most_flows, now_ns, bytes);
	if (queue == DROP_AVERSE && (account->waiting_packets >= now->most_packets ||
				     account->waiting_bytes + bytes > now->most_bytes))
		return refuse(skb, qdisc, to_free, account, flow);
	if (queue == BESIDE && account->waiting_packets >= MOST_BESIDE)
		return refuse(skb, qdisc, to_free, account, flow);
	return put_last(skb, qdisc, to_free, account, flow, queue, now_ns, bytes);
}

/* Takes the packet out of a place, and what is known of it. */
static __always_inline struct sk_buff *take(struct place *place, struct place *to)
{
	struct sk_buff *skb = NULL;

	to->arrived_ns = place->arrived_ns;
	to->bytes = place->bytes;
	return bpf_kptr_xchg(&place->skb, skb);
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
	__u32 at = queue == BESIDE ? BESIDE : DROP_AVERSE;
	struct place *place = slot(queue, first[at]);

	first[at]++;
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
	skb = queue == AOI ? take_newest(to) : take_first(queue, to);
	account->waiting_packets--;
	if (skb)
		account->waiting_bytes -= to->bytes;
	return skb;
}

/* The queue that is to be served; QUEUES for none. */
static __always_inline __u32 choose(__u64 now_ns, const struct settings *now)
{
	__u64 updates = waiting(AOI), others = waiting(DROP_AVERSE);

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

/* Begins to send the next packet, if one waits. */
static __always_inline void start(struct place *packet, const struct settings *now)
{
	__u64 starts_ns = shaper.free_ns;
	__u32 queue = choose(starts_ns, now);
	struct account *account;
	struct sk_buff *skb;

	if (queue >= QUEUES)
		return;
	skb = take_next(queue, packet);
	if (!skb)
		return;
	count_sojourn(packet, starts_ns);
	if (queue != BESIDE)
		scheduler_on_sent(&scheduler, queue, packet->bytes, &now->scheduler);
	shaper_send(&shaper, packet->bytes, now->rate);
	account = account_of(queue);
	if (account) {
		account->on_link_packets = 1;
		account->on_link_bytes = packet->bytes;
	}
	is_sending = 1;
	skb = bpf_kptr_xchg(&packet->skb, skb);
	if (skb)
		bpf_kfree_skb(skb);
}

/* What was on the link has left. */
static __always_inline void count_sent(const struct place *packet)
{
	struct account *account = account_of(packet->queue);
	struct flow_account *flow;

	if (!account)
		return;
	account->on_link_packets = 0;
	account->on_link_bytes = 0;
	account->packets_out++;
	account->bytes_out += packet->bytes;
	if (packet->queue == BESIDE)
		return;
	flow = bpf_map_lookup_elem(&flows, &packet->flow);
	if (!flow)
		return;
	flow->packets_out++;
	flow->bytes_out += packet->bytes;
}

/* Gives what the link has sent. The next transmission begins where the last one ended, however late this
 * is called: so the rate is exact, and a packet that is late does not delay those behind it. */
SEC("struct_ops")
struct sk_buff *BPF_PROG(ifc_dequeue, struct Qdisc *qdisc)
{
	__u64 now_ns = bpf_ktime_get_ns();
	struct sk_buff *sent = NULL;
	struct settings *now;
	struct place *packet;
	__u32 zero = 0;

	now = bpf_map_lookup_elem(&settings, &zero);
	packet = bpf_map_lookup_elem(&link, &zero);
	if (!now || !packet)
		return NULL;
	if (is_sending && now_ns >= shaper.free_ns) {
		is_sending = 0;
		count_sent(packet);
		sent = bpf_kptr_xchg(&packet->skb, sent);
	}
	if (!is_sending)
		start(packet, now);
	if (sent) {
		qdisc->q.qlen--;
		qdisc->qstats.backlog -= length_on_wire(sent);
		bpf_qdisc_bstats_update(qdisc, sent);
		return sent;
	}
	if (is_sending)
		bpf_qdisc_watchdog_schedule(qdisc, shaper.free_ns, 0);
	else if (waiting(AOI) || waiting(DROP_AVERSE) || waiting(BESIDE))
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

/* Drops the next packet that waits in a queue; ends the loop when none does. */
static long drop_next(__u64 round, __u32 *queue)
{
	struct account *account = account_of(*queue);
	__u32 zero = 0;
	struct place *packet = bpf_map_lookup_elem(&link, &zero);
	struct sk_buff *skb;

	if (!account || !packet || !account->waiting_packets)
		return 1;
	skb = take_next(*queue, packet);
	if (skb) {
		account->vanished++;
		bpf_kfree_skb(skb);
	}
	return 0;
}

static __always_inline void drain(__u32 queue)
{
	bpf_loop(MOST_WAITING, drop_next, &queue, 0);
}

SEC("struct_ops")
void BPF_PROG(ifc_reset, struct Qdisc *qdisc)
{
	struct account *account;
	struct sk_buff *skb = NULL;
	struct place *packet;
	__u32 zero = 0;

	packet = bpf_map_lookup_elem(&link, &zero);
	if (!packet || owner != (__u64)qdisc)
		return;
	skb = bpf_kptr_xchg(&packet->skb, skb);
	if (skb) {
		account = account_of(packet->queue);
		if (account) {
			account->on_link_packets = 0;
			account->on_link_bytes = 0;
			account->vanished++;
		}
		bpf_kfree_skb(skb);
	}
	is_sending = 0;
	drain(AOI);
	drain(DROP_AVERSE);
	drain(BESIDE);
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
