/* Parses the front of an IP packet, and classifies the packet, for BPF. A test on the host compares it with
 * freshline-core's Header and Classifier. For any bytes, parsing ends and stays within them; fields that cannot
 * be read stay zero. */
#ifndef FRESHLINE_IFC_PACKET_H
#define FRESHLINE_IFC_PACKET_H

#include "law.h"

/* The maximum number of bytes read from a packet (Header::SNAP_LEN, a power of two), and the size of the buffer
 * for them, with room for all results of `field`. */
#define FRONT 128
#define MAX_FIELD 16
#define FRONT_MEMORY (2 * FRONT + MAX_FIELD)
/* One more than the number of extension headers that fit into FRONT. */
#define MAX_EXTENSIONS 12
#define MAX_RULES 64

#define ETHERNET_HEADER 14
#define TAG 4
#define MAX_TAGS 2
#define IPV4_LEAST 20
#define IPV6_HEADER 40
#define EXTENSION_LEAST 8
#define AUTHENTICATION_LEAST 12
#define UDP_HEADER 8
/* The front of an update: magic, version, kind, session (see the protocol page of the documentation). */
#define UPDATE_FRONT 12
#define UPDATE_KIND 1

#define HOP_BY_HOP 0
#define TCP 6
#define UDP 17
#define DCCP 33
#define ROUTING 43
#define FRAGMENT 44
#define AUTHENTICATION 51
#define DESTINATION_OPTIONS 60
#define ICMPV6 58
#define SCTP 132
#define UDP_LITE 136

/* Source and destination. Addresses as on the wire, IPv4 mapped into IPv6; ports in host byte order. All bytes
 * are significant, as a flow is a key. */
struct flow {
	__u8 source[16];
	__u8 destination[16];
	__u16 source_port;
	__u16 destination_port;
	__u8 protocol;
	__u8 zero[3];
} __attribute__((aligned(8)));

struct header {
	struct flow flow;
	__u8 dscp;
	__u8 is_fragment;
	__u8 is_update;
	/* Neighbour discovery or MLD of this link (Header::is_link_control). */
	__u8 is_link_control;
	/* The stream protocol that it looks like, an enum stream; 0 for none. */
	__u8 stream;
	/* A rule makes it an update only if its flow does not look like a stream. */
	__u8 is_guarded;
};

/* Protocols whose packets must all arrive (StreamProtocol). */
enum stream {
	NO_STREAM,
	DNS,
	QUIC,
	DTLS,
	WIREGUARD,
	RTP,
	STUN,
	TRANSPORT,
	TUNNEL,
};

/* A condition on a header. */
enum condition {
	ANY,
	/* The protocol is `from`. */
	PROTOCOL,
	/* The code point is in the set `from`, with one bit per code point. */
	DSCP,
	/* A port is from `from` to `to`, at one of the ends AT_SOURCE and AT_DESTINATION. */
	PORT,
	IS_UPDATE,
	/* An address begins with the first `length` bits of `from` and `to`, at one of these ends. */
	ADDRESS,
};

/* The bits of the condition, and flags. */
#define CONDITION 0xff
#define AT_SOURCE (1 << 8)
#define AT_DESTINATION (1 << 9)
/* The condition must not hold. */
#define NOT (1 << 10)

/* The result if the condition holds. The first two are classes. */
enum outcome {
	OUTCOME_AOI,
	OUTCOME_DROP_AVERSE,
	OUTCOME_FORCED_AOI,
	/* The next row must hold, too. */
	OUTCOME_AND,
};

struct rule {
	__u64 condition;
	__u64 outcome;
	__u64 from;
	__u64 to;
	__u64 length;
};

/* The bytes from `at` on, which is at most FRONT. A mask ensures this for the verifier, which does not keep
 * comparisons of copies; the asm statement stops the compiler from removing the mask. */
static inline const __u8 *field(const __u8 *front, __u32 at)
{
	__asm__("" : "+r"(at));
	return front + (at & (2 * FRONT - 1));
}

static inline __u16 number16(const __u8 *bytes)
{
	return (__u16)bytes[0] << 8 | bytes[1];
}

/* The length of an extension header by its own length field; 0 for other protocols. */
static inline __u32 extension_length(__u8 kind, const __u8 *at)
{
	switch (kind) {
	case HOP_BY_HOP:
	case ROUTING:
	case DESTINATION_OPTIONS:
		return ((__u32)at[1] + 1) * 8;
	case FRAGMENT:
		return EXTENSION_LEAST;
	case AUTHENTICATION:
		return ((__u32)at[1] + 2) * 4;
	default:
		return 0;
	}
}

