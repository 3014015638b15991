/* The interface of the programs and their loaders: settings and the values of maps. Every field is
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
	/* The manual K as a double: for the loader that displays it, not for the programs. */
	__u64 slope_bits;
	/* The ID of the cgroup that it is attached to, or of the network namespace of the
	 * device. */
	__u64 within;
};

/* The map `peers`, by addresses (`struct address` of kernel.h): the state of a remote host. */
struct peer {
	struct remote remote;
	/* Of the connection with the latest segment: an enum queue_owner, the BDP in bytes from
	 * which its window was derived (0 before the first one), and its largest segment in
	 * bytes. */
	__u64 owner;
	__u64 held;
	__u64 segment;
	/* Smoothed round trip, in ns. */
	__u64 rtt_ns;
	/* Delivery rate, bytes per second. */
	__u64 rate;
	/* Estimated queue in the network, bytes. */
	__u64 queue;
	/* Advertised window, bytes. */
	__u64 window;
	/* The number of completed round trips of connections to this address. */
	__u64 rounds;
	/* The end of the last one, in ns of the monotonic clock. */
	__u64 heard_ns;
};

/* The map `counters`: one number per processor. */
enum counter {
	/* Outgoing segments inspected. */
	SEGMENTS,
	/* Round trips measured. */
	ROUND_TRIPS,
	/* Windows set. */
	WINDOWS,
	/* Windows that the kernel refused to set. */
	REFUSED,
	/* New connections under control. */
	CONNECTIONS,
	/* Existing connections that were adopted. */
	ADOPTED,
	/* Incoming segments with data of connections without control: they are older than the
	 * control, have no timestamps, or keep their windows. */
	UNSEEN,
	COUNTERS,
};

#endif
