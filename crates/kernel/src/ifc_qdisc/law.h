/* The schedulers of freshness control and the shaper in integers, for BPF and, by the tests that hold
 * them against freshline-core's, for the host: Tseng, Han, Wierman, "In-Network Freshness Control:
 * Trading Throughput for Freshness", section IV-A. Why each step is as it is stands with those laws.
 *
 *     SDM: b = share S_LDA - (1 - share) S_AoI, the AoI class goes first where b > 0
 *     TDM: T_AoI = share T_f, T_LDA = (1 - share) T_f
 *     shaper: packet n of a busy period ends at start + ceil(sum of bits / rate) */
#ifndef FRESHLINE_IFC_LAW_H
#define FRESHLINE_IFC_LAW_H

#include "../numbers.h"

/* The share of the AoI class is in parts of this. */
#define WHOLE_SHARE 1000000ULL
#define NS_PER_S 1000000000ULL
#define BITS_PER_BYTE 8
#define UNLIMITED (~0ULL)
/* A credit of more bytes than this is one of so many: 1 TiB. */
#define LARGEST_CREDIT (1ULL << 40)
/* b stays within this where the credit is unlimited: 4 TB in one class's favour. The core counts on
 * beyond it. */
#define LARGEST_BUDGET (1LL << 62)

enum class {
	AOI,
	DROP_AVERSE,
	CLASSES,
};

enum scheduler {
	SDM,
	TDM,
};

struct scheduler_settings {
	__u64 scheduler;
	/* The share of the AoI class, at most WHOLE_SHARE. */
	__u64 aoi_share;
	/* SDM's, in bytes, or UNLIMITED. */
	__u64 credit;
	/* TDM's frame, ns. */
	__u64 frame_ns;
};

struct scheduler_state {
	/* SDM's b, in bytes times WHOLE_SHARE, and the share that it was counted with. */
	__s64 budget;
	__u64 aoi_share;
	/* Whose interval of TDM it is, once one has begun, and until when. */
	__u64 has_begun;
	__u64 turn;
	__u64 ends_ns;
};

static inline enum class other_class(enum class class)
{
	return class == AOI ? DROP_AVERSE : AOI;
}

static inline enum class sdm_prefers(__s64 budget, __u64 aoi_share)
{
	return budget > 0 || (budget == 0 && aoi_share > 0) ? AOI : DROP_AVERSE;
}

/* A part of the frame, without an overflow: shares are below 2^20. */
static inline __u64 tdm_interval(enum class class, const struct scheduler_settings *settings)
{
	__u64 frame = settings->frame_ns;
	__u64 aoi = frame / WHOLE_SHARE * settings->aoi_share +
		    frame % WHOLE_SHARE * settings->aoi_share / WHOLE_SHARE;

	return class == AOI ? aoi : frame - aoi;
}

static inline enum class tdm_prefers(struct scheduler_state *state, __u64 now_ns,
				     const struct scheduler_settings *settings)
{
	enum class next;

	if (state->has_begun && now_ns < state->ends_ns)
		return state->turn ? DROP_AVERSE : AOI;
	if (!state->has_begun)
		state->turn = DROP_AVERSE;
	state->has_begun = 1;
	next = other_class(state->turn ? DROP_AVERSE : AOI);
	/* A class without a share has no interval. */
	if (tdm_interval(next, settings))
		state->turn = next;
	next = state->turn ? DROP_AVERSE : AOI;
	state->ends_ns = now_ns + tdm_interval(next, settings);
	return next;
}

/* What was owed under another share is forgiven. */
static inline void sdm_go_by(struct scheduler_state *state, __u64 aoi_share)
{
	if (state->aoi_share == aoi_share)
		return;
	state->aoi_share = aoi_share;
	state->budget = 0;
}

/* Which class goes first. */
static inline enum class scheduler_prefers(struct scheduler_state *state, __u64 now_ns,
					   const struct scheduler_settings *settings)
{
	if (settings->scheduler == TDM)
		return tdm_prefers(state, now_ns, settings);
	sdm_go_by(state, settings->aoi_share);
	return sdm_prefers(state->budget, settings->aoi_share);
}

