/* The schedulers of freshness control, the shaper and CoDel in integers, for BPF. Tests on the host compare
 * them with those of freshline-core, whose comments explain each step. Source of the schedulers: Tseng, Han,
 * Wierman, "In-Network Freshness Control: Trading Throughput for Freshness", section IV-A.
 *
 *     SDM: b = share S_LDA - (1 - share) S_AoI over the bytes S sent; the AoI class goes first if b > 0,
 *          or if b = 0 and share > 0
 *     TDM: frames of T_f: intervals T_AoI = share T_f and T_LDA = (1 - share) T_f in turn
 *     shaper: packet n of a busy period ends at start + ceil(sum of bits / rate) */
#ifndef FRESHLINE_IFC_LAW_H
#define FRESHLINE_IFC_LAW_H

#include "../numbers.h"

/* A share of 100 %; the share of the AoI class is a multiple of 1 / WHOLE_SHARE. */
#define WHOLE_SHARE 1000000ULL
#define NS_PER_S 1000000000ULL
#define BITS_PER_BYTE 8
#define UNLIMITED (~0ULL)
/* The maximum of the credit, in bytes (1 TiB); a larger credit is reduced to it. */
#define LARGEST_CREDIT (1ULL << 40)
/* The maximum of |b| with an unlimited credit: 4 TB in favour of one class. The core has no such limit. */
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
	/* The credit of SDM, in bytes, or UNLIMITED. */
	__u64 credit;
	/* The frame of TDM, in ns. */
	__u64 frame_ns;
};

