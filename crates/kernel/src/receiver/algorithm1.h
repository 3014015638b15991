/* Algorithm 1 of the thesis as printed, in integers, as freshline-core's receiver::Algorithm1:
 *
 *     rwnd = sqrt(a)  RTT / RTTm  1 / sqrt(K (Q + 1)),   Q = (RTT - RTTm) w / RTT
 *
 * K is set by hand, each connection has its own RTTm, nothing is tested, and w counts what the
 * program has copied. It keeps its state in RTAC's. */
#ifndef FRESHLINE_ALGORITHM1_H
#define FRESHLINE_ALGORITHM1_H

#include "rtac.h"

/* RTT / RTTm may be far below 1 with a large Delta: its fraction has so many bits. */
#define RATIO_BITS 20
#define LARGEST_RATIO (1024ULL << RATIO_BITS)

/* Data came `sample_ns` after the ack that it answers was sent. The remote host's RTTm is only
 * shown. */
static inline void algorithm1_on_round_trip(struct rtac *law, struct remote *remote,
					    __u64 sample_ns)
{
	law->rtt_ns = law->rtt_ns ? (law->rtt_ns * 7 + sample_ns) / 8 : sample_ns;
	law->own_base_ns = law->own_base_ns ? smaller(law->own_base_ns, sample_ns) : sample_ns;
	rtac_learn(remote, sample_ns);
}

/* The program has copied data. Tells whether a round trip is over. */
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
