/* What the programs and their loaders share: settings and the values of maps. Every field is
 * 64 bits wide, so that a loader reads a value as a row of numbers. */
#ifndef FRESHLINE_RECEIVER_INTF_H
#define FRESHLINE_RECEIVER_INTF_H

#include "rtac.h"

enum window_law {
	RTAC,
	DRWA,
};

/* The constants of a program. */
struct settings {
	/* An enum window_law. */
	__u64 law;
	struct rtac_settings rtac;
	/* K set by hand, as a double: for the loader that shows it, not for the programs. */
	__u64 slope_bits;
	/* The number of the cgroup that it is attached to, or of the network namespace that the
	 * device is in. */
	__u64 within;
};

/* The map `peers`, by addresses (`struct address` of kernel.h): what is known of a remote host. */
struct peer {
	struct remote remote;
	/* As of the connection that was heard last: an enum queue_owner, BDP that its window followed
	 * from, bytes (0 before the first), and its largest segment, bytes. */
	__u64 owner;
	__u64 held;
	__u64 segment;
	/* Smoothed round trip, ns. */
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
	/* Incoming segments with data of connections that are not controlled: they began before, or
	 * have no timestamps, or keep their windows. */
	UNSEEN,
	COUNTERS,
};

#endif
