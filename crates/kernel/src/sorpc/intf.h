/* What the program and its loader share: settings and the values of maps. Numbers are 64 bits wide,
 * so that the loader reads a value as a row of them. */
#ifndef FRESHLINE_SORPC_INTF_H
#define FRESHLINE_SORPC_INTF_H

#include "../kernel.h"
#include "law.h"

/* How long the attributes of a queueing discipline may be, in bytes. */
#define MAX_FOUND 1024
/* The name of a device, with the zero at its end (IFNAMSIZ). */
#define NAME_LENGTH 16

/* How many bits of a priority queueing disciplines read that have bands of their own, such as
 * pfifo_fast (TC_PRIO_MAX). */
#define PRIORITY_BITS 4

/* The headers of a segment at most, in bytes: Ethernet with two tags, IPv6, TCP with options. */
#define HEADERS 128

/* The constants of a program. */
struct attachment {
	/* SORth, in thousandths. */
	__u64 threshold_milli;
	/* The priorities of urgent packets, of the first batched flow and of the first bulk flow. */
	__u64 urgent;
	__u64 batched;
	__u64 bulk;
	/* The number of further priorities of batched flows, and of bulk flows: a power of two, less
	 * one. Those of a band are equal in their last PRIORITY_BITS. */
	__u64 spread;
	/* The largest packet in bytes that the splitter of a class takes, and the priority of larger
	 * ones, whose class has no splitter; 0 without a shaper. */
	__u64 largest;
	__u64 oversize;
	/* Whether only packets of the cgroup in the map `only` may be bulk. */
	__u64 confined;

	/* The rest is for loaders that come later. The network namespace, by its inode, and the
	 * device in it, by its number and by the name that it had. */
	__u64 netns;
	__u64 device;
	/* The rate to which is shaped, bit/s; 0 if it is not. */
	__u64 rate;
	/* The root queueing discipline that was configured before: its handle and its attributes of
	 * netlink, of which there are none if it was the kernel's own choice. */
	__u64 found_handle;
	__u64 found_length;
	unsigned char found[MAX_FOUND];
	unsigned char name[NAME_LENGTH];
};

/* The map `bands`: for each processor what was put into a band. */
struct account {
	/* Segments of super-packets count each. */
	__u64 packets;
	__u64 bytes;
};

/* What the map `flows` has of a TCP socket that has sent data. */
struct flow {
	/* The send buffer and the band as of the last packet: what is in it, what it holds, bytes. */
	__u64 queued;
	__u64 size;
	__u64 band;
	/* When that was sent, ns of the monotonic clock. */
	__u64 sent_ns;
	/* What it has sent, in all bands. */
	struct account sent;
	/* Its number among the flows that have been bulk; 0 before it was. */
	__u64 lane;
};

/* A row of the list of flows. */
struct row {
	struct address remote;
	__u64 remote_port;
	__u64 local_port;
	struct flow flow;
	/* Now: the smoothed and the minimum round trip, us (the latter 2^32 - 1 before the first), and the
	 * delivery rate, bytes/s. */
	__u64 rtt_us;
	__u64 min_rtt_us;
	__u64 rate;
	/* Since its last packet, ns. */
	__u64 idle_ns;
};

#endif
