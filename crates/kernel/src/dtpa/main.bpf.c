/* DTPA as a congestion control of the kernel's TCP: Reno by the kernel's own functions, and a period
 * in which a node's own segments wait.
 *
 * The kernel computes a pacing rate with each ack and asks for min_tso_segs before it sends: there
 * the rate is lowered, so that the window is spread over TXP + RTT, and the window is held to what
 * the law lets it have. TCP paces by itself where no queueing discipline does. */
#include "../kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "intf.h"
#include "../counters.h"

#define NAME "freshline_dtpa"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

extern __u32 tcp_reno_ssthresh(struct sock *sock) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sock, __u32 ack, __u32 acked) __ksym;
extern __u32 tcp_reno_undo_cwnd(struct sock *sock) __ksym;
extern __u32 tcp_slow_start(struct tcp_sock *tcp, __u32 acked) __ksym;
extern void tcp_cong_avoid_ai(struct tcp_sock *tcp, __u32 window, __u32 acked) __ksym;

/* One for all connections; it may change while they run. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct dtpa_settings);
} settings SEC(".maps");

/* What is remembered of a connection, in icsk_ca_priv. */
struct state {
	struct dtpa law;
	/* data_segs_out when it was looked at last. */
	__u32 seen;
	/* Whether the kernel brings the window down to ssthresh. */
	__u32 reduces;
};

static struct state *state_of(struct sock *sock)
{
	return (struct state *)((struct inet_connection_sock *)sock)->icsk_ca_priv;
}

static struct dtpa_settings *current_settings(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&settings, &first);
}

/* Takes note of what was sent since. */
static void look_at_sent(struct sock *sock, const struct dtpa_settings *now)
{
	struct state *state = state_of(sock);
	__u32 out = ((struct tcp_sock *)sock)->data_segs_out, segments = out - state->seen;

	state->seen = out;
	dtpa_on_sent(&state->law, segments, now);
	count_many(SENT, segments);
}

SEC("struct_ops")
void BPF_PROG(dtpa_init, struct sock *sock)
{
	struct state *state = state_of(sock);

	state->law.sent = 0;
	state->law.timeouts = 0;
	state->law.fast_retransmits = 0;
	state->law.srtt_us = 0;
	state->law.period_us = 0;
	state->law.peak = 0;
	state->seen = ((struct tcp_sock *)sock)->data_segs_out;
	state->reduces = 0;
	count(CONNECTIONS);
}

SEC("struct_ops")
void BPF_PROG(freshline_acked, struct sock *sock, const struct ack_sample *sample)
{
	struct dtpa_settings *now = current_settings();

	if (!now)
		return;
	look_at_sent(sock, now);
	if (sample->rtt_us > 0)
		dtpa_on_round_trip(&state_of(sock)->law, sample->rtt_us, now);
}

SEC("struct_ops")
void BPF_PROG(dtpa_set_state, struct sock *sock, __u8 next)
{
	struct dtpa_settings *now = current_settings();
	struct dtpa *law = &state_of(sock)->law;

	state_of(sock)->reduces = next == TCP_CA_Recovery || next == TCP_CA_CWR;
	if (!now || (next != TCP_CA_Loss && next != TCP_CA_Recovery))
		return;
	/* It is the SYN that timed out. */
	if (!((struct tcp_sock *)sock)->data_segs_out)
		return;
	look_at_sent(sock, now);
	dtpa_count(next == TCP_CA_Loss ? &law->timeouts : &law->fast_retransmits);
	count(next == TCP_CA_Loss ? TIMEOUTS : FAST_RETRANSMITS);
}

/* What keeps this connection back is the period. Reno lets a window grow only if that does, and with
 * a window that stays small the rate would stay below the share. */
static int is_waiting(struct sock *sock)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sock;

	return state_of(sock)->law.period_us && tcp->write_seq != tcp->snd_nxt;
}

static void grow(struct tcp_sock *tcp, __u32 acked)
{
	if (tcp->snd_cwnd < tcp->snd_ssthresh)
		acked = tcp_slow_start(tcp, acked);
	if (acked)
		tcp_cong_avoid_ai(tcp, larger(tcp->snd_cwnd, 1), acked);
}

static void hold_window(struct sock *sock, const struct dtpa_settings *now)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sock;
	__u64 most = dtpa_most_window(&state_of(sock)->law, now);

	if (tcp->snd_cwnd > most)
		tcp->snd_cwnd = most;
}

SEC("struct_ops")
void BPF_PROG(dtpa_cong_avoid, struct sock *sock, __u32 ack, __u32 acked)
{
	struct dtpa_settings *now = current_settings();

	if (is_waiting(sock))
		grow((struct tcp_sock *)sock, acked);
	else
		tcp_reno_cong_avoid(sock, ack, acked);
	if (now)
		hold_window(sock, now);
}

