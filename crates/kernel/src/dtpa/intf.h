/* The interface of the program and its loader: settings (law.h) and the values of maps. Numbers are
 * 64 bits wide, so that the loader reads a value as a row of them. */
#ifndef FRESHLINE_DTPA_INTF_H
#define FRESHLINE_DTPA_INTF_H

#include "../kernel.h"
#include "law.h"

/* The map `counters`: one number per processor, over all connections. */
enum counter {
	/* Connections opened with it. */
	CONNECTIONS,
	/* Segments with data, including retransmissions. */
	SENT,
	TIMEOUTS,
	FAST_RETRANSMITS,
	COUNTERS,
};

/* A row of the list of connections. */
struct row {
	struct address remote;
	__u64 remote_port;
	__u64 local_port;
	/* The congestion window in segments, and their size in bytes. */
	__u64 window;
	__u64 segment;
	__u64 sent;
	__u64 timeouts;
	__u64 fast_retransmits;
	__u64 srtt_us;
	__u64 period_us;
};

#endif
