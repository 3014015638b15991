/* Controls the windows of all connections through a device, of any host: inspects incoming packets,
 * and reduces the windows of outgoing ones.
 *
 *            SYN ──► begin ─┐
 *    incoming data ──► law ─┴─► flow ──► window of each outgoing segment */
#include "../connection.h"

#include "segment.h"

#define FLOWS 4096

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct flow {
	/* The minimum RTT before the first data, in ns; 0 if unknown. */
	__u64 known_ns;
	/* The scale of the near end's windows, in bits (RFC 7323, section 2.2). */
	__u32 scale;
	/* The largest segment that the near end accepts. */
	__u32 segment;
	/* Whether both SYNs have been seen. */
	__u32 is_open;
	/* The sequence number up to which data has arrived. */
	__u32 received;
	/* The last ack of the near end, and the farthest edge that it has ever advertised to the
	 * other side. */
	__u32 acked;
	__u32 edge;
	/* With the near end's timestamps. */
	struct connection connection;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, FLOWS);
	__type(key, struct ends);
	__type(value, struct flow);
} flows SEC(".maps");

static const struct flow unknown;

static __u32 later(__u32 a, __u32 b)
{
	return is_after(a, b) ? a : b;
}

/* The other side sends from this sequence number on. */
static void open(struct flow *flow, __u32 next)
{
	flow->received = flow->acked = next;
	flow->edge += next;
	flow->is_open = 1;
	count(CONNECTIONS);
}

/* The near end sends a SYN. A SYN that answers it must not use options that it did not have (RFC
 * 7323, section 2.2). */
static void begin(const struct segment *segment)
{
	struct flow *flow;

	bpf_map_delete_elem(&flows, &segment->ends);
	if (segment->options.keeps_window || !segment->options.has_stamp)
		return;
	bpf_map_update_elem(&flows, &segment->ends, &unknown, BPF_ANY);
	flow = bpf_map_lookup_elem(&flows, &segment->ends);
	if (!flow)
		return;
	flow->scale = segment->options.scale;
	flow->segment = segment->options.largest;
	/* Not scaled here, and relative to a sequence number that is not known yet. */
	flow->edge = bpf_ntohs(segment->header.window);
	flow->connection.echoed = segment->options.stamp - 1;
	remember(&flow->connection, bpf_ktime_get_ns(), segment->options.stamp);
	if (segment->header.flags & ACK)
		open(flow, bpf_ntohl(segment->header.ack));
}

/* The other side answers the SYN. */
static void on_answer(struct flow *flow, const struct segment *segment)
{
	if (flow->is_open || !(segment->header.flags & ACK))
		return;
	if (!segment->options.has_scale)
		flow->scale = 0;
	open(flow, bpf_ntohl(segment->header.sequence) + 1);
}

static void on_incoming(struct flow *flow, const struct segment *segment)
{
	struct connection *connection = &flow->connection;
	__u32 end = bpf_ntohl(segment->header.sequence) + segment->payload;
	struct arrival arrival = {
		.now_ns = bpf_ktime_get_ns(),
		.bytes = segment->payload,
		.read = segment->payload,
		.segment = flow->segment,
		.known_ns = flow->known_ns,
	};

	/* The near end does not accept it: a sender's mistake, or a forged segment. */
	if (is_after(end, flow->edge))
		return;
	if (segment->options.has_stamp)
		arrival.rtt_ns = round_trip(connection, arrival.now_ns, segment->options.echo);
	if (!segment->payload) {
		/* The ack may have been delayed at the other side, so it only bounds the RTT of the
		 * path. */
		if (arrival.rtt_ns && (!flow->known_ns || arrival.rtt_ns < flow->known_ns))
			flow->known_ns = arrival.rtt_ns;
		return;
	}
	/* A retransmission of data that had arrived. */
	if (!is_after(end, flow->acked))
		return;
	flow->received = later(end, flow->received);
	on_arrival(&connection->law, &segment->ends.far, &arrival);
}

SEC("tcx/ingress")
int freshline_in(struct __sk_buff *skb)
{
	struct segment segment;
	struct flow *flow;

	if (!read_segment(skb, &segment, INCOMING))
		return TCX_NEXT;
	flow = bpf_map_lookup_elem(&flows, &segment.ends);
	if (!flow) {
		if (segment.payload)
			count(UNSEEN);
		return TCX_NEXT;
	}
	if (segment.header.flags & SYN)
		on_answer(flow, &segment);
	if (flow->is_open)
		on_incoming(flow, &segment);
	return TCX_NEXT;
}

/* Returns whether it succeeded. */
static int rewrite(struct __sk_buff *skb, const struct segment *segment, __be16 window)
{
	__u32 at = ip_header_at(skb) + segment->at;
	__u32 field = at + __builtin_offsetof(struct tcp_header, window);
	__u32 checksum = at + __builtin_offsetof(struct tcp_header, checksum);
	__be16 before = segment->header.window;
	int is_done = !bpf_l4_csum_replace(skb, checksum, before, window, sizeof(window)) &&
		      !bpf_skb_store_bytes(skb, field, &window, sizeof(window), 0);

	count(is_done ? WINDOWS : REFUSED);
	return is_done;
}

/* Limits the data in the network to the law's window: from the last byte that has arrived at the
 * device, wherever it is now on its way to the near end. An advertised edge is never taken back
 * (RFC 9293, section 3.8.6.2.1), and no edge is beyond that of the near end. */
static void limit(struct __sk_buff *skb, const struct segment *segment, struct flow *flow)
{
	__u32 ack = bpf_ntohl(segment->header.ack), window = bpf_ntohs(segment->header.window);
	__u32 edge = later(later(flow->received, ack) + flow->connection.law.window, flow->edge);
	__u32 unit = 1 << flow->scale;
	__u32 wanted = (edge - ack + unit - 1) >> flow->scale;

	if (flow->connection.law.window && wanted < window &&
	    rewrite(skb, segment, bpf_htons(wanted)))
		window = wanted;
	flow->acked = later(ack, flow->acked);
	flow->edge = later(ack + (window << flow->scale), flow->edge);
}

SEC("tcx/egress")
int freshline_out(struct __sk_buff *skb)
{
	struct segment segment;
	struct flow *flow;

	if (!read_segment(skb, &segment, OUTGOING))
		return TCX_NEXT;
	if (segment.header.flags & SYN) {
		begin(&segment);
		return TCX_NEXT;
	}
	flow = bpf_map_lookup_elem(&flows, &segment.ends);
	if (!flow || !flow->is_open || !(segment.header.flags & ACK))
		return TCX_NEXT;
	count(SEGMENTS);
	if (segment.options.has_stamp && segment.options.stamp != flow->connection.sent)
		remember(&flow->connection, bpf_ktime_get_ns(), segment.options.stamp);
	limit(skb, &segment, flow);
	return TCX_NEXT;
}
