/* RTAC in integers, for BPF and, by the test that holds it against freshline-core's law, for the
 * host: Im, PhD thesis, Seoul National University, 2015, Algorithm 1 and equations 2.6-2.14. Why
 * each step is as it is stands with that law; the steps here have the names and the order that
 * they have there.
 *
 *     rwnd = RTT / RTTm  BDP  sqrt((theta - 1) BDP / (Q + segment)),   Q = (RTT - RTTm) w / RTT
 *
 * Times are in ns, sizes in bytes, rates in bytes per second. Round trips are at most
 * LONGEST_RTT_NS (36 bits), sizes at most LARGEST_WINDOW (30 bits): so no product overflows. */
#ifndef FRESHLINE_RTAC_LAW_H
#define FRESHLINE_RTAC_LAW_H

#include <linux/types.h>

#define NS_PER_S 1000000000ULL
/* A longer round trip is taken for a timestamp that was misread. */
#define LONGEST_RTT_NS (60 * NS_PER_S)
/* TCP's largest window (RFC 7323, section 2.3). */
#define LARGEST_WINDOW (1ULL << 30)
/* Beyond this a rate has no place in a product with a round trip: 68 Gbit/s. */
#define LARGEST_RATE (1ULL << 33)

/* The defaults of the core's RtacParams. */
#define LEAST_SEGMENTS 4
#define BUCKET_NS (NS_PER_S / 5)
#define PATIENCE 4
#define DRAIN_EVERY_NS (10 * NS_PER_S)
#define DRAIN_ROUNDS 2

/* Fractions of roots and ratios have so many bits. */
#define FRACTION_BITS 14
/* The largest RTT / RTTm, with such a fraction. */
#define LARGEST_STRETCH (1024ULL << FRACTION_BITS)
/* What waits is a small part of what is in flight, and needs a finer fraction. */
#define PART_BITS 27
/* Times in units of 64 ns where a product with a size would not fit otherwise. */
#define COARSE_BITS 6

enum base_state {
	ALONE,
	SHARED,
	DRAINING,
};

struct rtac {
	/* Smoothed round trip; 0 before the first. */
	__u64 rtt_ns;
	__u64 last_arrival_ns;

	/* The running round trip, 0 if none, and what came in it. */
	__u64 round_began_ns;
	__u64 round_bytes;
	/* w: what comes in a round trip, smoothed; 0 before the first. */
	__u64 flight;

	/* The running bucket of the rate, 0 if none, what came in it, and the two before. */
	__u64 bucket_began_ns;
	__u64 bucket_bytes;
	__u64 latest_rate;
	__u64 earlier_rate;

	/* RTTm; 0 before the first sample. */
	__u64 base_ns;
	__u64 base_state;
	/* When to drain, or until when it lasts. */
	__u64 drain_ns;
	/* A queue that stands: w at its beginning, 0 if there is none; for how many rounds, and the
	 * shortest round trip of these. */
	__u64 stands_flight;
	__u64 stands_rounds;
	__u64 stands_least_ns;

	/* Whether only the least may be in flight, to see what remains of a queue. */
	__u64 is_draining;
	/* What came of it; the window is 0 before the first. */
	__u64 rate;
	__u64 queue;
	__u64 window;
};

struct rtac_settings {
	__u64 theta_milli;
	__u64 delta_ns;
};