static inline __u32 number32(const __u8 *bytes)
{
	return (__u32)number16(bytes) << 16 | number16(bytes + 2);
}

static inline int is_dns_port(__u16 port)
{
	return port == 53 || port == 5353 || port == 5355;
}

/* The stream protocol that a datagram looks like, by the first `there` bytes of its payload of `length` bytes
 * (StreamProtocol::of_datagram). */
static inline __u8 stream_of_payload(const __u8 *payload, __u32 there, __u32 length, int is_https)
{
	__u32 version, type, zero = payload[1] | payload[2] | payload[3];
	__u8 first = payload[0], second = payload[1];

	if (there < 5)
		return NO_STREAM;
	version = number32(payload + 1);
	if (first >= 1 && first <= 4 && !zero) {
		if (first == 1)
			return length == 148 ? WIREGUARD : NO_STREAM;
		if (first == 2)
			return length == 92 ? WIREGUARD : NO_STREAM;
		if (first == 3)
			return length == 64 ? WIREGUARD : NO_STREAM;
		return length >= 32 && length % 16 == 0 ? WIREGUARD : NO_STREAM;
	}
	if (first >= 20 && first <= 25 && second == 0xfe && (payload[2] == 0xff || payload[2] == 0xfd))
		return DTLS;
	if (first <= 3)
		return there >= 8 && number32(payload + 4) == 0x2112a442 ? STUN : NO_STREAM;
	if ((first & 0xc0) == 0xc0 && (version <= 1 || version == 0x6b3343cf || version >> 8 == 0xff0000))
		return QUIC;
	if ((first & 0xc0) == 0x40 && is_https)
		return QUIC;
	if (first >> 6 != 2)
		return NO_STREAM;
	type = second & 0x7f;
	if (length >= 12 + 4 * (first & 0xfu) && (type <= 34 || type >= 96))
		return RTP;
	return length >= 8 && second >= 192 && second <= 223 ? RTP : NO_STREAM;
}

/* The same for a UDP header, with `there` bytes of header and payload. */
static inline __u8 stream_of(const __u8 *udp, __u32 there, const struct flow *flow)
{
	__u32 length = number16(udp + 4);

	if (is_dns_port(flow->source_port) || is_dns_port(flow->destination_port))
		return DNS;
	return stream_of_payload(udp + UDP_HEADER, there - UDP_HEADER,
				 length > UDP_HEADER ? length - UDP_HEADER : 0,
				 flow->source_port == 443 || flow->destination_port == 443);
}

/* Parses the bytes after the IP header and its extensions, from `at` to `end`. */
static inline void read_transport(const __u8 *front, __u32 at, __u32 end, struct header *header)
{
	struct flow *flow = &header->flow;
	__u8 protocol = flow->protocol;
	const __u8 *transport, *payload;

	if (at > FRONT || at + 4 > end)
		return;
	if (protocol != TCP && protocol != UDP && protocol != DCCP && protocol != SCTP &&
	    protocol != UDP_LITE)
		return;
	transport = field(front, at);
	flow->source_port = number16(transport);
	flow->destination_port = number16(transport + 2);
	if (protocol != UDP || at + UDP_HEADER > end)
		return;
	payload = transport + UDP_HEADER;
	header->is_update = at + UDP_HEADER + UPDATE_FRONT <= end && payload[0] == 'F' &&
			    payload[1] == 'L' && payload[3] == UPDATE_KIND;
	if (!header->is_update)
		header->stream = stream_of(transport, end - at, flow);
}

/* The stream protocol by the number of the IP protocol (StreamProtocol::of_protocol). */
static inline __u8 stream_of_protocol(__u8 protocol)
{
	switch (protocol) {
	case TCP:
	case DCCP:
	case SCTP:
		return TRANSPORT;
	case 4:
	case 41:
	case 47:
	case 50:
	case 97:
	case 115:
		return TUNNEL;
	default:
		return NO_STREAM;
	}
}

/* Copies `count` words of 4 bytes. Both ends are aligned to words: in a flow, and relative to the IP header. */
static __always_inline void copy_words(__u8 *to, const __u8 *from, int count)
{
	__builtin_memcpy(__builtin_assume_aligned(to, 4), __builtin_assume_aligned(from, 4), 4 * count);
}

