/* RTAC's arithmetic in integers: Im, PhD thesis, Seoul National University, 2015, Algorithm 1 and
 * equations 2.6-2.14. Compiled for BPF and, by a test that holds it against the law of
 * freshline-core, for the host. Times in ns, sizes in bytes, rates in bytes per second.
 *
 *     BDP  = rate RTTm                                  rate: the maximum over two buckets
 *     Q    = rate (RTT - RTTm)
 *     rwnd = sqrt(a) RTT / RTTm / sqrt(K (Q + 1)),  K = a / (theta - 1) / BDP^3
 *          = BDP RTT / RTTm sqrt((theta - 1) BDP / (Q + 1))
 *
 * with BDP, Q and rwnd in packets; a segment's size turns the 1 into bytes. */
#ifndef FRESHLINE_RTAC_LAW_H
#define FRESHLINE_RTAC_LAW_H

#include <linux/types.h>

#define NS_PER_US 1000
#define NS_PER_S 1000000000ULL

/* How long a bucket of the rate is. */
#define BUCKET_NS 200000000ULL
/* The window that a connection can always have, in segments. */
#define FLOOR_SEGMENTS 4
/* TCP's largest window (RFC 7323, section 2.3); also bounds products below. */
#define LARGEST_WINDOW (1ULL << 30)
/* RTT / RTTm is taken for no more than this, which bounds products below. */
#define LARGEST_RATIO 1024

struct rtac {
	/* Smoothed round trip; 0 before the first. */
	__u64 rtt_ns;
	/* The shortest round trip. */
	__u64 min_rtt_ns;
	/* The running bucket, and the rate of the one before. */
	__u64 bucket_started_ns;
	__u64 bucket_bytes;
	__u64 last_rate;
	/* When the window was computed last. */
	__u64 updated_ns;
	/* What came of it. */
	__u64 rate;
	__u64 queue;
	__u64 window;
};

static inline __u64 smaller(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

static inline __u64 larger(__u64 a, __u64 b)
{
	return a > b ? a : b;
}

/* The integer square root, by Newton's method from a power of two that is less than twice too
 * large; no branch, which the verifier would follow both ways in every round. */
static inline __u64 square_root(__u64 n)
{
	__u64 bits = 0, rest = n, root;

#pragma unroll
	for (int step = 32; step > 0; step /= 2) {
		__u64 high = rest >> step;
		__u64 set = high != 0;

		bits += set * step;
		rest = set * high + (1 - set) * rest;
	}
	root = 1ULL << (bits / 2 + 1);
#pragma unroll
	for (int round = 0; round < 6; round++)
		root = (root + n / root) >> 1;
	return root - (root * root > n);
}

/* A round trip was measured. The average moves by an eighth, the thesis's beta. */
static inline void rtac_on_round_trip(struct rtac *law, __u64 rtt_ns)
{
	if (!law->rtt_ns) {
		law->rtt_ns = law->min_rtt_ns = rtt_ns;
		return;
	}
	law->min_rtt_ns = smaller(law->min_rtt_ns, rtt_ns);
	law->rtt_ns = (law->rtt_ns * 7 + rtt_ns) / 8;
}

/* Data came in. Tells whether the window is due to be computed: once in a round trip. */
static inline int rtac_on_received(struct rtac *law, __u64 now_ns, __u64 bytes)
{
	if (!law->bucket_started_ns)
		law->bucket_started_ns = now_ns;
	law->bucket_bytes += bytes;
	return bytes && law->rtt_ns && now_ns - law->updated_ns >= law->rtt_ns;
}

static inline void rtac_update(struct rtac *law, __u64 now_ns, __u64 segment, __u64 theta_milli, __u64 delta_ns)
{
	__u64 elapsed_ns = now_ns - law->bucket_started_ns;
	__u64 min_rtt_ns = law->min_rtt_ns + delta_ns;
	__u64 rtt_ns = larger(law->rtt_ns, min_rtt_ns);
	__u64 rate = law->bucket_bytes * 1000000 / (larger(elapsed_ns, rtt_ns) / 1000);
	__u64 bdp, ratio, window;

	law->rate = larger(law->last_rate, rate);
	if (elapsed_ns >= BUCKET_NS) {
		law->last_rate = rate;
		law->bucket_started_ns = now_ns;
		law->bucket_bytes = 0;
	}
	bdp = smaller(law->rate * (min_rtt_ns / 1000) / 1000000, LARGEST_WINDOW);
	law->queue = law->rate * ((rtt_ns - min_rtt_ns) / 1000) / 1000000;
	ratio = smaller(rtt_ns * 1024 / min_rtt_ns, LARGEST_RATIO * 1024);
	window = bdp * square_root((bdp * (theta_milli - 1000) / 1000 << 20) / (law->queue + segment)) >> 10;
	window = smaller(window, LARGEST_WINDOW) * ratio >> 10;
	law->window = larger(smaller(window, LARGEST_WINDOW), FLOOR_SEGMENTS * segment);
	law->updated_ns = now_ns;
}

#endif
