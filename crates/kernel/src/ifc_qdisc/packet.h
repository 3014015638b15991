/* The front of an IP packet, and its class, for BPF and, by the test that holds it against
 * freshline-core's Header and Classifier, for the host. Whatever the bytes are, reading them ends and
 * stays inside them: what cannot be read is left at zero. */
#ifndef FRESHLINE_IFC_PACKET_H
#define FRESHLINE_IFC_PACKET_H

#include "law.h"

/* How much of a packet is read at most (Header::SNAP_LEN, a power of two), and the memory that it is in,
 * with room for whatever `field` may give. */
#define FRONT 128
#define LONGEST_FIELD 16
#define FRONT_MEMORY (2 * FRONT + LONGEST_FIELD)
/* So many extension headers fit, and one more. */
#define MOST_EXTENSIONS 12
#define MOST_RULES 64

#define IPV4_LEAST 20
#define IPV6_HEADER 40
#define EXTENSION_LEAST 8
#define AUTHENTICATION_LEAST 12
#define UDP_HEADER 8
/* Of an update: magic, version, kind, session (the book's page on the protocol). */
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
#define SCTP 132
#define UDP_LITE 136

/* Who sends to whom. Addresses as on the wire, IPv4 mapped into IPv6; ports as numbers. All bytes
 * count, as it is a key of maps. */
struct flow {
	__u8 source[16];
	__u8 destination[16];
	__u16 source_port;
	__u16 destination_port;
	__u8 protocol;
	__u8 zero[3];
};

struct header {
	struct flow flow;
	__u8 dscp;
	__u8 is_fragment;
	__u8 is_update;
};

/* What a header may be. */
enum condition {
	ANY,
	/* Of the protocol `from`. */
	PROTOCOL,
	/* With a code point of the set `from`, a bit each. */
	DSCP,
	/* With a port from `from` to `to` at either end. */
	PORT,
	IS_UPDATE,
};

struct rule {
	__u64 condition;
	__u64 class;
	__u64 from;
	__u64 to;
};

/* The bytes from `at` on, at most FRONT. That is said once more, by a mask that the compiler does not
 * see through: the verifier forgets comparisons that were made of copies. */
static inline const __u8 *field(const __u8 *front, __u32 at)
{
	__asm__("" : "+r"(at));
	return front + (at & (2 * FRONT - 1));
}

static inline __u16 number16(const __u8 *bytes)
{
	return (__u16)bytes[0] << 8 | bytes[1];
}

/* How long an extension header says that it is; 0 if it is none, or FRAGMENT is not followed. */
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

/* Reads what is behind the IP header and its extensions, from `at` to `end`. */
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
	if (protocol != UDP || at + UDP_HEADER + UPDATE_FRONT > end)
		return;
	payload = transport + UDP_HEADER;
	header->is_update = payload[0] == 'F' && payload[1] == 'L' && payload[3] == UPDATE_KIND;
}

static inline int read_ipv4(const __u8 *front, __u32 length, struct header *header)
{
	struct flow *flow = &header->flow;
	__u32 words = (front[0] & 0xf) * 4, at = words, all = number16(front + 2), end = length;

	if (words < IPV4_LEAST || words > length)
		return 0;
	header->dscp = front[1] >> 2;
	/* All but "don't fragment". */
	header->is_fragment = (number16(front + 6) & 0x3fff) != 0;
	for (int byte = 0; byte < 4; byte++) {
		flow->source[12 + byte] = front[12 + byte];
		flow->destination[12 + byte] = front[16 + byte];
	}
	flow->source[10] = flow->source[11] = 0xff;
	flow->destination[10] = flow->destination[11] = 0xff;
	flow->protocol = front[9];
	/* Super-packets of more than 64 kB have no length. */
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
	if (!header->is_fragment)
		read_transport(front, at, end, header);
	return 1;
}

static inline int read_ipv6(const __u8 *front, __u32 length, struct header *header)
{
	struct flow *flow = &header->flow;
	__u32 at = IPV6_HEADER, end = length, payload = number16(front + 4);
	__u8 kind = front[6];

	if (length < IPV6_HEADER)
		return 0;
	header->dscp = (front[0] & 0xf) << 2 | front[1] >> 6;
	for (int byte = 0; byte < 16; byte++) {
		flow->source[byte] = front[8 + byte];
		flow->destination[byte] = front[24 + byte];
	}
	if (payload && IPV6_HEADER + payload < end)
		end = IPV6_HEADER + payload;
	for (int count = 0; count < MOST_EXTENSIONS; count++) {
		const __u8 *extension = field(front, at);
		__u32 least = kind == AUTHENTICATION ? AUTHENTICATION_LEAST : EXTENSION_LEAST;
		__u32 size = extension_length(kind, extension);

		/* Where it cannot be followed, its own number is what is known. */
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
	if (!header->is_fragment)
		read_transport(front, at, end, header);
	return 1;
}

/* Reads the front of a packet from its IP header on: so many bytes, at most FRONT. Whether it is IP. */
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

static inline int holds(const struct rule *rule, const struct header *header)
{
	const struct flow *flow = &header->flow;

	switch (rule->condition) {
	case ANY:
		return 1;
	case PROTOCOL:
		return flow->protocol == rule->from;
	case DSCP:
		return rule->from >> (header->dscp & 63) & 1;
	case PORT:
		return (flow->source_port >= rule->from && flow->source_port <= rule->to) ||
		       (flow->destination_port >= rule->from && flow->destination_port <= rule->to);
	case IS_UPDATE:
		return header->is_update;
	default:
		return 0;
	}
}

/* The first rule that holds decides; what none speaks of, and a fragment, is drop-averse. */
static inline enum class class_of(const struct header *header, const struct rule *rules, __u64 count)
{
	if (header->is_fragment)
		return DROP_AVERSE;
	for (__u32 at = 0; at < MOST_RULES && at < count; at++)
		if (holds(&rules[at], header))
			return rules[at].class == AOI ? AOI : DROP_AVERSE;
	return DROP_AVERSE;
}

#endif
