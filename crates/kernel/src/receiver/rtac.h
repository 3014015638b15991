/* RTAC in integers, for BPF, and for the host in the test that compares it with freshline-core's
 * law: Im, PhD thesis, Seoul National University, 2015, Algorithm 1 and equations 2.6-2.14. It
 * chooses the receive window of a TCP connection so that the data in flight settles at theta times
 * the BDP of the path and the queue at the bottleneck stays short.
 *
 *     rwnd = RTT / RTTm  BDP  sqrt((theta - 1) BDP / (Q + segment)),   Q = (RTT - RTTm) w / RTT
 *
 * Derivation, states and tests are documented in freshline-core's rtac.rs and remote.rs; the steps
 * here have the same names and the same order.
 *
 * Times are in ns, sizes in bytes, rates in bytes per second. Round trips are at most MAX_RTT_NS
 * (36 bits), sizes at most LARGEST_WINDOW (30 bits), so no product overflows. */
#ifndef FRESHLINE_RTAC_LAW_H
#define FRESHLINE_RTAC_LAW_H

#include "state.h"

/* Larger segments count as this size of 64 kB. */
#define LARGEST_PACKET 65535

/* BDP: rate times minimum RTT. */
static inline __u64 rtac_bdp(__u64 rate, __u64 base_ns)
{
	__u64 held = smaller(rate, LARGEST_RATE) * (base_ns >> COARSE_BITS) / (NS_PER_S >> COARSE_BITS);

	return smaller(held, LARGEST_WINDOW);
}

/* Q: the queued bytes (2.10). */
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

/* rwnd (2.14), with K derived from the BDP (2.11). */
static inline __u64 rtac_window(__u64 bdp, __u64 queue, __u64 segment, __u64 stretch,
				__u64 theta_milli)
{
	__u64 wanted_queue = bdp * (theta_milli - 1000) / 1000;
	__u64 root = square_root((wanted_queue << 2 * FRACTION_BITS) / (queue + segment));
	__u64 window = smaller(bdp * root >> FRACTION_BITS, LARGEST_WINDOW);

	return smaller(window * stretch >> FRACTION_BITS, LARGEST_WINDOW);
}

/* K is set manually: Reno's window at the loss K (Q + 1), sqrt(a / (K (Q + 1))) (2.8). */
static inline __u64 rtac_window_by_hand(__u64 queue, __u64 segment,
					const struct rtac_settings *settings)
{
	__u64 packet = smaller(segment, LARGEST_PACKET);
	__u64 root = square_root(settings->slope * packet / (queue + packet));

	return smaller(packet * root >> settings->slope_shift, LARGEST_WINDOW);
}

/* Lowers the minimum RTT to a known round trip. */
static inline void rtac_learn(struct remote *remote, __u64 known_ns)
{
	remote->base_ns = remote->base_ns ? smaller(remote->base_ns, known_ns) : known_ns;
}

/* Uses the mean of two samples in a row: a single lucky sample is not the path. */
static inline void rtac_on_drained(struct remote *remote, __u64 sample_ns)
{
	if (remote->test_last_ns)
		remote->test_least_ns =
			smaller(remote->test_least_ns, (remote->test_last_ns + sample_ns) / 2);
	remote->test_last_ns = sample_ns;
}

/* Uses a sample, unless it contains a pause of the sender. */
static inline void rtac_take(struct rtac *law, struct remote *remote, __u64 now_ns,
			     __u64 sample_ns)
{
	if (!law->rtt_ns)
		law->rtt_ns = sample_ns;
	else if (sample_ns > law->rtt_ns && law->last_arrival_ns &&
		 now_ns - law->last_arrival_ns > law->rtt_ns)
		/* The sender had nothing to send. */
		return;
	else
		law->rtt_ns = (law->rtt_ns * 7 + sample_ns) / 8;
	if (remote->state == DRAINING)
		rtac_on_drained(remote, sample_ns);
	rtac_learn(remote, law->rtt_ns);
}

/* Data arrived `sample_ns` after the ack that it answers was sent. */
static inline void rtac_on_round_trip(struct rtac *law, struct remote *remote, __u64 now_ns,
				      __u64 sample_ns, const struct rtac_settings *settings)
{
	rtac_take(law, remote, now_ns, sample_ns);
	/* If K is set manually, RTTm is the minimum sample; one after a pause is longer than
	 * that. */
	if (settings->slope)
		rtac_learn(remote, sample_ns);
}

