/* What RTAC knows of a remote host and of a connection, its settings, and its constants. */
#ifndef FRESHLINE_RTAC_STATE_H
#define FRESHLINE_RTAC_STATE_H

#include "../numbers.h"

#define NS_PER_S 1000000000ULL
/* A longer round trip is taken for a timestamp that was misread. */
#define MAX_RTT_NS (60 * NS_PER_S)
/* TCP's largest window (RFC 7323, section 2.3). */
#define LARGEST_WINDOW (1ULL << 30)
/* Beyond this a rate has no place in a product with a round trip: 68 Gbit/s. */
#define LARGEST_RATE (1ULL << 33)

/* The defaults of the core's RtacParams. */
#define MIN_SEGMENTS 4
#define HEADROOM_SEGMENTS 1
#define BUCKET_NS (NS_PER_S / 5)
#define PATIENCE 3
#define TEST_EVERY_NS (10 * NS_PER_S)
#define TEST_ROUNDS 2
/* What is longer by this is not for jitter. */
#define JITTER_NS (NS_PER_S / 50)
/* How many round trips there are at least between tests of a shared queue. */
#define PAUSE 60
/* For how many rounds a window that cannot be halved waits, and how much larger it then asks. */
#define STUCK_PATIENCE (4 * PATIENCE)
#define RAISED 4
/* How far the window is ahead of what arrives in a round: before a queue was seen, in a queue of
 * others, and on top of either. */
#define AHEAD_STARTING 4
#define AHEAD_SHARING 2
#define AHEAD_SEGMENTS 16

/* A delta of the settings that is learnt. */
#define DELTA_LEARNT (~0ULL)
/* How many rounds with a queue are waited for before delta is measured, how often the pause between
 * measurements doubles, and how many rounds the flight has to grow in, after the first. */
#define GROWING_AFTER (4 * PATIENCE)
#define DOUBLINGS 4
#define GROWING_ROUNDS 4

/* Fractions of roots and ratios have so many bits. */
#define FRACTION_BITS 14
/* The largest RTT / RTTm, with such a fraction. */
#define LARGEST_STRETCH (1024ULL << FRACTION_BITS)
/* What waits is a small part of what is in flight, and needs a finer fraction. */
#define PART_BITS 27
/* Times in units of 64 ns where a product with a size would not fit otherwise. */
#define COARSE_BITS 6

/* Whose the queue of a remote host is. */
enum ownership {
	ALONE,
	/* Half windows are to show it. */
	HALVING,
	/* A window too small to be halved is larger, to show it. */
	RAISING,
	SHARED,
	/* The least windows are to make sure that it is no longer others'. */
	DRAINING,
	/* Larger windows are to show delta. */
	GROWING,
};

/* What all connections from one remote host know together. Processors do not wait for each other
 * here: what one overwrites another will see again, and a test that stays without an end is
 * dropped. */
struct remote {
	/* RTTm; 0 before the first sample. */
	__u64 base_ns;
	/* Delta as it was learnt, when it was last measured (0: never), and how many measurements in
	 * a row agreed. */
	__u64 delta_ns;
	__u64 measured_ns;
	__u64 agreed;
	/* An enum ownership. */
	__u64 state;
	/* The running test: whether the queue was thought to be others', the connection that counts
	 * its rounds, its beginning, the rounds so far, the round trip before it takes effect, and of
	 * the samples since the last and the least mean of two in a row. */
	__u64 test_was_shared;
	__u64 test_leader;
	__u64 test_since_ns;
	__u64 test_rounds;
	__u64 test_before_ns;
	__u64 test_last_ns;
	__u64 test_least_ns;
	/* What its leader had in flight before. */
	__u64 test_flight;
	/* Since when the queue is shared. */
	__u64 shared_since_ns;
	/* How many connections there have been. */
	__u64 flows;
};

struct rtac {
	/* What every arrival reads or writes. */

	/* This connection's number at its remote host; 0 before it has one. */
	__u64 flow;
	/* Smoothed round trip; 0 before the first. */
	__u64 rtt_ns;
	__u64 last_arrival_ns;
	/* The running round trip, 0 if none, and what came in it. */
	__u64 round_began_ns;
	__u64 round_bytes;
	/* The running bucket of the rate, 0 if none, and what came in it. */
	__u64 bucket_began_ns;
	__u64 bucket_bytes;
	/* What came of it; 0 before the first. */
	__u64 window;

	/* What the end of a round trip, or of a bucket, needs. */

	/* w: bytes received per round trip, smoothed; 0 before the first. */
	__u64 flight;
	/* The rates of the two buckets before. */
	__u64 latest_rate;
	__u64 earlier_rate;

	/* For how many rounds the queue has stood, for how many it may (none, the first time), and for
	 * how many it has though the window is too small to be halved. */
	__u64 stood;
	__u64 patience;
	__u64 stuck;
	/* Rounds with a queue, less those without. */
	__u64 queued;
	/* Whether a queue has been seen yet. */
	__u64 has_queued;
	/* Whether the window is another one for a test, and what it was before. */
	__u64 is_tested;
	__u64 untested;

	/* Algorithm 1 as printed: RTTm of this connection alone. */
	__u64 own_base_ns;

	/* Of the last round trip. Held is the BDP that the last window followed from; of a K set by hand,
	 * what it would be. */
	__u64 rate;
	__u64 held;
	__u64 has_queue;
	__u64 queue;
};

struct rtac_settings {
	__u64 theta_milli;
	/* Or DELTA_LEARNT. */
	__u64 delta_ns;
	/* K set by hand: a/K in packets squared, times 4 to the power of the shift, below 2^47; 0 if K
	 * is of the path. */
	__u64 slope;
	__u64 slope_shift;
	/* Whether the law is Algorithm 1 as printed. */
	__u64 is_pure;
};

/* Which flow keeps the queue, as freshline-core's QueueOwner. */
enum queue_owner {
	OWNER_NONE,
	OWNER_OWN,
	OWNER_COMPETING,
	OWNER_TESTING,
	OWNER_UNKNOWN,
};

#endif
