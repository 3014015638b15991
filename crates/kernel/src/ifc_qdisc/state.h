/* The state of the queueing discipline: its maps, which hold the packets or are shared with the loader, and its
 * variables. For main.bpf.c only. */
#ifndef FRESHLINE_IFC_STATE_H
#define FRESHLINE_IFC_STATE_H

#include "qdisc.h"

#include "intf.h"
#include "turns.h"

/* The number of places for drop-averse packets, and the number of chains of flows and of hosts: powers of two,
 * minus one. */
const volatile __u32 slots_mask;
const volatile __u32 chains_mask;

/* The time until the kernel's next request, if a counted packet is missing. */
#define AGAIN_NS 1000000
/* More packets than a queue can hold. */
#define MAX_WAITING (1 << 20)
/* The maximum number of steps (ends of transmissions, turns of lanes) per request of the kernel. */
#define MAX_STEPS (1 << 14)

/* A packet and its metadata. */
struct place {
	struct sk_buff __kptr *skb;
	__u64 arrived_ns;
	/* Of a packet on the link: its sojourn time in the queue. */
	__u64 waited_ns;
	__u64 bytes;
	/* The number of segments; above one for a super-packet. */
	__u64 segments;
	__u64 queue;
	/* In a lane: the slot of the next packet. In a free slot: the next free slot. */
	__u64 next;
	/* The row of its flow in `flows`, and the flow's number: the row may belong to another flow later. */
	__u64 flow_row;
	__u64 flow_number;
};

/* A set of rows in `flows`, with a tag per row. */
#define FLOW_SETS 512
#define WAYS 8

struct flow_set {
	/* The rest of the flow's hash, never 0; 0 for an unused row. */
	__u32 tags[WAYS];
};

/* A queue of drop-averse packets, of the flows with one hash value. */
struct lane {
	/* The slots of its first and last packets; NONE if it is empty. */
	__u64 first;
	__u64 last;
	__u64 bytes;
	/* The bytes that it may still send in this turn; zero or less ends the turn. */
	__s64 credit;
	/* The epoch in which it was put into a list of lanes. */
	__u64 epoch;
	/* The next lane in that list. */
	__u64 next;
	struct codel_state codel;
};

/* Lanes in the order in which they are served. */
struct lane_list {
	__u64 first;
	__u64 last;
};

/* Shared with the loader, which pins each as a map of one value. They are variables, as these need no lookup. */
struct settings settings SEC(".data.settings");
struct account books[BOOKS] SEC(".data.books");
struct about about SEC(".data.about");

/* The flows with a queued update, their newest one, and the hosts of these flows. Both are in the order of
 * their turns (turns.h), and hosts also by their numbers of flows. */
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

/* The hash chains of flows and of hosts (chains.h). */
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

/* The places for drop-averse packets, followed by MAX_OTHER places for OTHER. */
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

/* The lines of the link: WHOLE is an update or a packet of OTHER in transmission; IN_SEGMENTS is a drop-averse
 * packet, whose segments may be interleaved with updates; OVER is a packet whose transmission is over. */
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

/* For the loader; the program does not read it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct found);
} found SEC(".maps");

/* The buckets of sojourn times, per class. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CLASSES * SOJOURN_BUCKETS);
	__type(key, __u32);
	__type(value, __u64);
} sojourns SEC(".maps");

/* The initial account of a flow; too large for the stack. */
struct flow_account unknown_flow;

/* The recent flows (flows.h). */
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

/* The address of the kernel's Qdisc that uses this program; 0 for none. This and the following variables are
 * not static: the compiler would split structs, and report wrong types to the kernel. */
__u64 owner;
/* The secrets of all hashes (chains.h). */
__u64 secrets[SECRETS];
struct scheduler_state scheduler;
struct shaper shaper;
struct turns turns = NO_TURNS;
/* Lanes that have become active and not had a turn yet, and the other active lanes. */
struct lane_list new_lanes = { NONE, NONE };
struct lane_list old_lanes = { NONE, NONE };
/* Incremented when all lanes become empty, which removes them from their lists. A lane with epoch 0 is not in a
 * list. */
__u64 epoch = 1;
/* The first free slot among the used ones, and the number of slots that were ever used. */
__u64 free_slot = NONE;
__u64 used_slots;
/* Packets that CoDel and overflows have dropped in this call, and their bytes, for the kernel's counters. */
__u64 dropped_packets;
__u64 dropped_on_wire;
/* During the search for the longest lane: the longest one so far, and its bytes. */
__u64 longest;
__u64 max_queue_bytes;
/* Per queue, the numbers of packets that were dequeued and enqueued so far; for OTHER they are also the
 * positions in its ring. */
__u32 first[QUEUES];
__u32 next[QUEUES];
/* The line in transmission, plus 1; 0 for none. */
__u64 sending;
/* Whether the last packet or segment that was not an update was of OTHER. */
__u64 beside_was_last;
/* The number of segments of the drop-averse packet on the link that are not sent yet. */
__u64 segments_left;
/* The front of the arriving packet. */
__u8 front[FRONT_MEMORY] __attribute__((aligned(8)));
__u32 front_length;
/* The number of its bytes before the IP header. */
__u32 before;
struct header header;

static __always_inline struct account *account_of(__u32 queue)
{
	return &books[queue % BOOKS];
}

/* The number of queued packets; `queue` is a constant. */
#define waiting(queue) ((__u32)(next[queue] - first[queue]))

/* The place of the packet with this number in the ring of OTHER. */
static __always_inline struct place *place_beside(__u32 number)
{
	__u32 key = slots_mask + 1 + (number & (MAX_OTHER - 1));

	return bpf_map_lookup_elem(&slots, &key);
}

#endif