static inline __u64 smaller(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

static inline __u64 larger(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

/* The integer square root: Newton's method from a power of two that is at most twice too large.
 * Without branches, which the verifier would follow both ways in every round. */
static inline __u64 square_root(__u64 n)
{
	__u64 bits = 0, rest = n, root;

#pragma unroll
	for (int step = 32; step > 0; step /= 2) {
		__u64 above = (rest >> step) != 0;

		bits += above * step;
		rest >>= above * step;
	}
	root = 1ULL << (bits / 2 + 1);
#pragma unroll
	for (int round = 0; round < 6; round++)
		root = (root + n / root) >> 1;
	return root - (root * root > n);
}

/* What the path holds. */
static inline __u64 rtac_bdp(__u64 rate, __u64 base_ns)
{
	__u64 held = smaller(rate, LARGEST_RATE) * (base_ns >> COARSE_BITS) / (NS_PER_S >> COARSE_BITS);

	return smaller(held, LARGEST_WINDOW);
}

/* What waits (2.10). */
static inline __u64 rtac_queue(__u64 flight, __u64 rtt_ns, __u64 base_ns)
{
	__u64 part = ((rtt_ns - smaller(base_ns, rtt_ns)) << PART_BITS) / (rtt_ns | 1);

	return smaller(flight, LARGEST_WINDOW) * part >> PART_BITS;
}

/* RTT / RTTm. */
static inline __u64 rtac_stretch(__u64 rtt_ns, __u64 base_ns)
{
	__u64 stretch = (rtt_ns << FRACTION_BITS) / (base_ns | 1);

	return smaller(larger(stretch, 1 << FRACTION_BITS), LARGEST_STRETCH);
}

/* rwnd (2.14), with K set from the BDP (2.11). */
static inline __u64 rtac_window(__u64 bdp, __u64 queue, __u64 segment, __u64 stretch,
				__u64 theta_milli)
{
	__u64 wanted_queue = bdp * (theta_milli - 1000) / 1000;
	__u64 root = square_root((wanted_queue << 2 * FRACTION_BITS) / (queue + segment));
	__u64 window = smaller(bdp * root >> FRACTION_BITS, LARGEST_WINDOW);

	return smaller(window * stretch >> FRACTION_BITS, LARGEST_WINDOW);
}

/* Another connection has seen a round trip as short as this. */
static inline void rtac_learn_base(struct rtac *law, __u64 known_ns)
{
	law->base_ns = law->base_ns ? smaller(law->base_ns, known_ns) : known_ns;
}

static inline void rtac_pause(struct rtac *law)
{
	law->round_began_ns = 0;
	law->round_bytes = 0;
	law->bucket_began_ns = 0;
	law->bucket_bytes = 0;
}

/* Data came `sample_ns` after the ack that it answers was sent. */
static inline void rtac_on_round_trip(struct rtac *law, __u64 now_ns, __u64 sample_ns)
{
	if (!law->rtt_ns) {
		law->rtt_ns = sample_ns;
	} else if (sample_ns > law->rtt_ns && law->last_arrival_ns &&
		   now_ns - law->last_arrival_ns > law->rtt_ns) {
		/* The sender had nothing to send. */
		return;
	} else {
		law->rtt_ns = (law->rtt_ns * 7 + sample_ns) / 8;
	}
	if (law->base_state != ALONE && sample_ns < law->base_ns / 4 * 3) {
		law->base_state = ALONE;
		law->stands_flight = 0;
		law->rtt_ns = sample_ns;
		law->round_began_ns = 0;
		law->round_bytes = 0;
	}
	if (law->stands_flight)
		law->stands_least_ns = smaller(law->stands_least_ns, sample_ns);
	rtac_learn_base(law, sample_ns);
}

/* Keeps RTTm: it is learnt anew where a smaller window does not make the round trip shorter. */
static inline void rtac_keep_base(struct rtac *law, __u64 now_ns, int is_long, int is_least)
{
	if (law->base_state == SHARED && now_ns >= law->drain_ns) {
		law->base_state = DRAINING;
		law->drain_ns = now_ns + law->rtt_ns * DRAIN_ROUNDS;
	}
	if (!is_long && !is_least) {
		law->stands_flight = 0;
		return;
	}
	if (!law->stands_flight) {
		law->stands_flight = law->flight;
		law->stands_rounds = 0;
		law->stands_least_ns = law->rtt_ns;
	}
	if (!is_least && law->flight > law->stands_flight / 2) {
		law->stands_rounds = 0;
		law->stands_least_ns = law->rtt_ns;
		return;
	}
	law->stands_rounds += 1;
	if (law->stands_rounds > PATIENCE) {
		law->base_ns = law->stands_least_ns;
		law->base_state = SHARED;
		law->drain_ns = now_ns + DRAIN_EVERY_NS;
		law->stands_flight = 0;
	}
}

static inline void rtac_on_round(struct rtac *law, __u64 now_ns, __u64 segment,
				 const struct rtac_settings *settings)
{
	__u64 excess = ((settings->theta_milli - 1000) << FRACTION_BITS) / 1000;
	__u64 base_ns = law->base_ns + settings->delta_ns;
	__u64 stretch = rtac_stretch(law->rtt_ns, base_ns);
	__u64 current = smaller(law->flight, LARGEST_WINDOW) * NS_PER_S / (law->rtt_ns | 1);
	__u64 least = LEAST_SEGMENTS * segment, wanted;

	law->rate = larger(current, larger(law->latest_rate, law->earlier_rate));
	law->queue = rtac_queue(law->flight, law->rtt_ns, base_ns);
	wanted = rtac_window(rtac_bdp(law->rate, base_ns), law->queue, segment, stretch,
			     settings->theta_milli);
	wanted = larger(wanted, least);
	/* Without a queue, a flow that sends little does so by its own wish. */
	if (stretch > (1 << FRACTION_BITS) + excess / 2)
		law->window = wanted;
	else
		law->window = larger(law->window, wanted);
	rtac_keep_base(law, now_ns, stretch > (1 << FRACTION_BITS) + 2 * excess,
		       stretch > (1 << FRACTION_BITS) + excess && wanted == least);
}

/* Data came that had not come before. Tells whether a round trip is over. */
static inline int rtac_on_arrival(struct rtac *law, __u64 now_ns, __u64 bytes, __u64 segment,
				  const struct rtac_settings *settings)
{
	if (law->base_state == DRAINING && now_ns >= law->drain_ns) {
		law->base_state = SHARED;
		law->drain_ns = now_ns + DRAIN_EVERY_NS;
	}
	law->is_draining = law->base_state == DRAINING;
	if (law->is_draining) {
		rtac_pause(law);
		return 0;
	}
	if (!law->bucket_began_ns)
		law->bucket_began_ns = now_ns;
	if (now_ns - law->bucket_began_ns >= BUCKET_NS) {
		law->earlier_rate = law->latest_rate;
		law->latest_rate = smaller(law->bucket_bytes, LARGEST_RATE) * NS_PER_S /
				   (now_ns - law->bucket_began_ns);
		law->bucket_began_ns = now_ns;
		law->bucket_bytes = 0;
	}
	law->bucket_bytes += bytes;

	law->last_arrival_ns = now_ns;
	law->round_bytes += bytes;
	if (!law->round_began_ns)
		law->round_began_ns = now_ns;
	if (!law->rtt_ns || now_ns - law->round_began_ns < law->rtt_ns)
		return 0;
	law->flight = law->flight ? (law->flight + 7 * law->round_bytes) / 8 : law->round_bytes;
	law->round_began_ns = now_ns;
	law->round_bytes = 0;
	rtac_on_round(law, now_ns, segment, settings);
	return 1;
}

/* How much may be in flight; 0 if nothing is known yet. */
static inline __u64 rtac_advertised(const struct rtac *law, __u64 segment)
{
	return law->is_draining ? LEAST_SEGMENTS * segment : law->window;
}

#endif
