/* What both programs know of a connection, and what they do when data has come over it. */
#ifndef FRESHLINE_RECEIVER_CONNECTION_H
#define FRESHLINE_RECEIVER_CONNECTION_H

#include "../kernel.h"
#include "algorithm1.h"
#include "drwa.h"
#include "intf.h"
#include "../counters.h"

/* Timestamps on their way that are remembered, to measure round trips. */
#define REMEMBERED 64
#define PEERS 4096

/* A map of its own, so that it can be found again by its name. */
const volatile struct settings settings SEC(".rodata.setup");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PEERS);
	__type(key, struct address);
	__type(value, struct peer);
} peers SEC(".maps");

/* A timestamp (RFC 7323), and when it was first sent, ns. */
struct stamp {
	__u64 sent_ns;
	__u64 value;
};

/* What every segment needs comes first, in the order of struct rtac, so that it is in few cache lines. */
struct connection {
	/* The timestamp sent last, and the latest that the other side has echoed. */
	__u32 sent;
	__u32 echoed;
	struct rtac law;
	/* By their values modulo the length. */
	struct stamp stamps[REMEMBERED];
};

/* New data of a connection. */
struct arrival {
	__u64 now_ns;
	/* How long ago the ack was sent that it answers; 0 if it does not tell. */
	__u64 rtt_ns;
	__u64 bytes;
	/* How much the program has copied since the last arrival; on a device, where nobody sees
	 * that, how much has come. */
	__u64 read;
	/* The largest segment. */
	__u64 segment;
	/* The path is known to be as short as this from before the first data; 0 if it is not. */
	__u64 known_ns;
};

/* Whether sequence number or timestamp `a` comes after `b`. */
static int is_after(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

/* A place is taken until its stamp, or a later one, is echoed: so that there are some of every
 * round trip, however long it is. */
static void remember(struct connection *connection, __u64 now_ns, __u32 value)
{
	struct stamp *stamp = &connection->stamps[value % REMEMBERED];

	connection->sent = value;
	if (stamp->sent_ns && is_after(stamp->value, connection->echoed))
		return;
	stamp->sent_ns = now_ns;
	stamp->value = value;
}

/* The round trip that an echo tells, ns; 0 if it tells none. */
static __u64 round_trip(struct connection *connection, __u64 now_ns, __u32 echo)
{
	const struct stamp *stamp = &connection->stamps[echo % REMEMBERED];
	__u64 rtt_ns;

	/* What was never sent is a mistake, or no mistake at all. */
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

/* Tells the law. Whether a round trip is over. */
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
