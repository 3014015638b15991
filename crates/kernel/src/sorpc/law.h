/* SORPC in integers, for BPF and, by the test that holds it against freshline-core's law, for the
 * host: Im, PhD thesis, Seoul National University, 2015, equation 3.1 and section 3.3.2.
 *
 *     SOR = queued / size,     data is bulk where SOR >= SORth
 *
 * Sizes are in bytes and fit into 31 bits, as the kernel's do: so no product overflows. */
#ifndef FRESHLINE_SORPC_LAW_H
#define FRESHLINE_SORPC_LAW_H

#include <linux/types.h>

/* How soon a packet leaves. */
enum band {
	/* Before all others. */
	URGENT,
	/* If the urgent band is empty: UDP from sockets that send super-packets. */
	BATCHED,
	/* If the other bands are empty. */
	BULK,
	BANDS,
};

/* The band of data from a send buffer, by what is in it and what it holds. */
static inline enum band sorpc_band(__u64 queued, __u64 size, __u64 threshold_milli)
{
	return queued * 1000 >= threshold_milli * size ? BULK : URGENT;
}

#endif