/* The window that the period is divided by. After a fast retransmit, a mark (ECN) or a drop in its
 * own device's queue the kernel counts it for a round trip from what is in flight, which is little
 * because of the period, and then sets it to ssthresh. */
static __u32 window_of(struct sock *sock)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sock;

	return state_of(sock)->reduces ? larger(tcp->snd_cwnd, tcp->snd_ssthresh) : tcp->snd_cwnd;
}

/* Comes before the kernel sends. It asks for the fewest segments that make a packet, and has packets
 * of more where a ms of the pacing rate or a short round trip allows it, up to the device's
 * gso_max_segs (tcp_tso_segs): that is where to forbid them. */
SEC("struct_ops")
__u32 BPF_PROG(dtpa_before_send, struct sock *sock)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sock;
	struct dtpa_settings *now = current_settings();
	__u64 rate;

	if (!now)
		return 1;
	hold_window(sock, now);
	rate = dtpa_rate(&state_of(sock)->law, window_of(sock), tcp->mss_cache, now);
	if (rate && sock->sk_pacing_status == SK_PACING_NONE)
		sock->sk_pacing_status = SK_PACING_NEEDED;
	if (rate && rate < sock->sk_pacing_rate)
		sock->sk_pacing_rate = rate;
	return 1;
}

SEC("struct_ops")
__u32 BPF_PROG(dtpa_ssthresh, struct sock *sock)
{
	return tcp_reno_ssthresh(sock);
}

SEC("struct_ops")
__u32 BPF_PROG(dtpa_undo_cwnd, struct sock *sock)
{
	return tcp_reno_undo_cwnd(sock);
}

/* Every user and every network namespace may choose it, as Reno. */
SEC(".struct_ops.link")
struct tcp_congestion_ops freshline_dtpa = {
	.init = (void *)dtpa_init,
	.pkts_acked = (void *)freshline_acked,
	.set_state = (void *)dtpa_set_state,
	.cong_avoid = (void *)dtpa_cong_avoid,
	.min_tso_segs = (void *)dtpa_before_send,
	.ssthresh = (void *)dtpa_ssthresh,
	.undo_cwnd = (void *)dtpa_undo_cwnd,
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = NAME,
};

static int is_ours(struct tcp_sock *tcp)
{
	struct inet_connection_sock *connection = (struct inet_connection_sock *)tcp;
	char name[sizeof(NAME)];

	BPF_CORE_READ_STR_INTO(&name, connection, icsk_ca_ops, name);
	return !bpf_strncmp(name, sizeof(name), NAME);
}

/* Reading it lists the connections of the reader's network namespace. */
SEC("iter/tcp")
int list(struct bpf_iter__tcp *at)
{
	struct sock_common *sock = at->sk_common;
	struct tcp_sock *tcp;
	struct dtpa *law;
	struct row row = {};

	if (!sock || sock->skc_state == TCP_LISTEN)
		return 0;
	tcp = bpf_skc_to_tcp_sock(sock);
	if (!tcp || !is_ours(tcp))
		return 0;
	law = &state_of((struct sock *)tcp)->law;
	row.remote = remote_address(sock);
	row.remote_port = bpf_ntohs(sock->skc_dport);
	row.local_port = sock->skc_num;
	row.window = tcp->snd_cwnd;
	row.segment = tcp->mss_cache;
	row.sent = law->sent;
	row.timeouts = law->timeouts;
	row.fast_retransmits = law->fast_retransmits;
	row.srtt_us = law->srtt_us;
	row.period_us = law->period_us;
	bpf_seq_write(at->meta->seq, &row, sizeof(row));
	return 0;
}

/* Reading it gives Reno to the sockets of the reader's network namespace that listen and have chosen
 * it, as what they accept would have it for as long as they live. Writes a byte for each. */
SEC("iter/tcp")
int leave(struct bpf_iter__tcp *at)
{
	struct sock_common *sock = at->sk_common;
	struct inet_connection_sock *chosen;
	struct tcp_sock *tcp;
	char reno[] = "reno";
	__u8 left = 1;

	if (!sock || sock->skc_state != TCP_LISTEN)
		return 0;
	tcp = bpf_skc_to_tcp_sock(sock);
	if (!tcp || !is_ours(tcp))
		return 0;
	/* Otherwise what it accepts has what is the default by then. */
	chosen = (struct inet_connection_sock *)tcp;
	if (!BPF_CORE_READ_BITFIELD_PROBED(chosen, icsk_ca_setsockopt))
		return 0;
	if (!bpf_setsockopt(tcp, SOL_TCP, TCP_CONGESTION, reno, sizeof(reno)))
		bpf_seq_write(at->meta->seq, &left, sizeof(left));
	return 0;
}
