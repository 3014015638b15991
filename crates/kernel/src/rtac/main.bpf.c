/* RTAC on the sockets of a cgroup: looks at every outgoing segment, pure acks included, and sets
 * the window that the next ones may advertise. */
#include "../kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "intf.h"

/* Milliseconds of sending that are remembered, to measure round trips finer than timestamps. */
#define REMEMBERED 64
#define NS_PER_MS 1000000
#define NS_PER_US 1000
/* A window that keeps nobody back. */
#define NO_WINDOW (1 << 30)
#define PEERS 4096
/* Connections of cgroups that are nested deeper are not adopted. */
#define DEEPEST 64

char LICENSE[] SEC("license") = "Dual MIT/GPL";

const volatile struct rtac_settings settings;
/* The cgroup whose existing connections are adopted. */
const volatile __u64 cgroup_id = 0;

struct connection {
	/* When each of the last milliseconds was first sent in, ns; by its number modulo the length. */
	__u64 sent_ns[REMEMBERED];
	/* The last millisecond sent in. */
	__u64 sent_ms;
	/* The timestamp that the other side echoed last. */
	__u64 echoed_ms;
	/* What it had sent by then. */
	__u64 received;
	struct rtac law;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PEERS);
	__type(key, struct address);
	__type(value, struct peer);
} peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static void count(__u32 counter)
{
	__u64 *number = bpf_map_lookup_elem(&counters, &counter);

	if (number)
		*number += 1;
}

static void remember(struct connection *connection, __u64 now_ns, __u64 now_ms)
{
	if (now_ms == connection->sent_ms)
		return;
	connection->sent_ms = now_ms;
	connection->sent_ns[now_ms % REMEMBERED] = now_ns;
}

/* The round trip that the other side's latest echo tells, ns; 0 if it tells none. */
static __u64 round_trip(struct connection *connection, __u64 now_ns, __u64 now_ms, __u32 echoed_ms)
{
	__u64 sent_ns = connection->sent_ns[echoed_ms % REMEMBERED];
	/* Timestamps are 32 bits long. */
	__u64 elapsed_ms = (__u32)now_ms - echoed_ms;

	if (echoed_ms == connection->echoed_ms || elapsed_ms > LONGEST_RTT_NS / NS_PER_MS)
		return 0;
	connection->echoed_ms = echoed_ms;
	if ((__u32)(sent_ns / NS_PER_MS) == echoed_ms)
		return now_ns - sent_ns;
	/* Forgotten: longer ago than all that are remembered, so that 1 ms matters little. */
	return elapsed_ms * NS_PER_MS;
}

static struct address remote_address(struct sock_common *sock)
{
	struct address address = {};

	if (sock->skc_family == AF_INET) {
		address.words[2] = bpf_htonl(0xffff);
		address.words[3] = sock->skc_daddr;
	} else {
		for (int word = 0; word < 4; word++)
			address.words[word] = sock->skc_v6_daddr.in6_u.u6_addr32[word];
	}
	return address;
}

static struct peer *peer_of(struct tcp_sock *tcp)
{
	struct address address = remote_address((struct sock_common *)tcp);
	struct peer *known = bpf_map_lookup_elem(&peers, &address);
	struct peer unknown = {};

	if (known)
		return known;
	bpf_map_update_elem(&peers, &address, &unknown, BPF_NOEXIST);
	return bpf_map_lookup_elem(&peers, &address);
}

static void look_at(struct tcp_sock *tcp, struct connection *connection)
{
	struct rtac_settings constants = settings;
	__u64 now_ns = tcp->tcp_wstamp_ns, now_ms = now_ns / NS_PER_MS;
	__u64 rtt_ns = round_trip(connection, now_ns, now_ms, tcp->rx_opt.rcv_tsecr);
	__u64 received = tcp->bytes_received - connection->received;
	struct rtac *law = &connection->law;
	struct peer *peer;

	remember(connection, now_ns, now_ms);
	if (!received)
		return;
	connection->received = tcp->bytes_received;
	peer = peer_of(tcp);
	if (!peer)
		return;
	if (!law->flow) {
		law->flow = ++peer->remote.flows;
		/* The kernel's own shortest round trip, of the handshake at least. */
		if (tcp->rtt_min.s[0].v != ~0U)
			rtac_learn(&peer->remote, (__u64)tcp->rtt_min.s[0].v * NS_PER_US);
	}
	if (rtt_ns) {
		count(ROUND_TRIPS);
		rtac_on_round_trip(law, &peer->remote, now_ns, rtt_ns);
	}
	if (!rtac_on_arrival(law, &peer->remote, now_ns, received, tcp->advmss, &constants))
		return;
	peer->rtt_ns = law->rtt_ns;
	peer->rate = law->rate;
	peer->queue = law->queue;
	peer->window = law->window;
	peer->rounds += 1;
	peer->heard_ns = now_ns;
}

