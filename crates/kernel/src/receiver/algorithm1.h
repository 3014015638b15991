/* Algorithm 1 of the thesis as printed, in integers, like freshline-core's receiver::Algorithm1:
 *
 *     rwnd = sqrt(a)  RTT / RTTm  1 / sqrt(K (Q + 1)),   Q = (RTT - RTTm) w / RTT
 *
 * K is set manually, each connection has its own RTTm, there are no tests, and w counts bytes that
 * the application has copied. It uses RTAC's state. */
#ifndef FRESHLINE_ALGORITHM1_H
#define FRESHLINE_ALGORITHM1_H

#include "rtac.h"

/* RTT / RTTm may be far below 1 with a large Delta: the number of its fraction bits. */
#define RATIO_BITS 20
#define LARGEST_RATIO (1024ULL << RATIO_BITS)

/* Data arrived `sample_ns` after the ack that it answers was sent. The remote host's RTTm is only
 * for display. */
static inline void algorithm1_on_round_trip(struct rtac *law, struct remote *remote,
					    __u64 sample_ns)
{
	law->rtt_ns = law->rtt_ns ? (law->rtt_ns * 7 + sample_ns) / 8 : sample_ns;
	law->own_base_ns = law->own_base_ns ? smaller(law->own_base_ns, sample_ns) : sample_ns;
	rtac_learn(remote, sample_ns);
}

/* The application has copied data. Returns whether a round trip is over. */
static inline int algorithm1_on_read(struct rtac *law, const struct remote *remote, __u64 now_ns,
				     __u64 bytes, __u64 segment,
				     const struct rtac_settings *settings)
{
	__u64 base_ns = law->own_base_ns + settings->delta_ns;
	__u64 ratio, window;

	if (!law->own_base_ns || !rtac_ends_round(law, remote, now_ns, bytes))
		return 0;
	ratio = smaller((law->rtt_ns << RATIO_BITS) / (base_ns | 1), LARGEST_RATIO);
	law->rate = smaller(law->flight, LARGEST_WINDOW) * NS_PER_S / (law->rtt_ns | 1);
	law->queue = rtac_queue(law->flight, law->rtt_ns, base_ns);
	law->has_queue = rtac_has_queue(rtac_stretch(law->rtt_ns, base_ns), settings);
	window = rtac_window_by_hand(law->queue, segment, settings) * ratio >> RATIO_BITS;
	law->window = smaller(larger(window, segment), LARGEST_WINDOW);
	return 1;
}

#endif
