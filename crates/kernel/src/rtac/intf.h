/* What the program and its loader share: settings and the values of maps. Every field is 64 bits
 * wide, so that the loader reads a value as a row of numbers. */
#ifndef FRESHLINE_RTAC_INTF_H
#define FRESHLINE_RTAC_INTF_H

#include "law.h"

/* An IPv6 address, or an IPv4 address mapped into IPv6, in network byte order. */
struct address {
	__u32 words[4];
};

/* The map `peers`: what is known of a remote address. */
struct peer {
	struct remote remote;
	/* As of the connection that was heard last: smoothed round trip, ns. */
	__u64 rtt_ns;
	/* Delivery rate, bytes per second. */
	__u64 rate;
	/* Queue that it is thought to have in the network, bytes. */
	__u64 queue;
	/* Window that it was given, bytes. */
	__u64 window;
	/* How many round trips of connections to this address are over. */
	__u64 rounds;
	/* When the last was over, ns of the monotonic clock. */
	__u64 heard_ns;
};

/* The map `counters`: one number for each processor. */
enum counter {
	/* Outgoing segments that were looked at. */
	SEGMENTS,
	/* Round trips measured. */
	ROUND_TRIPS,
	/* Windows set. */
	WINDOWS,
	/* Windows that the kernel refused to set. */
	REFUSED,
	/* New connections that came under control. */
	CONNECTIONS,
	/* Connections taken over that were there before. */
	ADOPTED,
	COUNTERS,
};

#endif
