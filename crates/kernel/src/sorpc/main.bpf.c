/* SORPC on what leaves through a device: looks into the send buffer from which each packet comes,
 * and writes its band into the packet's priority, which queueing disciplines with bands go by. */
#include "../kernel.h"

#include "intf.h"

/* What the kernel writes in place of its size into an ack without data (skb_is_tcp_pure_ack). */
#define PURE_ACK 2

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

/* How many flows have been bulk. Processors do not wait for each other here: at worst two flows
 * that begin at once share a priority. */
__u64 lanes = 0;

/* The TCP socket whose data this packet carries; NULL if it carries none, or is forwarded. What has
 * no payload and is no mere ack, such as a FIN, counts as data: it need not overtake any. */
static struct tcp_sock *sender(struct __sk_buff *packet)
{
	struct sk_buff *inside = bpf_cast_to_kern_ctx(packet);
	struct bpf_sock *sock = packet->sk;

	if (!sock || inside->truesize == PURE_ACK)
		return NULL;
	sock = bpf_sk_fullsock(sock);
	return sock ? bpf_skc_to_tcp_sock(sock) : NULL;
}

static void add(struct account *account, struct __sk_buff *packet)
{
	account->packets += packet->gso_segs ?: 1;
	account->bytes += packet->len;
}

static enum band band_of(struct __sk_buff *packet, struct sock *sock)
{
	if (attachment.confined && bpf_skb_under_cgroup(packet, &only, 0) != 1)
		return URGENT;
	return sorpc_band(sock->sk_wmem_queued, sock->sk_sndbuf, attachment.threshold_milli);
}

/* Takes note of a flow's packet, and gives the flow's number among the bulk ones. */
static __u64 lane_of(struct __sk_buff *packet, struct tcp_sock *tcp, enum band band)
{
	struct sock *sock = (struct sock *)tcp;
	struct flow *flow = bpf_sk_storage_get(&flows, tcp, NULL, BPF_SK_STORAGE_GET_F_CREATE);

	if (!flow)
		return 0;
	flow->queued = sock->sk_wmem_queued;
	flow->size = sock->sk_sndbuf;
	flow->band = band;
	flow->sent_ns = tcp->tcp_wstamp_ns;
	add(&flow->sent, packet);
	/* In turn, which spreads a few uploads more evenly than a hash. */
	if (band == BULK && !flow->lane)
		flow->lane = ++lanes;
	return flow->lane;
}

SEC("tcx/egress")
int freshline_sorpc(struct __sk_buff *packet)
{
	struct tcp_sock *tcp = sender(packet);
	struct account *account;
	__u32 band = URGENT;
	__u64 lane = 0;

	if (tcp) {
		band = band_of(packet, (struct sock *)tcp);
		lane = lane_of(packet, tcp, band);
	}
	lane = (lane & attachment.spread) << PRIORITY_BITS;
	packet->priority = band == BULK ? attachment.bulk + lane : attachment.urgent;
	account = bpf_map_lookup_elem(&bands, &band);
	if (account)
		add(account, packet);
	return TCX_NEXT;
}

/* Reading it lists the flows. */
SEC("iter/bpf_sk_storage_map")
int list(struct bpf_iter__bpf_sk_storage_map *at)
{
	struct sock_common *sock = (struct sock_common *)at->sk;
	struct flow *flow = at->value;
	struct row row = {};

	/* One that is closed has no port, and is there until its packets have left. */
	if (!sock || !flow || !sock->skc_num)
		return 0;
	row.remote_port = bpf_ntohs(sock->skc_dport);
	row.local_port = sock->skc_num;
	row.remote = remote_address(sock);
	row.flow = *flow;
	bpf_seq_write(at->meta->seq, &row, sizeof(row));
	return 0;
}
