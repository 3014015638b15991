/* DTPA as a congestion control of the kernel's TCP: Reno by the kernel's own functions, and a
 * period in which a node's own segments wait.
 *
 * With each ack the program
 *   1. counts the segments sent, and passes the round trip to the law (law.h);
 *   2. limits the window to the law's maximum;
 *   3. limits the pacing rate to one window per TXP + RTT, by SO_MAX_PACING_RATE. The kernel computes
 *      its own pacing rate after the last function that it calls with an ack, and keeps it below this
 *      limit. TCP paces by itself if no queueing discipline does.
 *
 * A kernel may skip a program: it returns from bpf_prog_enter with 0, the trampoline does not call
 * the program, and the caller gets stack contents as the return value, often 0. Linux does so when
 * a program that tracks recursion is entered again; before 6.1 (64696c40d03c) these were all
 * programs of a struct_ops, since 6.13 those with a private stack. There are also kernels that skip
 * programs not loaded by init while init is the current process; in a softirq, that is the
 * interrupted process. Therefore
 *   - there is no min_tso_segs. Of the functions that return a number, a 0 is fatal only in this one:
 *     tcp_tso_segs() then returns 0 if the pacing rate is below a segment per ms, tcp_write_xmit()
 *     splits its head by tso_fragment(limit = 0) and does not send the rest, and with nothing in
 *     flight the probe timer sends it: tcp_write_wakeup() does not check the length.
 *     tcp_xmit_retransmit_queue() can do the same, by __tcp_retransmit_skb(segs = 0). A receiver does
 *     not ack an empty segment, which fills the window of 1 after a timeout, and nothing is ever sent
 *     again;
 *   - the results of ssthresh and undo_cwnd, which the kernel requires, are corrected afterwards
 *     (mend());
 *   - a connection whose dtpa_init is skipped begins with the first other function that is not, as
 *     the kernel sets icsk_ca_priv to 0 before (begin_if_skipped());
 *   - if one of the others is skipped, an ack or a loss is missed, which does no harm. */
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

/* The state of a connection, in icsk_ca_priv. */
struct state {
	struct dtpa law;
	/* data_segs_out at the last inspection. */
	__u32 seen;
	/* 0 until all other fields are set. */
	__u32 has_begun;
	/* Bytes per second: the socket's limit as set here, and as set by the application. */
	__u64 limit;
	__u64 own_limit;
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

/* The connection has this congestion control from now on. The kernel calls dtpa_init for an active
 * one after the ack of its SYN. */
static void begin(struct sock *sock)
{
	struct state *state = state_of(sock);

	if (!state->has_begun)
		count(CONNECTIONS);
	state->has_begun = 1;
	state->law.sent = 0;
	state->law.timeouts = 0;
	state->law.fast_retransmits = 0;
	state->law.srtt_us = 0;
	state->law.period_us = 0;
	state->law.peak = 0;
	state->seen = ((struct tcp_sock *)sock)->data_segs_out;
	state->limit = 0;
	state->own_limit = 0;
	/* A limit without pacing was set here, before the connection left this law. */
	if (sock->sk_pacing_status == SK_PACING_NONE) {
		state->limit = sock->sk_max_pacing_rate;
		state->own_limit = ~0ULL;
	}
}

/* Begins if the kernel has skipped dtpa_init. Segments sent until then are not counted: they may
 * belong to another congestion control. */
static void begin_if_skipped(struct sock *sock)
{
	if (!state_of(sock)->has_begun)
		begin(sock);
}

/* Counts the segments that were sent since the last call. */
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
	begin(sock);
}

static int ca_state(struct sock *sock)
{
	struct inet_connection_sock *connection = (struct inet_connection_sock *)sock;

	return BPF_CORE_READ_BITFIELD(connection, icsk_ca_state);
}

/* Whether ssthresh is the result of the last reduction or timeout, which began at prior_cwnd. */
static int has_reduced(struct sock *sock)
{
	int state = ca_state(sock);

	return state == TCP_CA_CWR || (state > TCP_CA_CWR && ((struct tcp_sock *)sock)->undo_marker);
}

/* Limits the window to the law's maximum, and computes Reno's results if the kernel has skipped
 * dtpa_ssthresh or dtpa_undo_cwnd. */
static void mend(struct sock *sock, const struct dtpa_settings *now)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sock;
	__u64 threshold = dtpa_threshold(tcp->prior_cwnd);
	__u64 window = dtpa_held_window(&state_of(sock)->law, tcp->snd_cwnd,
					ca_state(sock) >= TCP_CA_CWR, now);

	if (tcp->snd_ssthresh < SMALLEST_WINDOW || (has_reduced(sock) && tcp->snd_ssthresh > threshold))
		tcp->snd_ssthresh = threshold;
	if (tcp->snd_cwnd != window)
		tcp->snd_cwnd = window;
}

