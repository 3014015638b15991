/* SORPC in integers, for BPF, and for the host in the test that compares it with freshline-core's
 * law: Im, PhD thesis, Seoul National University, 2015, equation 3.1 and section 3.3.2. It gives
 * the data of uploads the lowest priority: streams that keep their send buffers full.
 *
 *     SOR = queued / size,     data is bulk if SOR >= SORth
 *
 * Sizes are in bytes and fit into 31 bits, like the kernel's, so no product overflows. */
#ifndef FRESHLINE_SORPC_LAW_H
#define FRESHLINE_SORPC_LAW_H

#include <linux/types.h>

/* The priority of a packet. */
enum band {
	/* Before all others. */
	URGENT,
	/* If the urgent band is empty: UDP from sockets that send super-packets. */
	BATCHED,
	/* If the other bands are empty. */
	BULK,
	BANDS,
};

/* The band of data from a send buffer with `queued` of `size` bytes. */
static inline enum band sorpc_band(__u64 queued, __u64 size, __u64 threshold_milli)
{
	return queued * 1000 >= threshold_milli * size ? BULK : URGENT;
}

#endif