enum verdict {
	/* The law's window. */
	LAW,
	/* The law's window, and the path is slower than before. */
	LAW_ANEW,
	/* Half of the data in flight. */
	HALF,
	/* The minimum window. */
	LEAST,
	/* A few times the minimum window. */
	MORE,
	/* As much as the sender wants. */
	FREE,
	/* More than the data in flight, to measure delta. */
	GROW,
	/* The window before that measurement. */
	BACK,
};

/* The maximum delta. */
static inline __u64 rtac_most_delta(__u64 base_ns)
{
	return smaller(base_ns * 9 / 20, JITTER_NS);
}

/* A measurement of delta has confirmed its value. */
static inline void rtac_agree(struct remote *remote)
{
	remote->agreed = smaller(remote->agreed + 1, DOUBLINGS);
}

/* Half a window had this round trip, so delta is not larger. */
static inline void rtac_lower_delta(struct remote *remote, __u64 rtt_ns)
{
	__u64 seen_ns = rtt_ns - smaller(remote->base_ns, rtt_ns);

	if (seen_ns * 5 >= remote->delta_ns * 4) {
		rtac_agree(remote);
		return;
	}
	remote->delta_ns = seen_ns < remote->base_ns / 16 ? 0 : seen_ns;
	remote->agreed = 0;
}

static inline void rtac_begin_test(struct remote *remote, enum ownership state, __u64 now_ns,
				   const struct rtac *law)
{
	remote->test_was_shared = remote->state != ALONE;
	remote->state = state;
	remote->test_leader = law->flow;
	remote->test_since_ns = now_ns;
	remote->test_rounds = 0;
	remote->test_before_ns = law->rtt_ns;
	remote->test_last_ns = 0;
	remote->test_least_ns = ~0ULL;
}

/* Whether the round trip is closer to the value that half a window leaves of an own queue than to
 * its value before the test. */
static inline int rtac_has_halved(const struct remote *remote, __u64 rtt_ns)
{
	__u64 own_ns = larger(remote->base_ns + remote->delta_ns, remote->test_before_ns / 2);

	return rtt_ns * 10 < own_ns * 6 + remote->test_before_ns * 4;
}

/* Whether less is left than of a queue of which half was a competing flow's. */
static inline int rtac_has_drained(const struct remote *remote)
{
	return remote->test_least_ns < remote->test_before_ns * 35 / 100;
}

static inline enum verdict rtac_share(struct remote *remote, __u64 now_ns)
{
	remote->state = SHARED;
	remote->shared_since_ns = now_ns;
	return FREE;
}

/* One more round of a test with a larger window. */
static inline enum verdict rtac_raise(const struct rtac *law, struct remote *remote, __u64 now_ns)
{
	if (remote->test_leader != law->flow)
		return LAW;
	remote->test_rounds += 1;
	if (remote->test_rounds <= TEST_ROUNDS + 1)
		return MORE;
	if (law->rtt_ns * 2 <= remote->test_before_ns * 3)
		return rtac_share(remote, now_ns);
	remote->state = ALONE;
	return LAW_ANEW;
}

/* Whether delta explains the round trip of half a window, which then is not a queue. */
static inline int rtac_explains(const struct remote *remote, __u64 rtt_ns)
{
	return remote->delta_ns && rtt_ns * 5 < (remote->base_ns + remote->delta_ns) * 6;
}

/* One more round of a measurement of delta with larger windows. */
static inline enum verdict rtac_grow(const struct rtac *law, struct remote *remote)
{
	int is_queue = law->rtt_ns * 50 >= remote->test_before_ns * 59;
	__u64 flight = smaller(law->flight, LARGEST_WINDOW);

	if (remote->test_leader != law->flow)
		return GROW;
	if (flight * 5 >= remote->test_flight * 7 && !is_queue) {
		/* The path had spare capacity. */
		remote->delta_ns = smaller(remote->test_before_ns -
						   smaller(remote->base_ns, remote->test_before_ns),
					   rtac_most_delta(remote->base_ns));
		remote->agreed = 0;
		remote->state = ALONE;
		return LAW;
	}
	if (is_queue || remote->test_rounds >= GROWING_ROUNDS) {
		rtac_agree(remote);
		remote->state = ALONE;
		return BACK;
	}
	remote->test_rounds += 1;
	return GROW;
}

