/* A hash table over the rows of an array, with chaining; for BPF and for the host.
 *
 *     chains[hash % chains] ─► row ─► row ─► 0        a link is a row's number plus 1
 *
 * The hash is computed once per packet, with secrets that other hosts do not know:
 *
 *     h = ((s[0] + sum of s[i] w[i]) mod 2^64) / 2^32    over the 32-bit words w[i] of the key
 *
 * Without knowledge of s, two keys collide with a probability of 2^-32 (Lemire, Kaser: "Strongly universal
 * string hashing is fast", The Computer Journal, 2014). Equally spaced keys, such as consecutive ports, have
 * equally spaced hashes; `spread` scatters these without collisions. A chain has at most MAX_CHAIN rows in any
 * case: a further key gets no row. */
#ifndef FRESHLINE_IFC_CHAINS_H
#define FRESHLINE_IFC_CHAINS_H

#include "packet.h"

/* No row: the end of a list, or a key without a row. */
#define NONE (~0ULL)
/* A key without a row, whose chain has its maximum length. */
#define NO_ROOM (NONE - 1)
/* With as many chains as rows, a chain has this length with a probability of 10^-35. */
#define MAX_CHAIN 32

/* For the longest key, a flow: one secret per word, and s[0]. */
#define SECRETS (sizeof(struct flow) / 4 + 1)

/* The contribution of the two words in the 64-bit number `at` of a key to the sum. */
static inline __u64 hashed(const __u64 *secrets, int at, __u64 number)
{
	return secrets[2 * at + 1] * (__u32)number + secrets[2 * at + 2] * (number >> 32);
}

/* Scatters the upper 32 bits of a sum: different ones give different results. */
static inline __u64 spread(__u64 sum)
{
	__u64 product = (sum >> 32) * 0x9e3779b97f4a7c15ULL;

	return product ^ product >> 32;
}

static inline __u64 hash_of_flow(const __u64 *secrets, const struct flow *flow)
{
	__u64 key[sizeof(*flow) / 8];

	_Static_assert(sizeof(*flow) / 8 == 5, "all of the key");
	__builtin_memcpy(key, flow, sizeof(key));
	return spread(secrets[0] + hashed(secrets, 0, key[0]) + hashed(secrets, 1, key[1]) +
		      hashed(secrets, 2, key[2]) + hashed(secrets, 3, key[3]) + hashed(secrets, 4, key[4]));
}

static inline int is_same_flow(const struct flow *a, const struct flow *b)
{
	__u64 one[sizeof(*a) / 8], other[sizeof(*a) / 8];

	__builtin_memcpy(one, a, sizeof(one));
	__builtin_memcpy(other, b, sizeof(other));
	return one[4] == other[4] && one[3] == other[3] && one[1] == other[1] && one[2] == other[2] &&
	       one[0] == other[0];
}

/* Puts a row with this link at the front of a chain. */
static inline void chain(__u64 *first, __u64 row, __u64 *link)
{
	*link = *first;
	*first = row + 1;
}

/* Removes a row with this link from its chain. `link_of` returns a row's link, or NULL. */
static __always_inline void unchain(__u64 *first, __u64 row, const __u64 *link, __u64 *(*link_of)(__u64 row))
{
	__u64 *at = first;

	for (int step = 0; at && *at && step < MAX_CHAIN; step++) {
		if (*at == row + 1) {
			*at = *link;
			return;
		}
		at = link_of(*at - 1);
	}
}

#endif
