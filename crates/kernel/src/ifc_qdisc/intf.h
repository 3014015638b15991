/* What the program and its loader share: settings and the values of maps. Numbers are 64 bits wide, so
 * that the loader reads a value as a row of them. */
#ifndef FRESHLINE_IFC_INTF_H
#define FRESHLINE_IFC_INTF_H

#include "packet.h"
#include "recent.h"

/* The map `settings`: they may change while it runs. */
struct settings {
	/* bit/s; 0 for the device's own: a packet leaves whenever the device asks for one. */
	__u64 rate;
	struct scheduler_settings scheduler;
	/* Of how many flows an update may wait: no more than the map has room for. */
	__u64 max_flows;
	/* What the drop-averse lanes hold together: packets, no more than their map has room for, and bytes. */
	__u64 max_packets;
	__u64 max_bytes;
	/* How many lanes there are, no more than their map has room for; 1 for FIFO and CoDel. */
	__u64 lanes;
	/* How many bytes a lane sends a turn, above zero. */
	__u64 quantum;
	/* Whether at their limit the longest lane loses its oldest packets, in place of the one that comes. */
	__u64 drops_longest;
	/* Of each lane. */
	struct codel_settings codel;
	struct framing framing;
	/* Whether updates take turns by source host, in place of by flow. */
	__u64 by_host;
	__u64 rules_count;
	struct rule rules[MAX_RULES];
};

/* Packets that keep the link working (is_link_protocol), neighbour discovery and MLD have a queue of their
 * own. For the scheduler they are drop-averse, of which they leave first, every second turn at most: so
 * addresses are resolved in time, and a flood takes neither the updates' share nor all of the others'. */
#define OTHER CLASSES
#define QUEUES (CLASSES + 1)
/* How many of such packets may wait; a power of two. */
#define MAX_OTHER 64

/* How many rows `books` has, a power of two: the last is nobody's. */
#define BOOKS 4

/* The map `books`: a row for each class, and one for OTHER. Bytes count from the IP header on.
 * Each segment of a super-packet counts. What came has left, was dropped, waits, or is on the link:
 * packets_in = packets_out + replaced + queue_full + congestion + vanished + waiting + on_link. */
struct account {
	__u64 packets_in;
	__u64 bytes_in;
	__u64 packets_out;
	__u64 bytes_out;
	__u64 replaced;
	__u64 queue_full;
	/* CoDel dropped them. */
	__u64 congestion;
	/* The kernel dropped all that waited: the device went down, or the queue was removed. */
	__u64 vanished;
	__u64 waiting_packets;
	__u64 waiting_bytes;
	__u64 on_link_packets;
	__u64 on_link_bytes;
	/* Of what left, by the clock that counts the time asleep. */
	struct recent recent;
};

/* The map `about`, which has one value. */
struct about {
	/* Whether it is in its place: not once the device is gone, or somebody put another root there. */
	__u64 is_in_place;
	/* When it was put in place, ns since the start of the host, the time asleep included. */
	__u64 since_boot_ns;
	/* Flows that had no row in the map `flows`. */
	__u64 flows_begun;
	/* Super-packets that came. */
	__u64 super_packets;
};

/* How long the attributes of a queueing discipline may be, in bytes. */
#define MAX_FOUND 1024

/* The map `found`, for loaders that come later: the root queueing discipline that was configured before,
 * by its handle and its attributes of netlink, of which there are none if it was the kernel's choice. */
struct found {
	__u64 handle;
	__u64 length;
	unsigned char attributes[MAX_FOUND];
};

/* The map `flows`: the newest flows. */
struct flow_account {
	struct flow flow;
	/* Counted from 1 over all flows; 0 of a row that has not been used. */
	__u64 number;
	/* When its last packet came, by the monotonic clock. */
	__u64 last_ns;
	__u64 class;
	/* Which stream its packets have looked like; 0 for none. */
	__u64 stream;
	__u64 packets_in;
	__u64 bytes_in;
	__u64 packets_out;
	__u64 bytes_out;
	__u64 replaced;
	__u64 queue_full;
	__u64 congestion;
	/* When its first packet came, and what left, both by the clock that counts the time asleep. */
	__u64 first_ns;
	struct recent recent;
	/* How long its packets waited. */
	__u64 sojourns[FLOW_SOJOURN_BUCKETS];
};

#endif