/* The window that the period is divided by. After a fast retransmit, a mark (ECN) or a drop in its
 * own device's queue, the kernel counts the window for a round trip from the segments in flight,
 * which are few because of the period, and then sets it to ssthresh. */
static __u32 window_of(struct sock *sock)
{
	struct tcp_sock *tcp = (struct tcp_sock *)sock;
	int state = ca_state(sock);

	if (state == TCP_CA_CWR || state == TCP_CA_Recovery)
		return larger(tcp->snd_cwnd, tcp->snd_ssthresh);
	return tcp->snd_cwnd;
}

/* Limits the pacing rate to the law's; without a period, to the application's limit. */
static void pace(struct sock *sock, const struct dtpa_settings *now)
{
	struct state *state = state_of(sock);
	struct tcp_sock *tcp = (struct tcp_sock *)sock;
	__u64 limit = sock->sk_max_pacing_rate, any = ~0U;
	__u64 rate = dtpa_rate(&state->law, window_of(sock), tcp->mss_cache, now);
	__u32 argument;

	if (limit != state->limit)
		state->own_limit = limit;
	/* The option's argument has 32 bits; all ones mean no limit. */
	argument = smaller(smaller(rate ? rate : any, state->own_limit), any);
	state->limit = argument == any ? ~0ULL : argument;
	if (limit != state->limit ||
	    (limit != ~0ULL && sock->sk_pacing_status == SK_PACING_NONE))
		bpf_setsockopt(sock, SOL_SOCKET, SO_MAX_PACING_RATE, &argument, sizeof(argument));
}

/* The connection leaves for another congestion control, or ends. The kernel does not let this
 * function set socket options, nor any other write the limit. But if only this program set one, TCP
 * no longer paces the connection; a congestion control that needs pacing, such as BBR, requests it
 * when it begins. */
SEC("struct_ops")
void BPF_PROG(dtpa_release, struct sock *sock)
{
	struct state *state = state_of(sock);

	if (sock->sk_max_pacing_rate == state->limit && state->limit != ~0ULL &&
	    state->own_limit == ~0ULL && sock->sk_pacing_status == SK_PACING_NEEDED)
		sock->sk_pacing_status = SK_PACING_NONE;
}

SEC("struct_ops")
void BPF_PROG(freshline_acked, struct sock *sock, const struct ack_sample *sample)
{
	struct dtpa_settings *now = current_settings();

	if (!now)
		return;
	begin_if_skipped(sock);
	look_at_sent(sock, now);
	if (sample->rtt_us > 0)
		dtpa_on_round_trip(&state_of(sock)->law, sample->rtt_us, now);
	mend(sock, now);
	pace(sock, now);
}

SEC("struct_ops")
void BPF_PROG(dtpa_set_state, struct sock *sock, __u8 next)
{
	struct dtpa_settings *now = current_settings();
	struct dtpa *law = &state_of(sock)->law;

	if (!now || (next != TCP_CA_Loss && next != TCP_CA_Recovery))
		return;
	/* It is the SYN that timed out. */
	if (!((struct tcp_sock *)sock)->data_segs_out)
		return;
	begin_if_skipped(sock);
	look_at_sent(sock, now);
	dtpa_count(next == TCP_CA_Loss ? &law->timeouts : &law->fast_retransmits);
	count(next == TCP_CA_Loss ? TIMEOUTS : FAST_RETRANSMITS);
}

/* The period limits this connection. Reno grows a window only if the window is the limit, and with
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

SEC("struct_ops")
void BPF_PROG(dtpa_cong_avoid, struct sock *sock, __u32 ack, __u32 acked)
{
	struct dtpa_settings *now = current_settings();

	begin_if_skipped(sock);
	if (is_waiting(sock))
		grow((struct tcp_sock *)sock, acked);
	else
		tcp_reno_cong_avoid(sock, ack, acked);
	if (!now)
		return;
	mend(sock, now);
	pace(sock, now);
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

/* Every user and every network namespace may choose it, like Reno. */
SEC(".struct_ops.link")
struct tcp_congestion_ops freshline_dtpa = {
	.init = (void *)dtpa_init,
	.release = (void *)dtpa_release,
	.pkts_acked = (void *)freshline_acked,
	.set_state = (void *)dtpa_set_state,
	.cong_avoid = (void *)dtpa_cong_avoid,
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

/* Reading this iterator lists the connections of the reader's network namespace. */
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

/* Reading this iterator switches listening sockets of the reader's network namespace that have
 * chosen it to Reno, because the connections that they accept would have it for as long as they
 * live. Writes a byte for each. */
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
	/* Otherwise accepted connections get the default at that time. */
	chosen = (struct inet_connection_sock *)tcp;
	if (!BPF_CORE_READ_BITFIELD_PROBED(chosen, icsk_ca_setsockopt))
		return 0;
	if (!bpf_setsockopt(tcp, SOL_TCP, TCP_CONGESTION, reno, sizeof(reno)))
		bpf_seq_write(at->meta->seq, &left, sizeof(left));
	return 0;
}
