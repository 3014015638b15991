/* The map `counters`, with one value per processor. A program defines the number of counters
 * beforehand: COUNTERS, the last entry of its enum. */
#ifndef FRESHLINE_COUNTERS_H
#define FRESHLINE_COUNTERS_H

#include "kernel.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static inline void count_many(__u32 counter, __u64 many)
{
	__u64 *sum = bpf_map_lookup_elem(&counters, &counter);

	if (sum)
		*sum += many;
}

static inline void count(__u32 counter)
{
	count_many(counter, 1);
}

#endif
