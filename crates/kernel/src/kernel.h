/* The parts of the kernel's types that the programs read. The loader finds the fields in the
 * running kernel by their names (CO-RE), so neither their order nor missing fields matter here. */
#ifndef FRESHLINE_KERNEL_H
#define FRESHLINE_KERNEL_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[];
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct in6_addr {
	union {
		__u32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	__u32 skc_daddr;
	struct in6_addr skc_v6_daddr;
	__u16 skc_dport;
	__u16 skc_num;
	volatile unsigned char skc_state;
	unsigned short skc_family;
};

typedef struct {
	int counter;
} atomic_t;

typedef struct refcount_struct {
	atomic_t refs;
} refcount_t;

struct sock {
	struct sock_common __sk_common;
	struct sock_cgroup_data sk_cgrp_data;
	/* The memory of its packets in the queues of devices, in bytes, plus 1 for the socket
	 * itself. */
	refcount_t sk_wmem_alloc;
	int sk_wmem_queued;
	int sk_sndbuf;
	/* The limit of SO_MAX_PACING_RATE, in bytes of payload per second; ~0 for no limit. */
	unsigned long sk_max_pacing_rate;
	/* Whether its segments are paced, and where: SK_PACING_NONE, by TCP, or by the queueing
	 * discipline fq. */
	__u32 sk_pacing_status;
};

struct ack_sample {
	__s32 rtt_us;
};

/* A congestion control, with the functions that these programs implement. */
struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sock);
	void (*cong_avoid)(struct sock *sock, __u32 ack, __u32 acked);
	void (*set_state)(struct sock *sock, __u8 state);
	void (*pkts_acked)(struct sock *sock, const struct ack_sample *sample);
	__u32 (*undo_cwnd)(struct sock *sock);
	void (*init)(struct sock *sock);
	void (*release)(struct sock *sock);
	__u32 flags;
	char name[16];
};

struct inet_connection_sock {
	const struct tcp_congestion_ops *icsk_ca_ops;
	/* TCP_CA_Open and the others. */
	__u8 icsk_ca_state:5;
	/* Whether it was chosen by setsockopt: then accepted connections of a listening socket have
	 * it, too. */
	__u8 icsk_ca_setsockopt:1;
	/* The state of a congestion control. */
	__u64 icsk_ca_priv[13];
};

struct sk_buff {
	struct sock *sk;
	unsigned int len;
	unsigned int truesize;
	/* For use by a queueing discipline. */
	char cb[48];
	__be16 protocol;
	__u16 network_header;
	/* The offset from `head` to the struct skb_shared_info. */
	unsigned int end;
	unsigned char *head;
	unsigned char *data;
};

struct tcp_options_received {
	__u32 rcv_tsecr;
};

struct minmax_sample {
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	/* In us; ~0 if unknown. */
	struct minmax rtt_min;
	struct tcp_options_received rx_opt;
	__u64 tcp_wstamp_ns;
	__u64 bytes_received;
	/* The sequence number up to which the application has copied data. */
	__u32 copied_seq;
	/* The sequence numbers up to which data was written, and was sent. */
	__u32 write_seq;
	__u32 snd_nxt;
	__u32 snd_cwnd;
	__u32 snd_ssthresh;
	/* The window at the start of the last reduction or timeout. */
	__u32 prior_cwnd;
	/* 0 if the reduction can no longer be undone. */
	__u32 undo_marker;
	__u32 mss_cache;
	/* 8 times the smoothed round trip, in us. */
	__u32 srtt_us;
	/* The last sample of the delivery rate: segments in a time. */
	__u32 rate_delivered;
	__u32 rate_interval_us;
	/* Counts retransmitted segments again. */
	__u32 data_segs_out;
	__u32 window_clamp;
	__u16 advmss;
	__u8 bpf_sock_ops_cb_flags;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

#pragma clang attribute pop

extern void *bpf_cast_to_kern_ctx(void *) __ksym;

/* From the kernel's internal headers. */
#define TCP_ESTABLISHED 1
#define TCP_FIN_WAIT1 4
#define TCP_FIN_WAIT2 5
#define TCP_LISTEN 10
#define TCP_CA_CWR 2
#define TCP_CA_Recovery 3
#define TCP_CA_Loss 4
#define TCP_CONG_NON_RESTRICTED 1
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1
#define AF_INET 2
#define SOL_SOCKET 1
#define SO_MAX_PACING_RATE 47
#define SOL_TCP 6

/* From <linux/tcp.h>, whose types would clash with those above. */
#define TCP_WINDOW_CLAMP 10
#define TCP_CONGESTION 13

/* From <linux/bpf.h> since Linux 6.6 and 6.12. */
#define TCX_NEXT (-1)
#define TCP_BPF_SOCK_OPS_CB_FLAGS 1008

/* An IPv6 address, or an IPv4 address mapped into IPv6, in network byte order. */
struct address {
	__u32 words[4];
};

static inline struct address mapped(__u32 ipv4)
{
	struct address address = { .words = { 0, 0, bpf_htonl(0xffff), ipv4 } };

	return address;
}

/* The remote end of a socket. */
static inline struct address remote_address(const struct sock_common *sock)
{
	struct address address;

	if (sock->skc_family == AF_INET)
		return mapped(sock->skc_daddr);
	for (int word = 0; word < 4; word++)
		address.words[word] = sock->skc_v6_daddr.in6_u.u6_addr32[word];
	return address;
}

#endif
