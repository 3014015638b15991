/* DTPA in integers, for BPF, and for the host in the test that compares it with freshline-core's
 * law: Im, PhD thesis, Seoul National University, 2015, Algorithm 2 and equation 4.6. It gives each
 * node of a mesh the share c by letting near nodes wait for the period TXP after each window. The
 * derivation and the ranges of the numbers are documented in that law.
 *
 *     TXP = max(a / (c sqrt(p)) - RTT, 0),    p = (timeouts + fast retransmits) / segments sent
 *     window <= 4/3 a / sqrt(p) + 1           while there is a period: Reno's peak */
#ifndef FRESHLINE_DTPA_LAW_H
#define FRESHLINE_DTPA_LAW_H

#include "../numbers.h"

/* a^2 = 3/2. */
#define A_SQUARED_OVER 3
#define A_SQUARED_UNDER 2
/* Reno's window just before a loss is 4/3 of its mean. */
#define PEAK_OVER 4
#define PEAK_UNDER 3
/* The number of fraction bits of windows. */
#define WINDOW_BITS 8
#define MAX_PERIOD_US 120000000ULL
#define US_PER_S 1000000ULL
#define US_PER_1000_S 1000000000ULL
#define LARGEST_COUNT (~0U)
/* In segments. A smaller window waits for the receiver's delayed acks, and Reno's threshold is
 * never below it (RFC 5681, equation 4). */
#define SMALLEST_WINDOW 2

struct dtpa_settings {
	/* c: segments in 1000 s; 0 if unset, and then there is no period. */
	__u64 share_per_1000_s;
	/* The weight of a new round trip is 1 / this value, which is at least 1. */
	__u64 rtt_weight;
	/* The maximum window in segments, at least SMALLEST_WINDOW; 0 for no limit. */
	__u64 most_window;
	/* The number of sent segments after which all counts are halved, at least 2; 0 for
	 * never. */
	__u64 memory;
	/* Not 0 if the window may grow beyond Reno's peak, as in the law as printed. */
	__u64 without_peak;
};

struct dtpa {
	__u32 sent;
	__u32 timeouts;
	__u32 fast_retransmits;
	/* Smoothed; 0 before the first one. */
	__u32 srtt_us;
	__u32 period_us;
	/* Reno's peak, in whole segments plus one; 0 while there is no period, or without the
	 * limit. */
	__u32 peak;
};

/* These segments were sent, for the first time or again. */
static inline void dtpa_on_sent(struct dtpa *law, __u32 segments,
				const struct dtpa_settings *settings)
{
	__u64 most = settings->memory ? settings->memory : LARGEST_COUNT;
	__u64 sent = (__u64)law->sent + segments, kept = most / 2, halvings;

	if (sent < most) {
		law->sent = sent;
		return;
	}
	/* At `most` they are halved, and again for each further `most - kept` segments. */
	halvings = smaller(1 + (sent - most) / (most - kept), 31);
	law->sent = kept + (sent - most) % (most - kept);
	law->timeouts >>= halvings;
	law->fast_retransmits >>= halvings;
}

static inline void dtpa_count(__u32 *losses)
{
	*losses += *losses < LARGEST_COUNT;
}

/* a / sqrt(p), with WINDOW_BITS; 0 before the first loss. */
static inline __u64 dtpa_fair_window(const struct dtpa *law, const struct dtpa_settings *settings)
{
	__u64 losses = smaller((__u64)law->timeouts + law->fast_retransmits, LARGEST_COUNT);
	__u64 sent = larger(law->sent, losses), window;

	if (!losses)
		return 0;
	window = square_root(A_SQUARED_OVER * (sent << 2 * WINDOW_BITS) / (A_SQUARED_UNDER * losses));
	if (settings->most_window)
		window = smaller(window, settings->most_window << WINDOW_BITS);
	return window;
}

/* window / c: the round time in which a window gives the share; 0 if no share is set. */
static inline __u64 dtpa_fair_round_us(__u64 window, const struct dtpa_settings *settings)
{
	if (!settings->share_per_1000_s)
		return 0;
	return window * US_PER_1000_S / settings->share_per_1000_s >> WINDOW_BITS;
}

/* An ack has measured a round trip: computes the period again. */
static inline void dtpa_on_round_trip(struct dtpa *law, __u32 sample_us,
				      const struct dtpa_settings *settings)
{
	__u64 sample = larger(sample_us, 1), weight = larger(settings->rtt_weight, 1);
	__u64 window = dtpa_fair_window(law, settings), round = dtpa_fair_round_us(window, settings);

	law->srtt_us = law->srtt_us ? (law->srtt_us * (weight - 1) + sample) / weight : sample;
	law->period_us = round > law->srtt_us ? smaller(round - law->srtt_us, MAX_PERIOD_US) : 0;
	law->peak = law->period_us && !settings->without_peak
			    ? (window * PEAK_OVER / PEAK_UNDER >> WINDOW_BITS) + 1
			    : 0;
}

/* The maximum window in segments, at least SMALLEST_WINDOW. */
static inline __u64 dtpa_most_window(const struct dtpa *law, const struct dtpa_settings *settings)
{
	__u64 most = settings->most_window ? settings->most_window : LARGEST_COUNT;

	return larger(law->peak ? smaller(most, law->peak) : most, SMALLEST_WINDOW);
}

/* The window that TCP gets instead of `window`, which is any number if the kernel has skipped a
 * program (main.bpf.c). While TCP repairs a loss it may have 1, its loss window. */
static inline __u64 dtpa_held_window(const struct dtpa *law, __u64 window, int is_repairing,
				     const struct dtpa_settings *settings)
{
	__u64 least = is_repairing ? 1 : SMALLEST_WINDOW;

	return larger(smaller(window, dtpa_most_window(law, settings)), least);
}

/* Reno's threshold for a reduction of a window of `before` segments. */
static inline __u64 dtpa_threshold(__u64 before)
{
	return larger(before / 2, SMALLEST_WINDOW);
}

/* The maximum rate in bytes per second for a window of this many segments; 0 while there is no
 * period, so that TCP's own clock applies. */
static inline __u64 dtpa_rate(const struct dtpa *law, __u64 window, __u32 segment_bytes,
			      const struct dtpa_settings *settings)
{
	__u64 round_us = (__u64)law->period_us + law->srtt_us;
	/* During a reduction TCP's window is 0 for a moment; the rate must not be 0 then. */
	__u64 held = larger(smaller(window, dtpa_most_window(law, settings)), 1);
	__u64 rate = held * segment_bytes * US_PER_S / larger(round_us, 1);

	return law->period_us ? larger(rate, 1) : 0;
}

#endif
