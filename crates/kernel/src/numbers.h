/* Arithmetic in integers that laws share. */
#ifndef FRESHLINE_NUMBERS_H
#define FRESHLINE_NUMBERS_H

#include <linux/types.h>

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

#endif