/* One more round of the current test. */
static inline enum verdict rtac_test(const struct rtac *law, struct remote *remote, __u64 now_ns,
				     int may_halve, int is_settled)
{
	int is_halving = remote->state == HALVING;
	enum verdict goes_on = is_halving ? HALF : LEAST;

	/* Each connection has its own timestamps; those of another one may be slightly ahead. */
	if (now_ns > remote->test_since_ns &&
	    now_ns - remote->test_since_ns > remote->test_before_ns * 8 * TEST_ROUNDS) {
		/* Its leader has gone. */
		remote->state = ALONE;
		return LAW_ANEW;
	}
	if (remote->state == RAISING)
		return rtac_raise(law, remote, now_ns);
	if (remote->state == GROWING)
		return rtac_grow(law, remote);
	if (is_halving && !remote->test_rounds && !may_halve) {
		remote->state = ALONE;
		return LAW;
	}
	if (remote->test_leader != law->flow) {
		/* There is no result until all connections are settled. */
		if (is_halving && !is_settled)
			remote->test_rounds = smaller(remote->test_rounds, 1);
		return goes_on;
	}
	if (!is_settled) {
		remote->test_before_ns = larger(remote->test_before_ns, law->rtt_ns);
		return goes_on;
	}
	remote->test_rounds += 1;
	if (remote->test_rounds < TEST_ROUNDS)
		return goes_on;
	if (is_halving && rtac_has_halved(remote, law->rtt_ns)) {
		rtac_lower_delta(remote, law->rtt_ns);
		if (remote->test_was_shared) {
			rtac_begin_test(remote, DRAINING, now_ns, law);
			return LEAST;
		}
		remote->state = ALONE;
		return LAW_ANEW;
	}
	if (is_halving && !remote->test_was_shared && rtac_explains(remote, law->rtt_ns)) {
		rtac_lower_delta(remote, law->rtt_ns);
		remote->state = ALONE;
		return LAW_ANEW;
	}
	if (!is_halving && rtac_has_drained(remote)) {
		remote->base_ns = remote->test_least_ns;
		remote->state = ALONE;
		return LAW_ANEW;
	}
	return rtac_share(remote, now_ns);
}

/* Starts a measurement of delta, if it is due: with larger windows, or with half a window for a
 * delta that may have decreased. Returns LAW if it starts none. */
static inline enum verdict rtac_measure(struct rtac *law, struct remote *remote, __u64 now_ns,
					int may_halve)
{
	__u64 base_ns = remote->base_ns, max_ns = rtac_most_delta(base_ns);
	__u64 pause_ns = larger(TEST_EVERY_NS, PAUSE * law->rtt_ns)
			 << smaller(remote->agreed, DOUBLINGS);

	if (remote->measured_ns && now_ns < remote->measured_ns + pause_ns)
		return LAW;
	if (law->queued > GROWING_AFTER && remote->delta_ns < max_ns &&
	    law->rtt_ns < base_ns + 2 * max_ns) {
		remote->measured_ns = now_ns;
		law->queued = 0;
		rtac_begin_test(remote, GROWING, now_ns, law);
		remote->test_flight = smaller(law->flight, LARGEST_WINDOW);
		return GROW;
	}
	if (remote->delta_ns && may_halve) {
		remote->measured_ns = now_ns;
		rtac_begin_test(remote, HALVING, now_ns, law);
		return HALF;
	}
	return LAW;
}

/* The new window. A connection is settled if no more data arrives in a round than the window
 * allows: because the window's edge is never taken back, a smaller window takes effect later. */
