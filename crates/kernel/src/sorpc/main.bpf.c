/* SORPC on the packets that leave through a device: reads the send buffer of each packet's socket,
 * and writes the band into the packet's priority, which queueing disciplines with bands use. */
#include "../kernel.h"

#include "intf.h"

/* The value that the kernel writes instead of its size into an ack without data
 * (skb_is_tcp_pure_ack). */
#define PURE_ACK 2
#define UDP 17
#define US_PER_S 1000000

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile struct attachment attachment;

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} only SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, BANDS);
	__type(key, __u32);
	__type(value, struct account);
} bands SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} flows SEC(".maps");

/* UDP sockets that have sent a super-packet, with their numbers among these, from 1 on. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} batches SEC(".maps");

/* The number of flows that have been batched or bulk. Processors do not synchronise here: at worst,
 * two flows that start at the same time share a priority. */
__u64 lanes = 0;

/* A packet's place: its band, and its flow's number in the band. */
struct place {
	enum band band;
	__u64 lane;
};

static void add(struct account *account, struct __sk_buff *packet)
{
	account->packets += packet->gso_segs ?: 1;
	account->bytes += packet->len;
}

/* Whether the packet may be in another band than the urgent one. */
static int is_controlled(struct __sk_buff *packet)
{
	return !attachment.confined || bpf_skb_under_cgroup(packet, &only, 0) == 1;
}

static enum band band_of(struct __sk_buff *packet, struct sock *sock)
{
	if (!is_controlled(packet))
		return URGENT;
	return sorpc_band(sock->sk_wmem_queued, sock->sk_sndbuf, attachment.threshold_milli);
}

/* Whether earlier packets of this UDP socket are still in the queue of a device. */
static int is_queued(struct sk_buff *packet)
{
	struct sock *sock = packet->sk;

	return sock && sock->sk_wmem_alloc.refs.counter > 1 + (int)packet->truesize;
}

/* A UDP socket that sends super-packets is batched, and so are its single packets until the
 * super-packets have left, because they must not overtake them. */
static struct place place_of_datagram(struct __sk_buff *packet, struct bpf_sock *sock)
{
	struct place place = { .band = URGENT };
	int is_super = packet->gso_segs > 1;
	__u64 *lane;

	if (!is_controlled(packet))
		return place;
	lane = bpf_sk_storage_get(&batches, sock, NULL, is_super ? BPF_SK_STORAGE_GET_F_CREATE : 0);
	if (!lane)
		return place;
	if (!*lane)
		*lane = ++lanes;
	if (is_super || is_queued(bpf_cast_to_kern_ctx(packet)))
		place.band = BATCHED;
	place.lane = *lane;
	return place;
}

/* The place of TCP data. Counts the flow's packet. */
static struct place place_of_data(struct __sk_buff *packet, struct tcp_sock *tcp)
{
	struct sock *sock = (struct sock *)tcp;
	enum band band = band_of(packet, sock);
	struct flow *flow = bpf_sk_storage_get(&flows, tcp, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	struct place place = { .band = band };

	if (!flow)
		return place;
	flow->queued = sock->sk_wmem_queued;
	flow->size = sock->sk_sndbuf;
	flow->band = band;
	flow->sent_ns = tcp->tcp_wstamp_ns;
	add(&flow->sent, packet);
	/* Round robin, which spreads a few uploads more evenly than a hash. */
	if (band == BULK && !flow->lane)
		flow->lane = ++lanes;
	place.lane = flow->lane;
	return place;
}

/* Acks without data, forwarded packets and packets without a socket are urgent. A packet without
 * payload that is not a plain ack, such as a FIN, counts as data: it need not overtake any. */
static struct place place_of(struct __sk_buff *packet)
{
	struct sk_buff *inside = bpf_cast_to_kern_ctx(packet);
	struct place urgent = { .band = URGENT };
	struct bpf_sock *sock = packet->sk;
	struct tcp_sock *tcp;

	if (!sock || inside->truesize == PURE_ACK)
		return urgent;
	sock = bpf_sk_fullsock(sock);
	if (!sock)
		return urgent;
	if (sock->protocol == UDP)
		return place_of_datagram(packet, sock);
	tcp = bpf_skc_to_tcp_sock(sock);
	return tcp ? place_of_data(packet, tcp) : urgent;
}

/* Whether the splitter of a class would drop the packet: the device's MTU has grown since. */
static int is_oversize(struct __sk_buff *packet)
{
	__u64 piece = packet->gso_size ? packet->gso_size + HEADERS : packet->len;

	return attachment.largest && piece > attachment.largest;
}

/* Sets the packet's priority, unless a program or a rule has set one that must stay: any priority
 * of an urgent packet, and a priority of a bulk packet that names a class of the user's own
 * queueing discipline. */
static void mark(struct __sk_buff *packet, enum band band, __u64 lane)
{
	if (is_oversize(packet)) {
		packet->priority = attachment.oversize;
		return;
	}
	if (band == URGENT && !packet->priority)
		packet->priority = attachment.urgent;
	/* Without a shaper it keeps its priority: 0 is the middle one of three bands. */
	if (band == BATCHED && attachment.rate)
		packet->priority = attachment.batched + lane;
	if (band == BULK && (attachment.rate || packet->priority < 1 << PRIORITY_BITS))
		packet->priority = attachment.bulk + lane;
}

SEC("tcx/egress")
int freshline_sorpc(struct __sk_buff *packet)
{
	struct place place = place_of(packet);
	__u32 band = place.band;
	struct account *account;

	mark(packet, band, (place.lane & attachment.spread) << PRIORITY_BITS);
	account = bpf_map_lookup_elem(&bands, &band);
	if (account)
		add(account, packet);
	return TCX_NEXT;
}

/* Reading this iterator lists the flows of the reader's network namespace. */
SEC("iter/tcp")
int list(struct bpf_iter__tcp *at)
{
	struct sock_common *sock = at->sk_common;
	struct tcp_sock *tcp = sock ? bpf_skc_to_tcp_sock(sock) : NULL;
	struct flow *flow = tcp ? bpf_sk_storage_get(&flows, tcp, NULL, 0) : NULL;
	struct row row = {};

	if (!flow)
		return 0;
	row.remote_port = bpf_ntohs(sock->skc_dport);
	row.local_port = sock->skc_num;
	row.remote = remote_address(sock);
	row.flow = *flow;
	row.rtt_us = tcp->srtt_us >> 3;
	row.min_rtt_us = tcp->rtt_min.s[0].v;
	row.rate = (__u64)tcp->rate_delivered * tcp->mss_cache * US_PER_S /
		   (tcp->rate_interval_us | 1);
	row.idle_ns = bpf_ktime_get_ns() - flow->sent_ns;
	bpf_seq_write(at->meta->seq, &row, sizeof(row));
	return 0;
}
