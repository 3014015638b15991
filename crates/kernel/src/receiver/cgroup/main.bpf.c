/* Controls the windows of the sockets of a cgroup: inspects every outgoing segment, including pure
 * acks, and sets the window that the next segments may advertise. */
#include "../connection.h"

#include <bpf/bpf_core_read.h>

#define NS_PER_MS 1000000
#define NS_PER_US 1000
/* Connections of more deeply nested cgroups are not adopted. */
#define DEEPEST 64

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct controlled {
	/* The received bytes at the last inspection. */
	__u64 received;
	/* The sequence number up to which the application had copied data then. */
	__u64 copied;
	/* The window of the connection without this program: the application's own choice, or the
	 * maximum of TCP. */
	__u64 own;
	/* With timestamps in the kernel's own milliseconds. */
	struct connection connection;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct controlled);
} connections SEC(".maps");

/* The kernel's own minimum RTT, at least that of the handshake; 0 if unknown. Only a new connection
 * needs it. */
static __u64 known_round_trip(struct tcp_sock *tcp, struct rtac *law)
{
	__u32 known_us = law->flow ? ~0U : tcp->rtt_min.s[0].v;

	return known_us == ~0U ? 0 : (__u64)known_us * NS_PER_US;
}

static void look_at(struct tcp_sock *tcp, struct controlled *controlled)
{
	struct connection *connection = &controlled->connection;
	__u64 now_ns = tcp->tcp_wstamp_ns;
	__u32 now_ms = now_ns / NS_PER_MS;
	struct arrival arrival = {
		.now_ns = now_ns,
		.rtt_ns = round_trip(connection, now_ns, tcp->rx_opt.rcv_tsecr),
		.bytes = tcp->bytes_received - controlled->received,
	};
	struct address from;

	if (now_ms != connection->sent)
		remember(connection, now_ns, now_ms);
	/* An ack without data may have been delayed at the other side. */
	if (!arrival.bytes)
		arrival.rtt_ns = 0;
	/* Only Algorithm 1 uses the copied bytes. */
	if (settings.rtac.is_pure)
		arrival.read = (__u32)(tcp->copied_seq - (__u32)controlled->copied);
	if (!arrival.bytes && !arrival.read)
		return;
	arrival.segment = tcp->advmss;
	arrival.known_ns = known_round_trip(tcp, &connection->law);
	controlled->received = tcp->bytes_received;
	controlled->copied = tcp->copied_seq;
	from = remote_address((struct sock_common *)tcp);
	on_arrival(&connection->law, &from, &arrival);
}

/* Sets the window, unless the kernel has it already: when the kernel grows its receive buffer, it
 * overwrites this program's window. */
static void advertise(struct bpf_sock_ops *ops, struct tcp_sock *tcp, __u64 wanted)
{
	int window = wanted;

	if (!window || window == tcp->window_clamp)
		return;
	count(bpf_setsockopt(ops, SOL_TCP, TCP_WINDOW_CLAMP, &window, sizeof(window)) ? REFUSED : WINDOWS);
}

/* Starts the control of a connection. Echoes of earlier timestamps show the time without control,
 * not the delay of the path. */
static int begin(struct tcp_sock *tcp, __u64 own)
{
	struct controlled *controlled =
		bpf_sk_storage_get(&connections, tcp, NULL, BPF_SK_STORAGE_GET_F_CREATE);

	if (!controlled)
		return 0;
	controlled->connection.echoed = tcp->rx_opt.rcv_tsecr;
	controlled->received = tcp->bytes_received;
	controlled->copied = tcp->copied_seq;
	controlled->own = own;
	return 1;
}

/* The kernel has not chosen a receive buffer yet, so only the program or the route may have limited
 * the window. */
static void on_established(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sock = ops->sk;
	struct tcp_sock *tcp;

	if (!sock)
		return;
	tcp = bpf_skc_to_tcp_sock(sock);
	if (!tcp || !begin(tcp, tcp->window_clamp))
		return;
	count(CONNECTIONS);
	bpf_sock_ops_cb_flags_set(ops,
				  ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
}

static void on_segment(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sock = ops->sk;
	struct controlled *controlled;
	struct tcp_sock *tcp;

	/* There is no segment: the kernel asks how large one may be. */
	if (ops->args[0] == BPF_WRITE_HDR_TCP_CURRENT_MSS || !sock)
		return;
	tcp = bpf_skc_to_tcp_sock(sock);
	if (!tcp)
		return;
	controlled = bpf_sk_storage_get(&connections, sock, NULL, 0);
	if (!controlled)
		/* Left by a killed program. */
		return;
	count(SEGMENTS);
	look_at(tcp, controlled);
	advertise(ops, tcp, smaller(controlled->connection.law.window, controlled->own));
}

SEC("sockops")
int freshline_sock(struct bpf_sock_ops *ops)
{
	switch (ops->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		on_established(ops);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		on_segment(ops);
		break;
	}
	return 1;
}

/* Connections that can still receive data, including those whose local half is closed. */
static struct tcp_sock *receiving(struct bpf_iter__tcp *at)
{
	struct sock_common *sock = at->sk_common;

	if (!sock)
		return NULL;
	switch (sock->skc_state) {
	case TCP_ESTABLISHED:
	case TCP_FIN_WAIT1:
	case TCP_FIN_WAIT2:
		return bpf_skc_to_tcp_sock(sock);
	default:
		return NULL;
	}
}

static int within_cgroup(struct sock *sock)
{
	struct cgroup *cgroup = sock->sk_cgrp_data.cgroup;

	for (int level = 0; level < DEEPEST && level <= cgroup->level; level++) {
		struct cgroup *ancestor = BPF_CORE_READ(cgroup, ancestors[level]);

		if (BPF_CORE_READ(ancestor, kn, id) == settings.within)
			return 1;
	}
	return 0;
}

static int set_flags(struct tcp_sock *tcp, int flags)
{
	return bpf_setsockopt(tcp, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
}

/* Reading this iterator adopts the connections of the reader's network namespace. It is then no
 * longer known whether the application or the kernel has chosen the window. */
SEC("iter/tcp")
int adopt(struct bpf_iter__tcp *at)
{
	struct tcp_sock *tcp = receiving(at);

	if (!tcp || !within_cgroup((struct sock *)tcp))
		return 0;
	/* Connections opened since then are controlled already. */
	if (bpf_sk_storage_get(&connections, tcp, NULL, 0) || !begin(tcp, LARGEST_WINDOW))
		return 0;
	if (!set_flags(tcp, tcp->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG))
		count(ADOPTED);
	return 0;
}

/* Reading this iterator restores the windows of the connections of the reader's network
 * namespace. */
SEC("iter/tcp")
int release(struct bpf_iter__tcp *at)
{
	struct tcp_sock *tcp = receiving(at);
	struct controlled *controlled;
	int window;

	if (!tcp)
		return 0;
	controlled = bpf_sk_storage_get(&connections, tcp, NULL, 0);
	if (!controlled)
		return 0;
	window = controlled->own;
	bpf_setsockopt(tcp, SOL_TCP, TCP_WINDOW_CLAMP, &window, sizeof(window));
	set_flags(tcp, tcp->bpf_sock_ops_cb_flags & ~BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
	return 0;
}