static inline enum verdict rtac_judge(struct rtac *law, struct remote *remote, __u64 now_ns,
				      int stands, int may_halve, int is_settled,
				      const struct rtac_settings *settings)
{
	enum verdict measured = LAW, verdict = HALF;

	law->stood = stands && may_halve ? law->stood + 1 : 0;
	law->stuck = stands && !may_halve ? law->stuck + 1 : 0;
	law->queued = law->has_queue ? law->queued + 1 : larger(law->queued, 1) - 1;
	if (remote->state == ALONE && settings->delta_ns == DELTA_LEARNT)
		measured = rtac_measure(law, remote, now_ns, may_halve);
	if (measured != LAW) {
		verdict = measured;
	} else if (remote->state == ALONE && law->stuck > STUCK_PATIENCE) {
		rtac_begin_test(remote, RAISING, now_ns, law);
		verdict = MORE;
	} else if (remote->state == ALONE) {
		__u64 base_ns = remote->base_ns;
		int is_long = law->rtt_ns >= base_ns + smaller(base_ns, JITTER_NS);

		if (law->stood <= (is_long ? law->patience : PATIENCE))
			return LAW;
		rtac_begin_test(remote, HALVING, now_ns, law);
	} else if (remote->state != SHARED) {
		verdict = rtac_test(law, remote, now_ns, may_halve, is_settled);
	} else if (now_ns < remote->shared_since_ns + larger(TEST_EVERY_NS, PAUSE * law->rtt_ns)) {
		verdict = FREE;
	} else {
		rtac_begin_test(remote, HALVING, now_ns, law);
	}
	if (remote->state != ALONE) {
		law->stood = law->stuck = 0;
		law->patience = PATIENCE;
	}
	return verdict;
}

static inline __u64 rtac_bound(__u64 window, __u64 segment)
{
	return smaller(larger(window, MIN_SEGMENTS * segment), LARGEST_WINDOW);
}

static inline __u64 rtac_ahead(const struct rtac *law, __u64 times, __u64 segment)
{
	return rtac_bound(times * law->flight + AHEAD_SEGMENTS * segment, segment);
}

/* Whether the round trip is closer to its target than to that of the empty path. */
static inline int rtac_has_queue(__u64 stretch, const struct rtac_settings *settings)
{
	__u64 excess_milli = (settings->theta_milli - 1000) << FRACTION_BITS;

	/* A stretch is never below 1. */
	return (stretch - (1 << FRACTION_BITS)) * 2000 > excess_milli;
}

static inline void rtac_follow(struct rtac *law, __u64 base_ns, __u64 stretch, __u64 segment,
			       const struct rtac_settings *settings)
{
	__u64 current = smaller(law->flight, LARGEST_WINDOW) * NS_PER_S / (law->rtt_ns | 1);
	__u64 bdp, window;

	law->rate = larger(current, larger(law->latest_rate, law->earlier_rate));
	bdp = rtac_bdp(law->rate, base_ns) + HEADROOM_SEGMENTS * segment;
	law->held = bdp;
	if (settings->slope)
		window = rtac_window_by_hand(law->queue, segment, settings) * stretch >>
			 FRACTION_BITS;
	else
		window = rtac_window(smaller(bdp, LARGEST_WINDOW), law->queue, segment, stretch,
				     settings->theta_milli);
	window = rtac_bound(window, segment);
	if (rtac_has_queue(stretch, settings)) {
		law->has_queued = 1;
		law->window = window;
		return;
	}
	/* Without a queue, a flow with little traffic is limited by its application. */
	law->window = larger(law->window, window);
	if (!law->has_queued)
		law->window = larger(law->window, rtac_ahead(law, AHEAD_STARTING, segment));
}

/* If data arrives at less than half of the rate behind the window although there is a queue, the
 * capacity has dropped: then the window does not grow. */
static inline void rtac_follow_path(struct rtac *law, __u64 base_ns, __u64 stretch, __u64 segment,
				    const struct rtac_settings *settings)
{
	__u64 before = larger(law->window, smaller(law->flight, LARGEST_WINDOW));
	__u64 current = smaller(law->flight, LARGEST_WINDOW) * NS_PER_S / (law->rtt_ns | 1);

	rtac_follow(law, base_ns, stretch, segment, settings);
	if (rtac_has_queue(stretch, settings) &&
	    current < larger(law->latest_rate, law->earlier_rate) / 2)
		law->window = smaller(law->window, before);
}

static inline __u64 rtac_delta(const struct remote *remote, const struct rtac_settings *settings)
{
	if (settings->delta_ns != DELTA_LEARNT)
		return settings->delta_ns;
	/* The path may have become shorter since the measurement. */
	return smaller(remote->delta_ns, rtac_most_delta(remote->base_ns));
}

