/* The kernel's types of queueing disciplines, as far as the program uses them. Kernels before 6.16 have no
 * queueing disciplines in BPF, so these types cannot be taken from the kernel of the build host. As in
 * kernel.h, only the names matter. */
#ifndef FRESHLINE_QDISC_H
#define FRESHLINE_QDISC_H

#include "../kernel.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct qdisc_skb_head {
	__u32 qlen;
};

struct gnet_stats_queue {
	__u32 qlen;
	__u32 backlog;
	__u32 drops;
};

struct Qdisc {
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
};

/* The start of the `cb` of an sk_buff. */
struct qdisc_skb_cb {
	/* The length on the wire, with the headers of each segment. */
	unsigned int pkt_len;
};

struct skb_shared_info {
	/* The payload of a segment; 0 if the packet is not a super-packet. */
	unsigned short gso_size;
	unsigned short gso_segs;
};

struct nlattr;
struct netlink_ext_ack;

struct bpf_sk_buff_ptr {
	struct sk_buff *skb;
};

struct Qdisc_ops {
	char id[16];
	int (*enqueue)(struct sk_buff *skb, struct Qdisc *qdisc, struct sk_buff **to_free);
	struct sk_buff *(*dequeue)(struct Qdisc *qdisc);
	int (*init)(struct Qdisc *qdisc, struct nlattr *options, struct netlink_ext_ack *extack);
	void (*reset)(struct Qdisc *qdisc);
	void (*destroy)(struct Qdisc *qdisc);
};

#pragma clang attribute pop

/* Drops a packet: the first function during enqueue, bpf_kfree_skb at any other time. */
extern void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free) __ksym;
/* The kernel's hash of the packet's flow, with its own secret. */
extern __u32 bpf_skb_get_hash(struct sk_buff *skb) __ksym;
extern void bpf_kfree_skb(struct sk_buff *skb) __ksym;
/* Makes the kernel request a packet at this time of the monotonic clock. */
extern void bpf_qdisc_watchdog_schedule(struct Qdisc *qdisc, __u64 at_ns, __u64 slack_ns) __ksym;
extern void bpf_qdisc_bstats_update(struct Qdisc *qdisc, const struct sk_buff *skb) __ksym;
extern int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags, struct bpf_dynptr *out) __ksym;

/* From <linux/netdevice.h>. */
#define NET_XMIT_SUCCESS 0
#define NET_XMIT_DROP 1

#define EBUSY 16

static inline __u32 length_on_wire(const struct sk_buff *skb)
{
	return ((const struct qdisc_skb_cb *)skb->cb)->pkt_len;
}

#endif
