/* The state of a connection in both programs, and their actions when data arrives. */
#ifndef FRESHLINE_RECEIVER_CONNECTION_H
#define FRESHLINE_RECEIVER_CONNECTION_H

#include "../kernel.h"
#include "algorithm1.h"
#include "drwa.h"
#include "intf.h"
#include "../counters.h"

/* The number of timestamps in flight that are remembered to measure round trips. */
#define REMEMBERED 64
#define PEERS 4096

/* In a separate map, which can be found by its name. */
const volatile struct settings settings SEC(".rodata.setup");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PEERS);
	__type(key, struct address);
	__type(value, struct peer);
} peers SEC(".maps");

/* A timestamp (RFC 7323), and the time when it was first sent, in ns. */
struct stamp {
	__u64 sent_ns;
	__u64 value;
};

/* The fields for every segment come first, in the order of struct rtac, so that they are in few
 * cache lines. */
struct connection {
	/* The last timestamp that was sent, and the latest that the other side has echoed. */
	__u32 sent;
	__u32 echoed;
	struct rtac law;
	/* Indexed by their values modulo the length. */
	struct stamp stamps[REMEMBERED];
};

/* New data of a connection. */
struct arrival {
	__u64 now_ns;
	/* The time since the ack that it answers was sent; 0 if unknown. */
	__u64 rtt_ns;
	__u64 bytes;
	/* The bytes that the application has copied since the last arrival; on a device, where this
	 * is unknown, the bytes that arrived. */
	__u64 read;
	/* The largest segment. */
	__u64 segment;
	/* An upper bound of the path's RTT from before the first data; 0 if unknown. */
	__u64 known_ns;
};

/* Whether sequence number or timestamp `a` comes after `b`. */
static int is_after(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

/* A slot is in use until its timestamp, or a later one, is echoed, so that every round trip has
 * some samples, however long it is. */
static void remember(struct connection *connection, __u64 now_ns, __u32 value)
{
	struct stamp *stamp = &connection->stamps[value % REMEMBERED];

	connection->sent = value;
	if (stamp->sent_ns && is_after(stamp->value, connection->echoed))
		return;
	stamp->sent_ns = now_ns;
	stamp->value = value;
}

/* The round trip of an echo, in ns; 0 without a sample. */
static __u64 round_trip(struct connection *connection, __u64 now_ns, __u32 echo)
{
	const struct stamp *stamp = &connection->stamps[echo % REMEMBERED];
	__u64 rtt_ns;

	/* An echo of a timestamp that was never sent, by mistake or on purpose. */
	if (!is_after(echo, connection->echoed) || is_after(echo, connection->sent))
		return 0;
	connection->echoed = echo;
	rtt_ns = now_ns - stamp->sent_ns;
	return stamp->value == echo && rtt_ns < MAX_RTT_NS ? rtt_ns : 0;
}

/* Not on the stack, which has 512 bytes. */
static const struct peer new_peer;

static struct peer *peer_at(const struct address *address)
{
	struct peer *known = bpf_map_lookup_elem(&peers, address);

	if (known)
		return known;
	bpf_map_update_elem(&peers, address, &new_peer, BPF_NOEXIST);
	return bpf_map_lookup_elem(&peers, address);
}

/* Passes the arrival to the law. Returns whether a round trip is over. */
static int tell(struct rtac *law, struct remote *remote, const struct arrival *arrival,
		const struct rtac_settings *constants)
{
	__u64 now_ns = arrival->now_ns, rtt_ns = arrival->rtt_ns;

	if (settings.law == DRWA) {
		if (rtt_ns)
			drwa_on_round_trip(law, remote, now_ns, rtt_ns);
		return drwa_on_arrival(law, remote, now_ns, arrival->bytes, arrival->segment);
	}
	if (constants->is_pure) {
		if (rtt_ns)
			algorithm1_on_round_trip(law, remote, rtt_ns);
		return algorithm1_on_read(law, remote, now_ns, arrival->read, arrival->segment,
					  constants);
	}
	if (rtt_ns)
		rtac_on_round_trip(law, remote, now_ns, rtt_ns, constants);
	return rtac_on_arrival(law, remote, now_ns, arrival->bytes, arrival->segment, constants);
}

static void on_arrival(struct rtac *law, const struct address *from, const struct arrival *arrival)
{
	struct rtac_settings constants = settings.rtac;
	struct peer *peer = peer_at(from);

	if (!peer)
		return;
	if (!law->flow) {
		law->flow = ++peer->remote.flows;
		if (arrival->known_ns)
			rtac_learn(&peer->remote, arrival->known_ns);
	}
	if (arrival->rtt_ns)
		count(ROUND_TRIPS);
	if (!tell(law, &peer->remote, arrival, &constants))
		return;
	peer->owner = rtac_owner(law, &peer->remote, &constants);
	peer->held = law->held;
	peer->segment = arrival->segment;
	peer->rtt_ns = law->rtt_ns;
	peer->rate = law->rate;
	peer->queue = law->queue;
	peer->window = law->window;
	peer->rounds += 1;
	peer->heard_ns = arrival->now_ns;
}

#endif