static inline void rtac_on_round(struct rtac *law, struct remote *remote, __u64 now_ns,
				 __u64 segment, const struct rtac_settings *settings)
{
	__u64 base_ns = remote->base_ns + rtac_delta(remote, settings);
	__u64 stretch = rtac_stretch(law->rtt_ns, base_ns);
	/* The target queue plus a quarter; on a short path two segments are significant. */
	__u64 held = (smaller(law->flight, LARGEST_WINDOW) << FRACTION_BITS) / stretch;
	__u64 wanted_milli = held * (settings->theta_milli - 1000);
	__u64 half = law->flight / 2;
	__u64 was_tested = law->is_tested, before = law->window;
	enum verdict verdict;
	int stands;

	law->queue = rtac_queue(law->flight, law->rtt_ns, base_ns);
	law->has_queue = rtac_has_queue(stretch, settings);
	if (settings->slope) {
		rtac_follow(law, base_ns, stretch, segment, settings);
		return;
	}
	stands = law->queue > 2 * segment && (law->queue - 2 * segment) * 800 > wanted_milli;
	verdict = rtac_judge(law, remote, now_ns, stands,
			     half > MIN_SEGMENTS * segment, law->flight <= law->window / 2 * 3, settings);
	law->is_tested = verdict == HALF || verdict == LEAST || verdict == GROW;
	if (verdict == LAW_ANEW) {
		law->bucket_began_ns = 0;
		law->bucket_bytes = 0;
		law->latest_rate = 0;
		law->earlier_rate = 0;
	}
	if (verdict == LAW || verdict == LAW_ANEW)
		rtac_follow_path(law, base_ns, stretch, segment, settings);
	else if (verdict == LEAST)
		law->window = rtac_bound(0, segment);
	else if (verdict == MORE)
		law->window = rtac_bound(RAISED * MIN_SEGMENTS * segment, segment);
	else if (verdict == FREE)
		law->window = larger(was_tested ? law->untested : law->window,
				     rtac_ahead(law, AHEAD_SHARING, segment));
	else if (verdict == BACK)
		law->window = law->untested ? law->untested : before;
	else if (verdict == GROW && !was_tested)
		law->window = rtac_bound(smaller(law->flight, LARGEST_WINDOW) * 31 / 20, segment);
	else if (!was_tested)
		/* A connection that is tested in its first round has no window yet. */
		law->window = smaller(law->window ? law->window : LARGEST_WINDOW,
				      rtac_bound(half, segment));
	if (law->is_tested && !was_tested)
		law->untested = before;
}

/* Which flow keeps the queue that the last round trip showed. */
static inline enum queue_owner rtac_owner(const struct rtac *law, const struct remote *remote,
					  const struct rtac_settings *settings)
{
	if (!law->has_queue)
		return OWNER_NONE;
	if (settings->slope)
		return OWNER_UNKNOWN;
	if (remote->state == ALONE)
		return OWNER_OWN;
	return remote->state == SHARED ? OWNER_COMPETING : OWNER_TESTING;
}

/* Counts the data that arrives in a round trip, and returns whether it is over. */
static inline int rtac_ends_round(struct rtac *law, const struct remote *remote, __u64 now_ns,
				  __u64 bytes)
{
	law->last_arrival_ns = now_ns;
	law->round_bytes += bytes;
	if (!law->round_began_ns)
		law->round_began_ns = now_ns;
	if (!law->rtt_ns || !remote->base_ns || now_ns - law->round_began_ns < law->rtt_ns)
		return 0;
	law->flight = law->flight ? (law->flight + 7 * law->round_bytes) / 8 : law->round_bytes;
	law->round_began_ns = now_ns;
	law->round_bytes = 0;
	return 1;
}

/* New data arrived. Returns whether a round trip is over. */
static inline int rtac_on_arrival(struct rtac *law, struct remote *remote, __u64 now_ns,
				  __u64 bytes, __u64 segment, const struct rtac_settings *settings)
{
	if (remote->state != HALVING && remote->state != DRAINING) {
		__u64 length_ns;

		if (!law->bucket_began_ns)
			law->bucket_began_ns = now_ns;
		length_ns = now_ns - law->bucket_began_ns;
		/* The rate of a window that arrives as one burst is meaningless. */
		if (length_ns >= larger(BUCKET_NS, law->rtt_ns)) {
			law->earlier_rate = law->latest_rate;
			law->latest_rate = smaller(law->bucket_bytes, LARGEST_RATE) * NS_PER_S / length_ns;
			law->bucket_began_ns = now_ns;
			law->bucket_bytes = 0;
		}
		law->bucket_bytes += bytes;
	}

	if (!rtac_ends_round(law, remote, now_ns, bytes))
		return 0;
	rtac_on_round(law, remote, now_ns, segment, settings);
	return 1;
}

#endif
