/* The windows of all connections that pass a device, whoever they belong to: looks at what comes
 * in, and makes the windows smaller that go out.
 *
 *            SYN ──► begin ─┐
 *    incoming data ──► law ─┴─► flow ──► window of each outgoing segment */
#include "../connection.h"

#include "segment.h"

#define FLOWS 4096

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct flow {
	/* The shortest round trip before the first data, ns; 0 if none. */
	__u64 known_ns;
	/* By how many bits the windows of the near end are shifted (RFC 7323, section 2.2). */
	__u32 scale;
	/* The largest segment that the near end takes. */
	__u32 segment;
	/* Whether both ends have said how they begin. */
	__u32 is_open;
	/* Up to where data has come in. */
	__u32 received;
	/* What the near end acknowledged last, and the farthest that it ever let the other side send. */
	__u32 acked;
	__u32 edge;
	/* Stamped as the near end stamps what it sends. */
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

/* The near end says how it begins. What it does not say a SYN that answers one must not say
 * either (RFC 7323, section 2.2). */
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
	/* Not shifted here, and from a number on that is not known yet. */
	flow->edge = bpf_ntohs(segment->header.window);
	flow->connection.echoed = segment->options.stamp - 1;
	remember(&flow->connection, bpf_ktime_get_ns(), segment->options.stamp);
	if (segment->header.flags & ACK)
		open(flow, bpf_ntohl(segment->header.ack));
}

/* The other side answers the beginning. */
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

	/* The near end does not take it: a sender's mistake, or somebody else's segment. */
	if (is_after(end, flow->edge))
		return;
	if (segment->options.has_stamp)
		arrival.rtt_ns = round_trip(connection, arrival.now_ns, segment->options.echo);
	if (!segment->payload) {
		/* An ack may wait for another at the other side: good only to know the path. */
		if (arrival.rtt_ns && (!flow->known_ns || arrival.rtt_ns < flow->known_ns))
			flow->known_ns = arrival.rtt_ns;
		return;
	}
	/* Sent again, though it had come. */
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

/* Whether it is done. */
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

/* Lets no more into the network than the law does: from what has come in on, wherever it is now
 * on its way to the near end. An edge once told is never taken back (RFC 9293, section 3.8.6.2.1),
 * and none is told that the near end did not tell. */
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