static inline int read_ipv4(const __u8 *front, __u32 length, struct header *header)
{
	struct flow *flow = &header->flow;
	__u32 words = (front[0] & 0xf) * 4, at = words, all = number16(front + 2), end = length;

	if (words < IPV4_LEAST || words > length)
		return 0;
	header->dscp = front[1] >> 2;
	/* All bits except "don't fragment". */
	header->is_fragment = (number16(front + 6) & 0x3fff) != 0;
	copy_words(flow->source + 12, front + 12, 1);
	copy_words(flow->destination + 12, front + 16, 1);
	flow->source[10] = flow->source[11] = 0xff;
	flow->destination[10] = flow->destination[11] = 0xff;
	flow->protocol = front[9];
	/* Super-packets of more than 64 kB have a length field of 0. */
	if (all >= words && all < end)
		end = all;
	if (flow->protocol == AUTHENTICATION && at + AUTHENTICATION_LEAST <= end) {
		const __u8 *extension = field(front, at);
		__u32 size = extension_length(AUTHENTICATION, extension);

		if (size >= AUTHENTICATION_LEAST && at + size <= end) {
			flow->protocol = extension[0];
			at += size;
		}
	}
	if (!header->is_fragment) {
		header->stream = stream_of_protocol(flow->protocol);
		read_transport(front, at, end, header);
	}
	return 1;
}

/* Whether ICMPv6 of this type is link control. Forwarded packets are not. */
static inline int is_link_control(const __u8 *front, __u8 type)
{
	if (front[7] == 255)
		return type >= 133 && type <= 137;
	return front[7] == 1 && front[24] == 0xff && front[25] == 2 && type >= 130 && type <= 143;
}

static inline int read_ipv6(const __u8 *front, __u32 length, struct header *header)
{
	struct flow *flow = &header->flow;
	__u32 at = IPV6_HEADER, end = length, payload = number16(front + 4);
	__u8 kind = front[6];

	if (length < IPV6_HEADER)
		return 0;
	header->dscp = (front[0] & 0xf) << 2 | front[1] >> 6;
	copy_words(flow->source, front + 8, 4);
	copy_words(flow->destination, front + 24, 4);
	if (payload && IPV6_HEADER + payload < end)
		end = IPV6_HEADER + payload;
	for (int count = 0; count < MAX_EXTENSIONS; count++) {
		const __u8 *extension = field(front, at);
		__u32 least = kind == AUTHENTICATION ? AUTHENTICATION_LEAST : EXTENSION_LEAST;
		__u32 size = extension_length(kind, extension);

		/* The chain of headers cannot be followed further: the protocol is this header's own number. */
		if (!size || size < least || at + size > end || at + size > FRONT ||
		    (kind == HOP_BY_HOP && count > 0)) {
			if (size)
				end = 0;
			break;
		}
		if (kind == FRAGMENT && number16(extension + 2) & 0xfff9)
			header->is_fragment = 1;
		kind = extension[0];
		at += size;
	}
	flow->protocol = kind;
	if (!header->is_fragment) {
		header->stream = stream_of_protocol(kind);
		read_transport(front, at, end, header);
		if (kind == ICMPV6 && at < FRONT && at < end)
			header->is_link_control = is_link_control(front, *field(front, at));
	}
	return 1;
}

/* Parses the front of a packet from its IP header on: `length` bytes, at most FRONT. Returns whether it is
 * IP. */
static inline int read_header(const __u8 *front, __u32 length, struct header *header)
{
	__builtin_memset(header, 0, sizeof(*header));
	if (length < IPV4_LEAST || length > FRONT)
		return 0;
	if (front[0] >> 4 == 4)
		return read_ipv4(front, length, header);
	if (front[0] >> 4 == 6)
		return read_ipv6(front, length, header);
	return 0;
}

/* The offset of the content of an Ethernet frame, and its EtherType. */
struct content {
	__u32 at;
	__u16 ether_type;
};

/* An EtherType below MIN_ETHER_TYPE is a length: the frame is one of 802.2, for which Linux has this number. */
#define MIN_ETHER_TYPE 0x600
#define ETHER_TYPE_802_2 0x0004
/* For a frame that ends before its content. */
#define ETHER_TYPE_CUT 0xffff

static inline int is_ip(__u16 ether_type)
{
	return ether_type == 0x0800 || ether_type == 0x86dd;
}

/* Whether this EtherType is that of a VLAN tag: 802.1Q, 802.1ad, or 0x9100 of older equipment. */
static inline int is_tag(__u16 ether_type)
{
	return ether_type == 0x8100 || ether_type == 0x88a8 || ether_type == 0x9100;
}

