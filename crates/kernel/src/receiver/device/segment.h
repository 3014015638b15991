/* Parses TCP segments at a device. For any input, parsing terminates and stays inside the packet; a
 * packet that cannot be parsed counts as no segment, and is left unchanged. */
#ifndef FRESHLINE_RECEIVER_SEGMENT_H
#define FRESHLINE_RECEIVER_SEGMENT_H

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define HOP_BY_HOP 0
#define TCP 6

/* Bits of the field `fragment` of an IPv4 header: all but "don't fragment". */
#define IS_FRAGMENT 0x3fff
/* The option of an IPv6 packet of more than 64 kB (RFC 2675), the only one in its header. */
#define JUMBO_HEADER 8
#define JUMBO_OPTION 0xc2

/* TCP's flags. */
#define SYN 0x02
#define ACK 0x10

/* TCP's options, and their maximum length in bytes. */
#define END 0
#define NOTHING 1
#define LARGEST_SEGMENT 2
#define WINDOW_SCALE 3
#define TIMESTAMPS 8
#define MD5_SIGNATURE 19
#define AUTHENTICATION 29
#define MULTIPATH 30
#define MAX_OPTIONS 40
/* Nearly all segments have only timestamps: these four bytes, and two words. */
#define ONLY_TIMESTAMPS 0x0101080a
#define TIMESTAMPS_BYTES 12
/* RFC 7323, section 2.3. */
#define LARGEST_SCALE 14
/* The default if the other side is not informed (RFC 9293, section 3.7.1). */
#define USUAL_SEGMENT 536

struct ipv4_header {
	__u8 version_and_words;
	__u8 service;
	__be16 length;
	__be16 id;
	__be16 fragment;
	__u8 hops;
	__u8 protocol;
	__be16 checksum;
	__be32 source;
	__be32 destination;
};

struct ipv6_header {
	__be32 version;
	__be16 length;
	__u8 next;
	__u8 hops;
	struct address source;
	struct address destination;
};

struct tcp_header {
	__be16 source;
	__be16 destination;
	__be32 sequence;
	__be32 ack;
	__u8 words;
	__u8 flags;
	__be16 window;
	__be16 checksum;
	__be16 urgent;
};

/* Which end of a connection is beyond the device. */
enum direction {
	INCOMING,
	OUTGOING,
};

/* The ends of a connection. */
struct ends {
	struct address far;
	struct address near;
	__be16 far_port;
	__be16 near_port;
};

/* The options of a segment. */
struct options {
	__u32 stamp;
	__u32 echo;
	__u32 largest;
	__u8 scale;
	__u8 has_stamp;
	__u8 has_scale;
	/* The window must not change: it is signed, or shared by several subflows. */
	__u8 keeps_window;
};

struct segment {
	struct ends ends;
	/* The offset of the TCP header from the IP header. */
	__u32 at;
	struct tcp_header header;
	__u32 payload;
	struct options options;
};

/* The offset counts from the IP header. */
static long load(struct __sk_buff *skb, __u32 at, void *to, __u32 length)
{
	return bpf_skb_load_bytes_relative(skb, at, to, length, BPF_HDR_START_NET);
}

/* The offset of the IP header from the start of the packet as the program sees it: devices
 * differ. */
static __u32 ip_header_at(struct __sk_buff *skb)
{
	struct sk_buff *inner = bpf_cast_to_kern_ctx(skb);

	return inner->head + inner->network_header - inner->data;
}

/* Returns the length of the packet from its header, or the available length; 0 for a packet that is
 * left unchanged. */
static __u32 read_ipv4(struct __sk_buff *skb, struct segment *segment, enum direction direction,
		       __u32 all)
{
	struct ipv4_header ip;

	if (load(skb, 0, &ip, sizeof(ip)) || ip.protocol != TCP ||
	    ip.fragment & bpf_htons(IS_FRAGMENT))
		return 0;
	segment->at = (ip.version_and_words & 0xf) * 4;
	if (segment->at < sizeof(ip))
		return 0;
	segment->ends.far = mapped(direction == INCOMING ? ip.source : ip.destination);
	segment->ends.near = mapped(direction == INCOMING ? ip.destination : ip.source);
	/* Super-packets of more than 64 kB have no length. */
	return ip.length ? bpf_ntohs(ip.length) : all;
}

