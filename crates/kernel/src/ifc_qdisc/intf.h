/* What the program and its loader share: settings and the values of maps. Numbers are 64 bits wide, so
 * that the loader reads a value as a row of them. */
#ifndef FRESHLINE_IFC_INTF_H
#define FRESHLINE_IFC_INTF_H

#include "packet.h"

/* The map `settings`: they may change while it runs. */
struct settings {
	/* bit/s, at least 1. */
	__u64 rate;
	struct scheduler_settings scheduler;
	/* Of how many flows an update may wait: no more than the map has room for. */
	__u64 most_flows;
	/* What the drop-averse queue holds: packets, no more than its map has room for, and bytes. */
	__u64 most_packets;
	__u64 most_bytes;
	__u64 rules_count;
	struct rule rules[MOST_RULES];
};

/* What is no IP waits apart from both classes. For the scheduler it is drop-averse, of which it leaves
 * first: so addresses are resolved in time, and a flood does not take the updates' share. */
#define BESIDE CLASSES
#define QUEUES (CLASSES + 1)
/* How many of such packets may wait; a power of two. */
#define MOST_BESIDE 64

/* The map `books`: a row for each class, and one for what is no IP. Bytes count from the IP header on.
 * Each segment of a super-packet counts. What came has left, was dropped, waits, or is on the link:
 * packets_in = packets_out + replaced + queue_full + vanished + waiting + on_link. */
struct account {
	__u64 packets_in;
	__u64 bytes_in;
	__u64 packets_out;
	__u64 bytes_out;
	__u64 replaced;
	__u64 queue_full;
	/* The kernel dropped all that waited: the device went down, or the queue was removed. */
	__u64 vanished;
	__u64 waiting_packets;
	__u64 waiting_bytes;
	__u64 on_link_packets;
	__u64 on_link_bytes;
};

/* The map `about`, which has one value. */
struct about {
	/* Whether it is in its place: not once the device is gone, or somebody put another root there. */
	__u64 is_in_place;
	/* When it was put in place, ns since the start of the host, the time asleep included. */
	__u64 since_boot_ns;
	/* Flows that were new to the map `flows`. */
	__u64 flows_begun;
	/* Super-packets that came. */
	__u64 super_packets;
};

/* How long the attributes of a queueing discipline may be, in bytes. */
#define LONGEST_FOUND 1024

/* The map `found`, for loaders that come later: the root queueing discipline that was configured before,
 * by its handle and its attributes of netlink, of which there are none if it was the kernel's choice. */
struct found {
	__u64 handle;
	__u64 length;
	unsigned char attributes[LONGEST_FOUND];
};

/* The map `flows`: the newest flows, by their `struct flow`. */
struct flow_account {
	__u64 class;
	__u64 packets_in;
	__u64 bytes_in;
	__u64 packets_out;
	__u64 bytes_out;
	__u64 replaced;
	__u64 queue_full;
	/* How long its packets waited. */
	__u64 sojourns[FLOW_SOJOURN_BUCKETS];
};

#endif
