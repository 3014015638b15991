/* The interface between the program and its loader: settings and values of maps. All numbers have 64 bits, so
 * that the loader reads a value as a row of numbers. */
#ifndef FRESHLINE_IFC_INTF_H
#define FRESHLINE_IFC_INTF_H

#include "packet.h"
#include "recent.h"

/* The map `settings`; it may change while the discipline runs. */
struct settings {
	/* bit/s; 0 for the device's own rate: a packet leaves whenever the device requests one. */
	__u64 rate;
	struct scheduler_settings scheduler;
	/* The maximum number of flows with a queued update, at most the size of the map. */
	__u64 max_flows;
	/* The limits of all drop-averse lanes together: packets, at most the size of their map, and bytes. */
	__u64 max_packets;
	__u64 max_bytes;
	/* The number of lanes, at most the size of their map; 1 for FIFO and CoDel. */
	__u64 lanes;
	/* The number of bytes that a lane sends per turn, above zero. */
	__u64 quantum;
	/* Whether, beyond a limit, the oldest packets of the longest lane are dropped, not the arriving one. */
	__u64 drops_longest;
	/* The CoDel settings of each lane. */
	struct codel_settings codel;
	struct framing framing;
	/* Whether updates take turns by source host; otherwise by flow. */
	__u64 by_host;
	__u64 rules_count;
	struct rule rules[MAX_RULES];
};

/* Link control packets (is_link_protocol, neighbour discovery, MLD) have their own queue. The scheduler counts
 * them as drop-averse. Among the drop-averse packets they leave first, but at most every second turn: so
 * addresses are resolved in time, and a flood of link control packets takes neither the updates' share nor all
 * of the drop-averse share. */
#define OTHER CLASSES
#define QUEUES (CLASSES + 1)
/* The maximum number of queued link control packets; a power of two. */
#define MAX_OTHER 64

/* The number of rows of `books`, a power of two; the last row is unused. */
#define BOOKS 4

/* The map `books`: a row per class, and one for OTHER. Bytes count from the IP header on, and each segment of
 * a super-packet counts as a packet. Each packet that arrived has left, was dropped, is queued, or is on the
 * link:
 * packets_in = packets_out + replaced + queue_full + congestion + vanished + waiting + on_link. */
struct account {
	__u64 packets_in;
	__u64 bytes_in;
	__u64 packets_out;
	__u64 bytes_out;
	__u64 replaced;
	__u64 queue_full;
	/* Dropped by CoDel. */
	__u64 congestion;
	/* Dropped with the whole queue by the kernel: the device went down, or the discipline was removed. */
	__u64 vanished;
	__u64 waiting_packets;
	__u64 waiting_bytes;
	__u64 on_link_packets;
	__u64 on_link_bytes;
	/* The recent rate of departures, by the clock that includes the time in suspend. */
	struct recent recent;
};

/* The only value of the map `about`. */
struct about {
	/* Whether it is installed: no longer once the device is gone, or another root discipline replaced it. */
	__u64 is_in_place;
	/* When it was installed, in ns since the start of the host, including the time in suspend. */
	__u64 since_boot_ns;
	/* The number of flows that were given a row in the map `flows`. */
	__u64 flows_begun;
	/* The number of super-packets that arrived. */
	__u64 super_packets;
};

/* The maximum length of the attributes of a queueing discipline, in bytes. */
#define MAX_FOUND 1024

/* The map `found`, for later commands: the previous root discipline, by its handle and its netlink
 * attributes, which are empty if it was the kernel's default. */
struct found {
	__u64 handle;
	__u64 length;
	unsigned char attributes[MAX_FOUND];
};

/* A row of the map `flows`: a recent flow. */
struct flow_account {
	struct flow flow;
	/* The number of the flow, from 1 over all flows; 0 in an unused row. */
	__u64 number;
	/* The arrival time of its last packet, by the monotonic clock. */
	__u64 last_ns;
	__u64 class;
	/* The stream protocol that its packets have looked like; 0 for none. */
	__u64 stream;
	__u64 packets_in;
	__u64 bytes_in;
	__u64 packets_out;
	__u64 bytes_out;
	__u64 replaced;
	__u64 queue_full;
	__u64 congestion;
	/* The arrival time of its first packet, and the recent rate of departures; both by the clock that
	 * includes the time in suspend. */
	__u64 first_ns;
	struct recent recent;
	/* The sojourn times of its packets, in buckets. */
	__u64 sojourns[FLOW_SOJOURN_BUCKETS];
};

#endif