static __u32 read_ipv6(struct __sk_buff *skb, struct segment *segment, enum direction direction,
		       __u32 all)
{
	struct ipv6_header ip;
	__u8 jumbo[JUMBO_HEADER];

	if (load(skb, 0, &ip, sizeof(ip)))
		return 0;
	segment->at = sizeof(ip);
	segment->ends.far = direction == INCOMING ? ip.source : ip.destination;
	segment->ends.near = direction == INCOMING ? ip.destination : ip.source;
	if (ip.next == TCP)
		return ip.length ? sizeof(ip) + bpf_ntohs(ip.length) : all;
	if (ip.next != HOP_BY_HOP || ip.length || load(skb, sizeof(ip), jumbo, sizeof(jumbo)))
		return 0;
	if (jumbo[0] != TCP || jumbo[1] || jumbo[2] != JUMBO_OPTION)
		return 0;
	segment->at += sizeof(jumbo);
	return all;
}

static __u32 word(const __u8 *bytes)
{
	return (__u32)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
}

static void read_option(struct options *options, const __u8 *option, __u32 length)
{
	switch (option[0]) {
	case LARGEST_SEGMENT:
		if (length == 4)
			options->largest = option[2] << 8 | option[3];
		break;
	case WINDOW_SCALE:
		if (length == 3) {
			options->has_scale = 1;
			options->scale = option[2] < LARGEST_SCALE ? option[2] : LARGEST_SCALE;
		}
		break;
	case TIMESTAMPS:
		if (length == 10) {
			options->has_stamp = 1;
			options->stamp = word(option + 2);
			options->echo = word(option + 6);
		}
		break;
	case MD5_SIGNATURE:
	case AUTHENTICATION:
	case MULTIPATH:
		options->keeps_window = 1;
		break;
	}
}

/* The maximum length of the options that matter. */
#define MAX_READ 10

/* Reads `count` bytes of options, at an offset from the IP header. Not static, so that the verifier
 * checks it separately, not once for every state before it. */
int read_options(struct __sk_buff *skb, struct options *options, __u64 from, __u64 count)
{
	/* Zeros, which end the options, with room to read the last one. */
	__u8 bytes[MAX_OPTIONS + MAX_READ] = {};
	__u32 next = 0;

	if (!options || !count)
		return 0;
	/* Prevents the compiler from merging two comparisons into one that the verifier cannot
	 * follow. */
	barrier_var(count);
	if (count > MAX_OPTIONS || load(skb, from, bytes, count))
		return 0;
	if (count == TIMESTAMPS_BYTES && word(bytes) == ONLY_TIMESTAMPS) {
		options->has_stamp = 1;
		options->stamp = word(bytes + 4);
		options->echo = word(bytes + 8);
		return 0;
	}
	/* Byte by byte, so that the verifier knows each offset. */
	for (__u32 at = 0; at < MAX_OPTIONS; at++) {
		__u8 length = bytes[at + 1];

		if (at != next)
			continue;
		if (bytes[at] == END)
			break;
		if (bytes[at] == NOTHING) {
			next = at + 1;
			continue;
		}
		if (length < 2 || at + length > count)
			break;
		read_option(options, bytes + at, length);
		next = at + length;
	}
	return 0;
}

/* Whether it is a TCP segment; fills in its fields. */
static int read_segment(struct __sk_buff *skb, struct segment *segment, enum direction direction)
{
	struct tcp_header *tcp = &segment->header;
	__u32 all = skb->len - ip_header_at(skb), length, headers;

	__builtin_memset(segment, 0, sizeof(*segment));
	segment->options.largest = USUAL_SEGMENT;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		length = read_ipv4(skb, segment, direction, all);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		length = read_ipv6(skb, segment, direction, all);
	else
		return 0;
	if (!length || length > all || load(skb, segment->at, tcp, sizeof(*tcp)))
		return 0;
	headers = segment->at + (tcp->words >> 4) * 4;
	if (headers < segment->at + sizeof(*tcp) || headers > length)
		return 0;
	segment->ends.far_port = direction == INCOMING ? tcp->source : tcp->destination;
	segment->ends.near_port = direction == INCOMING ? tcp->destination : tcp->source;
	segment->payload = length - headers;
	read_options(skb, &segment->options, segment->at + sizeof(*tcp),
		     headers - segment->at - sizeof(*tcp));
	return 1;
}

#endif
