/* What the queueing discipline remembers: its maps, which hold the packets and are shared with the loader,
 * and its own variables. For main.bpf.c alone. */
#ifndef FRESHLINE_IFC_STATE_H
#define FRESHLINE_IFC_STATE_H

#include "qdisc.h"

#include "intf.h"

/* How many places the rings have, less one; powers of two, less one. */
const volatile __u32 tokens_mask;
const volatile __u32 slots_mask;

/* How long until the kernel asks again should a packet be missing where one is counted. */
#define AGAIN_NS 1000000
/* More than wait in a queue. */
#define MOST_WAITING (1 << 20)
/* How many transmissions may be over when the kernel asks, until it has to ask again. */
#define MOST_STEPS 256

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
	struct flow flow;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

/* The newest packet of each flow that has one waiting. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct flow);
	__type(value, struct place);
} newest SEC(".maps");

/* These flows, in the order in which they have come. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} tokens SEC(".maps");

/* Drop-averse packets, and behind them MOST_BESIDE places for what is no IP. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct place);
} slots SEC(".maps");

/* What is being sent: an update, or what is no IP; and a drop-averse packet, of which updates may have
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

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, QUEUES);
	__type(key, __u32);
	__type(value, struct account);
} books SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct about);
} about SEC(".maps");

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

/* Those that have been silent for long make room for new ones. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct flow);
	__type(value, struct flow_account);
} flows SEC(".maps");

/* Of the one queueing discipline that this program is: who it is, 0 for none. Not static, or the
 * compiler takes structs apart, whose types the kernel is then told wrong. */
__u64 owner;
struct scheduler_state scheduler;
struct shaper shaper;
/* The places of the rings, counted without end. */
__u32 first[QUEUES];
__u32 next[QUEUES];
/* Which line is in transmission, counted from 1; 0 for none. */
__u64 sending;
/* How many segments of the drop-averse packet are not over. */
__u64 segments_left;
/* The packet that has just come. */
__u8 front[FRONT_MEMORY];
__u32 front_length;
struct header header;

static __always_inline struct account *account_of(__u32 queue)
{
	return bpf_map_lookup_elem(&books, &queue);
}

/* How many places of a queue's ring are taken; a queue is a constant. */
#define waiting(queue) ((__u32)(next[queue] - first[queue]))

/* Where the packet of this number is, in the ring of a queue. */
static __always_inline struct place *slot(__u32 queue, __u32 number)
{
	__u32 key = number & slots_mask;

	if (queue == BESIDE)
		key = slots_mask + 1 + (number & (MOST_BESIDE - 1));
	return bpf_map_lookup_elem(&slots, &key);
}

#endif
