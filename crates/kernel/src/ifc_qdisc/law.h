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

/* Whether a packet that keeps the link working goes ahead of the drop-averse ones. Of two turns it has one
 * at most while those wait: a flood of such packets, which the guests of a bridge can send, takes no more. */
static inline int beside_goes_first(__u64 beside, __u64 others, __u64 was_last)
{
	return beside && (!others || !was_last);
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

/* What a link adds to an IP packet: freshline-core's link::Framing. */
enum cells {
	NO_CELLS,
	ATM,
	PTM,
};

struct framing {
	/* Bytes, at most 256. */
	__u64 overhead;
	__u64 mpu;
	__u64 cells;
};

/* How many bytes an IP packet of fewer than 2^32 takes on the link. */
static inline __u64 on_link(__u64 bytes, const struct framing *framing)
{
	__u64 padded = larger(bytes + framing->overhead, framing->mpu);

	if (framing->cells == ATM)
		return (padded + 47) / 48 * 53;
	if (framing->cells == PTM)
		return padded + (padded + 63) / 64;
	return padded;
}

/* IPv4 and UDP. */
#define MIN_HEADERS 28

/* How many segments a packet has, of `length` bytes with all headers once and `on_wire` with those of
 * each segment, whose IP header begins `before` bytes in. Super-packets of virtual machines come with a
 * size of segments and without their number (`gso_segs` is 0, SKB_GSO_DODGY); the kernel has counted them
 * for `on_wire` (qdisc_pkt_len_init):
 *
 *     segments = ceil((length - headers) / gso_size)        on_wire = length + (segments - 1) headers
 *
 * Headers are shorter than a segment, so there are two numbers that it may be. That of which the headers
 * are those of IP and its transport, in words of 4 bytes and at least MIN_HEADERS, is it. */
static inline __u64 segments_in(__u64 gso_segs, __u64 gso_size, __u64 length, __u64 on_wire, __u64 before)
{
	__u64 most, added, headers;

	if (gso_segs || !gso_size)
		return larger(gso_segs, 1);
	most = (length + gso_size - 1) / gso_size;
	if (on_wire <= length)
		return most > 2 ? most : 1;
	if (most < 3)
		return most;
	added = on_wire - length;
	headers = added / (most - 1);
	if (added % (most - 1) || headers < before + MIN_HEADERS ||
	    (headers - before) % 4 || length <= headers)
		return most - 1;
	return (length - headers + gso_size - 1) / gso_size == most ? most : most - 1;
}

/* CoDel in integers: freshline-core's router::codel::Law, where its states are explained. */
struct codel_settings {
	/* 0 for none; at most the interval. */
	__u64 target_ns;
	/* Below 2^32. */
	__u64 interval_ns;
	/* Bytes. */
	__u64 max_packet;
};

struct codel_state {
	__u64 has_due;
	__u64 due_ns;
	__u64 is_dropping;
	__u64 drop_next_ns;
	__u64 count;
	__u64 first_count;
};

/* An episode that ended less than this many intervals ago continues near its rate. */
#define CODEL_MEMORY 16

/* interval / sqrt(count), rounded: spacings are added up, and what each is cut by would add up, too. */
static inline __u64 codel_spacing(const struct codel_state *state, const struct codel_settings *settings)
{
	__u64 square = settings->interval_ns * settings->interval_ns / larger(state->count, 1);
	__u64 root = square_root(square);

	return root + (square - root * root > root);
}

/* The queue ran empty. */
static inline void codel_on_empty(struct codel_state *state)
{
	state->has_due = 0;
	state->is_dropping = 0;
}

static inline int codel_is_standing(struct codel_state *state, __u64 now_ns, __u64 sojourn_ns, __u64 behind,
				    const struct codel_settings *settings)
{
	if (sojourn_ns < settings->target_ns || behind <= settings->max_packet) {
		state->has_due = 0;
		return 0;
	}
	if (!state->has_due) {
		state->has_due = 1;
		state->due_ns = now_ns + settings->interval_ns;
	}
	return now_ns >= state->due_ns;
}

/* Whether the head of the queue is dropped, after so long in it and with so many bytes behind it. Asked
 * once for each packet that leaves. */
static inline int codel_strikes(struct codel_state *state, __u64 now_ns, __u64 sojourn_ns, __u64 behind,
				const struct codel_settings *settings)
{
	__u64 last, since;

	if (!settings->target_ns)
		return 0;
	if (!codel_is_standing(state, now_ns, sojourn_ns, behind, settings)) {
		state->is_dropping = 0;
		return 0;
	}
	if (!state->is_dropping) {
		last = state->count - state->first_count;
		since = now_ns > state->drop_next_ns ? now_ns - state->drop_next_ns : 0;
		state->count = since < settings->interval_ns * CODEL_MEMORY && last > 1 ? last : 1;
		state->first_count = state->count;
		state->is_dropping = 1;
		state->drop_next_ns = now_ns + codel_spacing(state, settings);
		return 1;
	}
	if (now_ns < state->drop_next_ns)
		return 0;
	if (state->count < ~0U)
		state->count++;
	state->drop_next_ns += codel_spacing(state, settings);
	return 1;
}

/* Times in the queue are counted in buckets: the leading bit of a time and the next SOJOURN_BITS, so
 * that a bucket is 1/16 wide. Longer than SOJOURN_MOST is as long as that: 18 minutes. */
#define SOJOURN_BITS 4
#define SOJOURN_MOST ((1ULL << 40) - 1)
#define SOJOURN_BUCKETS 592

static inline __u64 sojourn_bucket(__u64 ns)
{
	__u64 value = smaller(ns, SOJOURN_MOST), rest = value, bits = 0, shift;

	/* Most packets of a link that is not full. */
	if (!value)
		return 0;
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