/* Sets the window, unless it is the one that the kernel has: growing its receive buffer, it
 * forgets ours. */
static void advertise(struct bpf_sock_ops *ops, struct tcp_sock *tcp, __u64 wanted)
{
	int window = wanted;

	if (!window || window == tcp->window_clamp)
		return;
	count(bpf_setsockopt(ops, SOL_TCP, TCP_WINDOW_CLAMP, &window, sizeof(window)) ? REFUSED : WINDOWS);
}

/* What was echoed before says how long we were not looking, not how long the path is. */
static struct connection *begin(struct bpf_sock *sock, struct tcp_sock *tcp)
{
	struct connection *connection =
		bpf_sk_storage_get(&connections, sock, NULL, BPF_SK_STORAGE_GET_F_CREATE);

	if (connection) {
		connection->echoed_ms = tcp->rx_opt.rcv_tsecr;
		connection->received = tcp->bytes_received;
	}
	return connection;
}

static void on_segment(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sock = ops->sk;
	struct connection *connection;
	struct tcp_sock *tcp;

	/* No segment: the kernel asks how large one may be. */
	if (ops->args[0] == BPF_WRITE_HDR_TCP_CURRENT_MSS || !sock)
		return;
	tcp = bpf_skc_to_tcp_sock(sock);
	if (!tcp)
		return;
	connection = bpf_sk_storage_get(&connections, sock, NULL, 0);
	if (!connection)
		connection = begin(sock, tcp);
	if (!connection)
		return;
	count(SEGMENTS);
	look_at(tcp, connection);
	advertise(ops, tcp, connection->law.window);
}

SEC("sockops")
int freshline_rtac(struct bpf_sock_ops *ops)
{
	switch (ops->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		count(CONNECTIONS);
		bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags |
						       BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		on_segment(ops);
		break;
	}
	return 1;
}

static struct tcp_sock *established(struct bpf_iter__tcp *at)
{
	struct sock_common *sock = at->sk_common;

	if (!sock || sock->skc_state != TCP_ESTABLISHED)
		return NULL;
	return bpf_skc_to_tcp_sock(sock);
}

static int within_cgroup(struct sock *sock)
{
	struct cgroup *cgroup = sock->sk_cgrp_data.cgroup;

	for (int level = 0; level < DEEPEST && level <= cgroup->level; level++) {
		struct cgroup *ancestor = BPF_CORE_READ(cgroup, ancestors[level]);

		if (BPF_CORE_READ(ancestor, kn, id) == cgroup_id)
			return 1;
	}
	return 0;
}

/* Reading it adopts the established connections of the reader's network namespace. */
SEC("iter/tcp")
int adopt(struct bpf_iter__tcp *at)
{
	struct tcp_sock *tcp = established(at);
	int flags;

	if (!tcp || !within_cgroup((struct sock *)tcp))
		return 0;
	flags = tcp->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG;
	if (!bpf_setsockopt(tcp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags)))
		count(ADOPTED);
	return 0;
}

/* Reading it gives the connections of the reader's network namespace the windows back that they
 * would have without us. */
SEC("iter/tcp")
int release(struct bpf_iter__tcp *at)
{
	struct tcp_sock *tcp = established(at);
	int window = NO_WINDOW;

	if (tcp && bpf_sk_storage_get(&connections, tcp, NULL, 0))
		bpf_setsockopt(tcp, SOL_TCP, TCP_WINDOW_CLAMP, &window, sizeof(window));
	return 0;
}
