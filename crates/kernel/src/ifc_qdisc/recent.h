/* The rate of departures in the last seconds, from two counts, for BPF and for the host. The loader makes
 * freshline-core's router::RecentRate of them. */
#ifndef FRESHLINE_IFC_RECENT_H
#define FRESHLINE_IFC_RECENT_H

#include <linux/types.h>

/* RecentRate::WINDOW. */
#define RECENT_WINDOW_NS 2000000000ULL

struct recent {
	/* The start of the current window. */
	__u64 began_ns;
	/* Bytes sent in the current window, and in the previous one. */
	__u64 now;
	__u64 before;
};

/* Counts bytes that left at `at_ns`, which never decreases from call to call. */
static inline void recent_count(struct recent *recent, __u64 at_ns, __u64 bytes)
{
	__u64 passed = (at_ns - recent->began_ns) / RECENT_WINDOW_NS;

	if (passed == 1) {
		recent->began_ns += RECENT_WINDOW_NS;
		recent->before = recent->now;
	} else if (passed) {
		recent->began_ns = at_ns;
		recent->before = 0;
	}
	if (passed)
		recent->now = 0;
	recent->now += bytes;
}

#endif