/* Skips at most MAX_TAGS tags in the first `length` bytes of an Ethernet frame (Header::of_ethernet). */
static inline struct content content_of(const __u8 *front, __u32 length)
{
	struct content content = { .at = ETHERNET_HEADER, .ether_type = ETHER_TYPE_CUT };

	if (length < ETHERNET_HEADER)
		return content;
	content.ether_type = number16(front + ETHERNET_HEADER - 2);
	for (int tag = 0; tag < MAX_TAGS && is_tag(content.ether_type); tag++) {
		if (content.at + TAG > length) {
			content.ether_type = ETHER_TYPE_CUT;
			return content;
		}
		content.ether_type = number16(field(front, content.at + TAG - 2));
		content.at += TAG;
	}
	if (content.ether_type < MIN_ETHER_TYPE)
		content.ether_type = ETHER_TYPE_802_2;
	return content;
}

/* Whether packets of this EtherType are link control. All others that are not IP, such as PPPoE sessions, MPLS
 * and frames with more than MAX_TAGS tags, carry the traffic of other hosts. */
static inline int is_link_protocol(__u16 ether_type)
{
	switch (ether_type) {
	case ETHER_TYPE_802_2: /* includes STP */
	case 0x0806: /* ARP */
	case 0x8035: /* RARP */
	case 0x8809: /* LACP */
	case 0x8863: /* PPPoE discovery */
	case 0x888e: /* 802.1X */
	case 0x88cc: /* LLDP */
	case 0x88f7: /* PTP */
	case 0x8902: /* CFM */
		return 1;
	default:
		return 0;
	}
}

static inline int is_within(__u16 port, const struct rule *rule)
{
	return port >= rule->from && port <= rule->to;
}

static inline __u64 number64(const __u8 *bytes)
{
	return (__u64)number32(bytes) << 32 | number32(bytes + 4);
}

/* The first `length` of 64 bits; the others are cleared. */
static inline __u64 leading(__u64 bits, __u64 length)
{
	if (!length)
		return 0;
	return length < 64 ? bits >> (64 - length) << (64 - length) : bits;
}

static inline int begins_with(const __u8 *address, const struct rule *rule)
{
	__u64 length = rule->length;

	return leading(number64(address), length) == rule->from &&
	       leading(number64(address + 8), length > 64 ? length - 64 : 0) == rule->to;
}

static inline int condition_holds(const struct rule *rule, const struct header *header)
{
	const struct flow *flow = &header->flow;
	__u64 at_source = rule->condition & AT_SOURCE, at_destination = rule->condition & AT_DESTINATION;

	switch (rule->condition & CONDITION) {
	case ANY:
		return 1;
	case PROTOCOL:
		return flow->protocol == rule->from;
	case DSCP:
		return rule->from >> (header->dscp & 63) & 1;
	case PORT:
		return (at_source && is_within(flow->source_port, rule)) ||
		       (at_destination && is_within(flow->destination_port, rule));
	case IS_UPDATE:
		return header->is_update;
	case ADDRESS:
		return (at_source && begins_with(flow->source, rule)) ||
		       (at_destination && begins_with(flow->destination, rule));
	default:
		return 0;
	}
}

static inline int holds(const struct rule *rule, const struct header *header)
{
	return condition_holds(rule, header) != !!(rule->condition & NOT);
}

/* The first rule that holds decides. A packet without such a rule is drop-averse, and so is a fragment. A packet
 * that looks like a stream is drop-averse, too, unless the rule has `force`. */
static inline enum class class_of(struct header *header, const struct rule *rules, __u64 count)
{
	int fails = 0;

	header->is_guarded = 0;
	if (header->is_fragment)
		return DROP_AVERSE;
	for (__u32 at = 0; at < MAX_RULES && at < count; at++) {
		const struct rule *rule = &rules[at];

		if (!fails && !holds(rule, header))
			fails = 1;
		if (rule->outcome == OUTCOME_AND)
			continue;
		if (fails) {
			fails = 0;
			continue;
		}
		if (rule->outcome == OUTCOME_DROP_AVERSE)
			return DROP_AVERSE;
		header->is_guarded = rule->outcome == OUTCOME_AOI && !header->is_update;
		return header->is_guarded && header->stream ? DROP_AVERSE : AOI;
	}
	return DROP_AVERSE;
}

#endif
