/* RTAC's state per remote host and per connection, its settings, and its constants. */
#ifndef FRESHLINE_RTAC_STATE_H
#define FRESHLINE_RTAC_STATE_H

#include "../numbers.h"

#define NS_PER_S 1000000000ULL
/* A longer round trip counts as a misread timestamp. */
#define MAX_RTT_NS (60 * NS_PER_S)
/* TCP's maximum window (RFC 7323, section 2.3). */
#define LARGEST_WINDOW (1ULL << 30)
/* The maximum rate whose product with a round trip does not overflow: 68 Gbit/s. */
#define LARGEST_RATE (1ULL << 33)

/* The defaults of the core's RtacParams. */
#define MIN_SEGMENTS 4
#define HEADROOM_SEGMENTS 1
#define BUCKET_NS (NS_PER_S / 5)
#define PATIENCE 3
#define TEST_EVERY_NS (10 * NS_PER_S)
#define TEST_ROUNDS 2
/* A delay that is longer by this is not jitter. */
#define JITTER_NS (NS_PER_S / 50)
/* The minimum number of round trips between tests of a shared queue. */
#define PAUSE 60
/* The number of rounds for which a window that cannot be halved waits, and the factor by which it
 * then grows. */
#define STUCK_PATIENCE (4 * PATIENCE)
#define RAISED 4
/* The window's lead over the data that arrives in a round: before a queue was seen, in a queue of
 * competing flows, and an addition to both. */
#define AHEAD_STARTING 4
#define AHEAD_SHARING 2
#define AHEAD_SEGMENTS 16

/* The value of delta in the settings if it is learnt. */
#define DELTA_LEARNT (~0ULL)
/* The number of rounds with a queue before delta is measured, the maximum number of doublings of
 * the pause between measurements, and the number of rounds in which the flight may grow, after the
 * first one. */
#define GROWING_AFTER (4 * PATIENCE)
#define DOUBLINGS 4
#define GROWING_ROUNDS 4

/* The number of fraction bits of roots and ratios. */
#define FRACTION_BITS 14
/* The maximum RTT / RTTm, with such a fraction. */
#define LARGEST_STRETCH (1024ULL << FRACTION_BITS)
/* The queue is a small part of the data in flight, so it needs a finer fraction. */
#define PART_BITS 27
/* Times in units of 64 ns if a product with a size would overflow otherwise. */
#define COARSE_BITS 6

/* The owner of the queue of a remote host. */
enum ownership {
	ALONE,
	/* Halved windows test the owner. */
	HALVING,
	/* A window too small to be halved is enlarged to test the owner. */
	RAISING,
	SHARED,
	/* Minimum windows verify that the queue is no longer a competing flow's. */
	DRAINING,
	/* Larger windows measure delta. */
	GROWING,
};

/* The state shared by all connections from one remote host. Processors do not synchronise here: a
 * lost update will be observed again, and a test that never ends is dropped. */
struct remote {
	/* RTTm; 0 before the first sample. */
	__u64 base_ns;
	/* The learnt delta, the time of its last measurement (0: never), and the number of
	 * consecutive measurements that confirmed it. */
	__u64 delta_ns;
	__u64 measured_ns;
	__u64 agreed;
	/* An enum ownership. */
	__u64 state;
	/* The current test: whether the queue was a competing flow's before, the connection that
	 * counts its rounds, its start, the rounds so far, the round trip before it takes effect,
	 * and among the samples since then the last one and the minimum mean of two in a row. */
	__u64 test_was_shared;
	__u64 test_leader;
	__u64 test_since_ns;
	__u64 test_rounds;
	__u64 test_before_ns;
	__u64 test_last_ns;
	__u64 test_least_ns;
	/* The data in flight of its leader before the test. */
	__u64 test_flight;
	/* When the queue was found to be shared. */
	__u64 shared_since_ns;
	/* The number of connections so far. */
	__u64 flows;
};

struct rtac {
	/* Read or written by every arrival. */

	/* This connection's number at its remote host; 0 before it has one. */
	__u64 flow;
	/* The smoothed round trip; 0 before the first one. */
	__u64 rtt_ns;
	__u64 last_arrival_ns;
	/* The start of the current round trip, 0 without one, and the bytes that arrived in
	 * it. */
	__u64 round_began_ns;
	__u64 round_bytes;
	/* The start of the current bucket of the rate, 0 without one, and the bytes that
	 * arrived in it. */
	__u64 bucket_began_ns;
	__u64 bucket_bytes;
	/* The resulting window; 0 before the first one. */
	__u64 window;

	/* Needed at the end of a round trip or of a bucket. */

	/* w: received bytes per round trip, smoothed; 0 before the first one. */
	__u64 flight;
	/* The rates of the two previous buckets. */
	__u64 latest_rate;
	__u64 earlier_rate;

	/* The number of rounds with a standing queue, the permitted number (0, the first time), and
	 * the number although the window is too small to be halved. */
	__u64 stood;
	__u64 patience;
	__u64 stuck;
	/* Rounds with a queue, minus rounds without. */
	__u64 queued;
	/* Whether a queue has been seen yet. */
	__u64 has_queued;
	/* Whether a test has changed the window, and the window before. */
	__u64 is_tested;
	__u64 untested;

	/* Algorithm 1 as printed: RTTm of this connection only. */
	__u64 own_base_ns;

	/* From the last round trip. `held` is the BDP from which the last window was derived; with
	 * a manual K, the BDP from which it would be derived. */
	__u64 rate;
	__u64 held;
	__u64 has_queue;
	__u64 queue;
};

struct rtac_settings {
	__u64 theta_milli;
	/* Or DELTA_LEARNT. */
	__u64 delta_ns;
	/* Manual K: a/K in packets squared, times 4 to the power of the shift, below 2^47; 0 if K
	 * is derived from the path. */
	__u64 slope;
	__u64 slope_shift;
	/* Whether the law is Algorithm 1 as printed. */
	__u64 is_pure;
};

/* The flow that keeps the queue, like freshline-core's QueueOwner. */
enum queue_owner {
	OWNER_NONE,
	OWNER_OWN,
	OWNER_COMPETING,
	OWNER_TESTING,
	OWNER_UNKNOWN,
};

#endif
