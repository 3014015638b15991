/* The interface of the program and its loader: settings and the values of maps. Numbers are 64 bits
 * wide, so that the loader reads a value as a row of them. */
#ifndef FRESHLINE_SORPC_INTF_H
#define FRESHLINE_SORPC_INTF_H

#include "../kernel.h"
#include "law.h"

/* The maximum length of the attributes of a queueing discipline, in bytes. */
#define MAX_FOUND 1024
/* The length of a device's name, with the zero at its end (IFNAMSIZ). */
#define NAME_LENGTH 16

/* The number of bits of a priority that queueing disciplines with their own bands read, such as
 * pfifo_fast (TC_PRIO_MAX). */
#define PRIORITY_BITS 4

/* The maximum length of a segment's headers, in bytes: Ethernet with two tags, IPv6, TCP with
 * options. */
#define HEADERS 128

/* The constants of a program. */
struct attachment {
	/* SORth, in thousandths. */
	__u64 threshold_milli;
	/* The priorities of urgent packets, of the first batched flow and of the first bulk flow. */
	__u64 urgent;
	__u64 batched;
	__u64 bulk;
	/* The number of further priorities of batched flows, and of bulk flows: a power of two,
	 * minus one. Priorities of a band have the same last PRIORITY_BITS. */
	__u64 spread;
	/* The largest packet in bytes that the splitter of a class accepts, and the priority of
	 * larger ones, whose class has no splitter; 0 without a shaper. */
	__u64 largest;
	__u64 oversize;
	/* Whether only packets of the cgroup in the map `only` may be bulk. */
	__u64 confined;

	/* The rest is for later loaders. The network namespace, by its inode, and the device in it,
	 * by its index and by the name that it had. */
	__u64 netns;
	__u64 device;
	/* The shaping rate, bit/s; 0 without a shaper. */
	__u64 rate;
	/* The former root queueing discipline: its handle and its netlink attributes, which are
	 * empty if the kernel chose it itself. */
	__u64 found_handle;
	__u64 found_length;
	unsigned char found[MAX_FOUND];
	unsigned char name[NAME_LENGTH];
};

/* The map `bands`: the packets that were put into a band, per processor. */
struct account {
	/* Each segment of a super-packet counts. */
	__u64 packets;
	__u64 bytes;
};

/* The entry in the map `flows` of a TCP socket that has sent data. */
struct flow {
	/* The send buffer and the band at the last packet: the filled part and the size of the
	 * buffer, bytes. */
	__u64 queued;
	__u64 size;
	__u64 band;
	/* When that packet was sent, in ns of the monotonic clock. */
	__u64 sent_ns;
	/* The packets that it has sent, in all bands. */
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
	/* The current smoothed and minimum round trips, in us (the latter 2^32 - 1 before the first
	 * one), and the delivery rate, in bytes/s. */
	__u64 rtt_us;
	__u64 min_rtt_us;
	__u64 rate;
	/* The time since its last packet, in ns. */
	__u64 idle_ns;
};

#endif