struct scheduler_state {
	/* b of SDM, in bytes times WHOLE_SHARE, and the share with which it was computed. */
	__s64 budget;
	__u64 aoi_share;
	/* TDM: whether an interval has begun, the class whose interval it is, and its end. */
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

/* The interval of a class in a frame. It does not overflow, as shares are below 2^20. */
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

/* Resets b if the share has changed. */
static inline void sdm_go_by(struct scheduler_state *state, __u64 aoi_share)
{
	if (state->aoi_share == aoi_share)
		return;
	state->aoi_share = aoi_share;
	state->budget = 0;
}

/* The class that goes first. */
static inline enum class scheduler_prefers(struct scheduler_state *state, __u64 now_ns,
					   const struct scheduler_settings *settings)
{
	if (settings->scheduler == TDM)
		return tdm_prefers(state, now_ns, settings);
	sdm_go_by(state, settings->aoi_share);
	return sdm_prefers(state->budget, settings->aoi_share);
}

/* Updates b after `bytes` bytes of a class, fewer than 2^32, were sent. The credit limits |b| if the other class
 * was preferred. */
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

/* Whether a link control packet goes before the drop-averse ones. While both are queued, link control packets
 * have every second turn: a flood of them, as guests of a bridge can send, takes no more than that. */
static inline int beside_goes_first(__u64 beside, __u64 others, __u64 was_last)
{
	return beside && (!others || !was_last);
}

struct shaper {
	/* The end of the last transmission. */
	__u64 free_ns;
	/* The amount by which `free_ns` was rounded up, in ns times bit/s; less than the rate. */
	__u64 rounding;
	__u64 rate;
	/* The bytes on the link of the last transmission. */
	__u64 bytes;
};

/* A packet arrives while the link has nothing to send. */
static inline void shaper_on_arrival(struct shaper *shaper, __u64 now_ns)
{
	if (now_ns <= shaper->free_ns)
		return;
	shaper->free_ns = now_ns;
	shaper->rounding = 0;
}

/* The longest pause of the device that the shaper makes up for. After a longer pause the device would get a
 * burst (Hop::forgo_until). */
#define MAX_ARREARS_NS 5000000ULL

/* The device asks for packets at this time. If the rate has changed, the rest of the present transmission takes
 * no longer than all of it takes at the new rate: a rate that was too low by mistake can be corrected. */
static inline void shaper_on_asked(struct shaper *shaper, __u64 now_ns, __u64 rate)
{
	__u64 bit_ns = shaper->bytes * BITS_PER_BYTE * NS_PER_S;

	if (rate && rate != shaper->rate)
		shaper->free_ns = smaller(shaper->free_ns, now_ns + bit_ns / rate + (bit_ns % rate != 0));
	if (now_ns > MAX_ARREARS_NS)
		shaper->free_ns = larger(shaper->free_ns, now_ns - MAX_ARREARS_NS);
}

/* Sends `bytes` bytes, fewer than 2^31, after the last transmission, at `rate` bit/s, at least 1. Returns the
 * end of the transmission. */
static inline __u64 shaper_send(struct shaper *shaper, __u64 bytes, __u64 rate)
{
	__u64 bit_ns = bytes * BITS_PER_BYTE * NS_PER_S, wanted, over;

	rate = larger(rate, 1);
	if (shaper->rate != rate)
		shaper->rounding = 0;
	shaper->rate = rate;
	shaper->bytes = bytes;
	if (bit_ns <= shaper->rounding) {
		/* A small packet on a fast link takes less time than the last rounding. */
		shaper->rounding -= bit_ns;
		return shaper->free_ns;
	}
	wanted = bit_ns - shaper->rounding;
	over = wanted % rate;
	shaper->rounding = over ? rate - over : 0;
	shaper->free_ns += wanted / rate + (over != 0);
	return shaper->free_ns;
}

/* The overhead of a link per IP packet, as freshline-core's link::Framing. */
enum cells {
	NO_CELLS,
	ATM,
	PTM,
};

struct framing {
	/* Both in bytes, at most 256. */
	__u64 overhead;
	__u64 mpu;
	__u64 cells;
};

/* The bytes on the link for an IP packet of `bytes` bytes, fewer than 2^32. */
static inline __u64 on_link(__u64 bytes, const struct framing *framing)
{
	__u64 padded = larger(bytes + framing->overhead, framing->mpu);

	if (framing->cells == ATM)
		return (padded + 47) / 48 * 53;
	if (framing->cells == PTM)
		return padded + (padded + 63) / 64;
	return padded;
}

/* The headers of IPv4 and UDP, in bytes. */
#define MIN_HEADERS 28

/* The number of segments of a packet. `length` counts its headers once, `on_wire` once per segment; the IP
 * header begins at byte `before`. Super-packets of virtual machines have a segment size, but no number of
 * segments (`gso_segs` is 0, SKB_GSO_DODGY); the kernel has used the number for `on_wire`
 * (qdisc_pkt_len_init):
 *
 *     segments = ceil((length - headers) / gso_size)        on_wire = length + (segments - 1) headers
 *
 * As headers are shorter than a segment, only two numbers are possible. The right one gives headers that IP and
 * a transport protocol can have: a multiple of 4 bytes, and at least MIN_HEADERS. */
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

/* CoDel in integers, as freshline-core's router::codel::Law, which explains the states. */
struct codel_settings {
	/* 0 turns CoDel off; at most the interval. */
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

/* If the last dropping episode ended less than this many intervals ago, the next one continues near its drop
 * rate. */
#define CODEL_MEMORY 16

/* interval / sqrt(count), rounded to nearest: errors of truncation would add up, as spacings are summed. */
static inline __u64 codel_spacing(const struct codel_state *state, const struct codel_settings *settings)
{
	__u64 square = settings->interval_ns * settings->interval_ns / larger(state->count, 1);
	__u64 root = square_root(square);

	return root + (square - root * root > root);
}

/* The queue has become empty. */
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

/* Whether CoDel drops the first packet of the queue, with its sojourn time and the bytes `behind` it. Called
 * once per dequeued packet. */
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

/* Sojourn times are counted in buckets by their leading bit and the next SOJOURN_BITS bits, so the width of a
 * bucket is at most 1/16 of the time. Times above SOJOURN_MOST (18 minutes) count as SOJOURN_MOST. */
#define SOJOURN_BITS 4
#define SOJOURN_MOST ((1ULL << 40) - 1)
#define SOJOURN_BUCKETS 592

static inline __u64 sojourn_bucket(__u64 ns)
{
	__u64 value = smaller(ns, SOJOURN_MOST), rest = value, bits = 0, shift;

	/* Most packets, while the link is not saturated. */
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

/* Flows have fewer and wider buckets: each joins four of the buckets above, up to 17 s; the first one holds
 * all times below 16 us. */
#define FLOW_SOJOURN_JOINS 4
#define FLOW_SOJOURN_SKIPS 43
#define FLOW_SOJOURN_BUCKETS 81

static inline __u64 flow_sojourn_bucket(__u64 bucket)
{
	__u64 joint = larger(bucket / FLOW_SOJOURN_JOINS, FLOW_SOJOURN_SKIPS) - FLOW_SOJOURN_SKIPS;

	return smaller(joint, FLOW_SOJOURN_BUCKETS - 1);
}

#endif