/* So many bytes of a class are sent, fewer than 2^32. */
static inline void scheduler_on_sent(struct scheduler_state *state, enum class class, __u64 bytes,
				     const struct scheduler_settings *settings)
{
	__s64 aoi = smaller(settings->aoi_share, WHOLE_SHARE), drop_averse = WHOLE_SHARE - aoi;
	__s64 credit = smaller(settings->credit, LARGEST_CREDIT);
	__s64 least = -LARGEST_BUDGET, most = LARGEST_BUDGET;
	enum class preferred;

	sdm_go_by(state, settings->aoi_share);
	preferred = sdm_prefers(state->budget, settings->aoi_share);
	if (class == AOI)
		state->budget -= drop_averse * (__s64)bytes;
	else
		state->budget += aoi * (__s64)bytes;
	if (class != preferred && settings->credit != UNLIMITED) {
		least = -aoi * credit;
		most = drop_averse * credit;
	}
	if (state->budget < least)
		state->budget = least;
	if (state->budget > most)
		state->budget = most;
}

struct shaper {
	/* When the last transmission ends. */
	__u64 free_ns;
	/* What that was rounded up by, in ns times bit/s, below the rate. */
	__u64 rounding;
	__u64 rate;
};

/* There was nothing to send until now. */
static inline void shaper_on_arrival(struct shaper *shaper, __u64 now_ns)
{
	if (now_ns <= shaper->free_ns)
		return;
	shaper->free_ns = now_ns;
	shaper->rounding = 0;
}

/* Sends so many bytes, below 2^31, after all that was sent, at so many bit/s, at least 1. When the
 * transmission ends. */
static inline __u64 shaper_send(struct shaper *shaper, __u64 bytes, __u64 rate)
{
	__u64 bit_ns = bytes * BITS_PER_BYTE * NS_PER_S, wanted, over;

	rate = larger(rate, 1);
	if (shaper->rate != rate)
		shaper->rounding = 0;
	shaper->rate = rate;
	if (bit_ns <= shaper->rounding) {
		/* A tiny packet on a fast link: not even what is owed. */
		shaper->rounding -= bit_ns;
		return shaper->free_ns;
	}
	wanted = bit_ns - shaper->rounding;
	over = wanted % rate;
	shaper->rounding = over ? rate - over : 0;
	shaper->free_ns += wanted / rate + (over != 0);
	return shaper->free_ns;
}

/* Times in the queue are counted in buckets: the leading bit of a time and the next SOJOURN_BITS, so
 * that a bucket is 1/16 wide. Longer than SOJOURN_MOST is as long as that: 18 minutes. */
#define SOJOURN_BITS 4
#define SOJOURN_MOST ((1ULL << 40) - 1)
#define SOJOURN_BUCKETS 592

static inline __u64 sojourn_bucket(__u64 ns)
{
	__u64 value = smaller(ns, SOJOURN_MOST), rest = value, bits = 0, shift;

#pragma unroll
	for (int step = 32; step > 0; step /= 2) {
		__u64 above = (rest >> step) != 0;

		bits += above * step;
		rest >>= above * step;
	}
	shift = bits > SOJOURN_BITS ? bits - SOJOURN_BITS : 0;
	return (shift << SOJOURN_BITS) + (value >> shift);
}

/* Those of a flow are counted in fewer: four of these buckets are one, up to 17 s, and all below 16 us are
 * the first. */
#define FLOW_SOJOURN_JOINS 4
#define FLOW_SOJOURN_SKIPS 43
#define FLOW_SOJOURN_BUCKETS 81

static inline __u64 flow_sojourn_bucket(__u64 bucket)
{
	__u64 joint = larger(bucket / FLOW_SOJOURN_JOINS, FLOW_SOJOURN_SKIPS) - FLOW_SOJOURN_SKIPS;

	return smaller(joint, FLOW_SOJOURN_BUCKETS - 1);
}

#endif
