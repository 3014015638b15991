/* DRWA in integers, like freshline-core's receiver::Drwa:
 *
 *     rwnd = lambda  RTTm / RTT  w                                  (2.13)
 *
 * It is the baseline of the thesis. It uses RTAC's state and RTAC's samples. */
#ifndef FRESHLINE_DRWA_H
#define FRESHLINE_DRWA_H

#include "rtac.h"

/* The default of the core's DrwaParams. */
#define LAMBDA 3

/* Data arrived `sample_ns` after the ack that it answers was sent. */
static inline void drwa_on_round_trip(struct rtac *law, struct remote *remote, __u64 now_ns,
				      __u64 sample_ns)
{
	rtac_take(law, remote, now_ns, sample_ns);
	/* RTTm is the minimum sample, not the minimum of their mean. */
	rtac_learn(remote, sample_ns);
}

/* These bytes times RTTm / RTT. */
static inline __u64 drwa_shrunk(__u64 bytes, const struct rtac *law, const struct remote *remote)
{
	__u64 ratio = (smaller(remote->base_ns, law->rtt_ns) << PART_BITS) / (law->rtt_ns | 1);

	return smaller(bytes, LARGEST_WINDOW) * ratio >> PART_BITS;
}

/* New data arrived. Returns whether a round trip is over. */
static inline int drwa_on_arrival(struct rtac *law, struct remote *remote, __u64 now_ns,
				  __u64 bytes, __u64 segment)
{
	if (!rtac_ends_round(law, remote, now_ns, bytes))
		return 0;
	law->rate = smaller(law->flight, LARGEST_WINDOW) * NS_PER_S / (law->rtt_ns | 1);
	law->queue = rtac_queue(law->flight, law->rtt_ns, remote->base_ns);
	law->window = rtac_bound(LAMBDA * drwa_shrunk(law->flight, law, remote), segment);
	return 1;
}

#endif
