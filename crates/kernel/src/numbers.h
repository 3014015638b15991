/* Integer arithmetic that the laws share. */
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

/* The integer square root of n below 2^64 - 2^32. A cubic polynomial gives 8 bits of it, with an
 * error below 1, and each of two steps of Newton's method doubles them: two divisions, which take
 * most of the time of a law. It has no branches, because the verifier would follow both in every
 * round. */
static inline __u64 square_root(__u64 n)
{
	__u64 shift = 0, top = n, part, root;

	/* The root of 4^shift n, whose highest bit is among the first two, is 2^shift times
	 * larger. */
#pragma unroll
	for (int step = 16; step > 0; step /= 2) {
		__u64 is_below = !(top >> (64 - 2 * step));

		shift += is_below * step;
		top <<= is_below * 2 * step;
	}
	part = top >> 48;
	root = 48541 - (15845 * part >> 16);
	root = 83510 - (root * part >> 16);
	root = (14751 + 128 + (root * part >> 16)) >> 8;
	root = (root << 7) + (top >> 41) / root;
	root = ((root << 15) + (top >> 17) / root) >> shift;
	return root - (root * root > n);
}

#endif
