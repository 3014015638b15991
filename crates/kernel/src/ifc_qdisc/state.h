/* What the queueing discipline remembers: its maps, which hold the packets and are shared with the loader,
 * and its own variables. For main.bpf.c alone. */
#ifndef FRESHLINE_IFC_STATE_H
#define FRESHLINE_IFC_STATE_H

#include "qdisc.h"

#include "intf.h"
#include "turns.h"

/* How many places for drop-averse packets there are, and how many chains of flows and of hosts: powers of
 * two, less one. */
const volatile __u32 slots_mask;
const volatile __u32 chains_mask;

/* How long until the kernel asks again should a packet be missing where one is counted. */
#define AGAIN_NS 1000000
/* More than wait in a queue. */
#define MAX_WAITING (1 << 20)
/* How many transmissions may be over and lanes have their turn when the kernel asks, until it has to ask
 * again. */
#define MAX_STEPS (1 << 14)

/* A packet, and what is to be remembered of it. */
struct place {
	struct sk_buff __kptr *skb;
	__u64 arrived_ns;
	/* Of one on the link: how long it waited before. */
	__u64 waited_ns;
	__u64 bytes;
	/* More than one of a super-packet. */
	__u64 segments;
	__u64 queue;
	/* Of one in a lane: the slot of the packet behind it. Of a free slot: the next free one. */
	__u64 next;
	/* Its flow's row in `flows`, and number there; a row is another flow's later. */
	__u64 flow_row;
	__u64 flow_number;
};

/* A set of rows in `flows`: in which of them a flow of a hash may be. */
#define FLOW_SETS 512
#define WAYS 8

struct flow_set {
	/* The rest of the hash, never 0, which is that of a row that has not been used. */
	__u32 tags[WAYS];
};

/* A queue of drop-averse packets: those of the flows with one hash. */
struct lane {
	/* Its packets' slots, NONE where it is empty. */
	__u64 first;
	__u64 last;
	__u64 bytes;
	/* Bytes that it may still send this turn; not positive after a packet larger than that. */
	__s64 credit;
	/* The epoch in which it has been put into a list of lanes. */
	__u64 epoch;
	/* The lane behind it in that list. */
	__u64 next;
	struct codel_state codel;
};

/* Lanes in the order in which they are served. */
struct lane_list {
	__u64 first;
	__u64 last;
};

/* Shared with the loader, which pins each as a map of one value: variables, as they need no lookup. */
struct settings settings SEC(".data.settings");
struct account books[BOOKS] SEC(".data.books");
struct about about SEC(".data.about");

/* The flows that have an update waiting, which is the newest, and their hosts: in turn (turns.h), the latter
 * also by the numbers of their flows. */
struct update {
	struct turn_flow turn;
	struct place place;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct update);
} updates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct turn_host);
} turn_hosts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} hosts_by_flows SEC(".maps");

/* The chains by which both are found (chains.h). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} flow_chains SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} host_chains SEC(".maps");

/* Places for drop-averse packets, and behind them MAX_OTHER places for OTHER. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct place);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct lane);
} lanes SEC(".maps");

/* What is being sent: an update, or a packet of OTHER; and a drop-averse packet, of which updates may have
 * interrupted the segments. And a packet whose transmission is over. */
enum line {
	WHOLE,
	IN_SEGMENTS,
	OVER,
	LINES,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LINES);
	__type(key, __u32);
	__type(value, struct place);
} link SEC(".maps");

/* Nothing here reads it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct found);
} found SEC(".maps");

/* How long packets waited: the buckets of each class. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CLASSES * SOJOURN_BUCKETS);
	__type(key, __u32);
	__type(value, __u64);
} sojourns SEC(".maps");

/* A flow of which nothing is known yet; too long for the stack. */
struct flow_account unknown_flow;

/* The newest flows (flows.h). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOW_SETS * WAYS);
	__type(key, __u32);
	__type(value, struct flow_account);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOW_SETS);
	__type(key, __u32);
	__type(value, struct flow_set);
} flow_sets SEC(".maps");

/* Of the one queueing discipline that this program is: who it is, 0 for none. Not static, or the
 * compiler takes structs apart, whose types the kernel is then told wrong. */
__u64 owner;
/* Of all hashes. */
__u64 secrets[SECRETS];
struct scheduler_state scheduler;
struct shaper shaper;
struct turns turns = NO_TURNS;
/* Lanes that woke since the others had their turns, and the others. */
struct lane_list new_lanes = { NONE, NONE };
struct lane_list old_lanes = { NONE, NONE };
/* Counted up when all lanes are empty, which takes them from their lists; no lane has begun in epoch 0. */
__u64 epoch = 1;
/* The first of the slots that were used and are free, and how many were ever used. */
__u64 free_slot = NONE;
__u64 used_slots;
/* What CoDel and overflows dropped in this call, for the kernel's counts. */
__u64 dropped_packets;
__u64 dropped_on_wire;
/* The longest lane, while it is looked for, and its bytes. */
__u64 longest;
__u64 max_queue_bytes;
/* The places of OTHER's ring, counted without end; of the other queues, how many came and went. */
__u32 first[QUEUES];
__u32 next[QUEUES];
/* Which line is in transmission, counted from 1; 0 for none. */
__u64 sending;
/* Whether the last turn of those that are not updates was OTHER's. */
__u64 beside_was_last;
/* How many segments of the drop-averse packet are not over. */
__u64 segments_left;
/* The packet that has just come. */
__u8 front[FRONT_MEMORY] __attribute__((aligned(8)));
__u32 front_length;
/* How many of its bytes are before its IP header. */
__u32 before;
struct header header;

static __always_inline struct account *account_of(__u32 queue)
{
	return &books[queue % BOOKS];
}

/* How many places of a queue's ring are taken; a queue is a constant. */
#define waiting(queue) ((__u32)(next[queue] - first[queue]))

/* Where the packet of this number is, of those of OTHER. */
static __always_inline struct place *place_beside(__u32 number)
{
	__u32 key = slots_mask + 1 + (number & (MAX_OTHER - 1));

	return bpf_map_lookup_elem(&slots, &key);
}

#endif
