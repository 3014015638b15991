/* turns.h of IFC as a program: a queue of updates, reduced to their flows. It reads line by line
 *
 *     queue MOST BY_HOST CHAINS       a new queue with room for MOST flows, in CHAINS chains
 *     come HIGH LOW PORT          ->  the result, an enum fate, and the flow that lost its place, or zeros
 *     go                          ->  whether there was a flow, and that flow
 *
 * where HIGH and LOW are the halves of a source address. */
#include <stdio.h>
#include <string.h>

#include "../src/ifc_qdisc/turns.h"
#include "host/number.h"

#define MAX_FLOWS 64
#define MAX_CHAINS 64

enum fate {
	JOINED,
	REPLACED,
	REFUSED,
	EVICTED,
};

static struct turn_flow flows[MAX_FLOWS];
static struct turn_host hosts[MAX_FLOWS];
static __u64 with[MAX_FLOWS + 1];
static __u64 flow_chains[MAX_CHAINS], host_chains[MAX_CHAINS];
static __u64 most, by_host, chains;
static __u64 secrets[SECRETS];
static struct turns turns;

static inline struct turn_flow *turn_flow(__u64 row)
{
	return row < most ? &flows[row] : NULL;
}

static inline struct turn_host *turn_host(__u64 row)
{
	return row < most ? &hosts[row] : NULL;
}

static inline __u64 *hosts_with(__u64 number)
{
	return number <= most ? &with[number] : NULL;
}

static inline __u64 *flow_chain(__u64 hash)
{
	return &flow_chains[hash % chains];
}

static inline __u64 *host_chain(__u64 hash)
{
	return &host_chains[hash % chains];
}

static void big_endian(unsigned long long value, __u8 *bytes)
{
	for (int at = 7; at >= 0; at--, value >>= 8)
		bytes[at] = value;
}

static void print(int what, const struct flow *flow)
{
	printf("%d %llu %llu %d\n", what, number64(flow->source), number64(flow->source + 8),
	       flow->source_port);
}

/* Like put_newest of arrive.h. */
static void come(const struct flow *flow)
{
	__u64 hash = hash_of_flow(secrets, flow), row = turns_flow(flow, hash), host = NONE, victim;
	struct host_key key = host_of(secrets, flow);
	struct flow lost = { { 0 } };
	enum fate fate = JOINED;

	if (turn_flow(row)) {
		print(REPLACED, &lost);
		return;
	}
	if (by_host)
		host = turns_host(&key);
	if (row == NO_ROOM || host == NO_ROOM) {
		print(REFUSED, &lost);
		return;
	}
	if (turns.used_flows >= most && turns.free_flow == NONE) {
		victim = turns_victim(&turns, host);
		if (victim == NONE) {
			print(REFUSED, &lost);
			return;
		}
		row = turns_take(&turns, victim);
		fate = row == NONE ? REFUSED : EVICTED;
		lost = turn_flow(row)->flow;
	}
	if (turns_join(&turns, flow, hash, host, by_host ? &key : NULL) == NONE)
		fate = REFUSED;
	print(fate, &lost);
}

int main(void)
{
	char what[16];

	while (scanf("%15s", what) == 1) {
		struct flow flow = { { 0 } };

		if (!strcmp(what, "queue")) {
			struct turns none = NO_TURNS;

			turns = none;
			memset(with, 0, sizeof(with));
			most = number();
			by_host = number();
			chains = number();
			memset(flow_chains, 0, sizeof(flow_chains));
			memset(host_chains, 0, sizeof(host_chains));
			/* Any secrets will do. */
			for (unsigned int at = 0; at < SECRETS; at++)
				secrets[at] = secrets[at] * 6364136223846793005ULL + 2 * at + 12345;
		} else if (!strcmp(what, "come")) {
			big_endian(number(), flow.source);
			big_endian(number(), flow.source + 8);
			flow.source_port = number();
			come(&flow);
		} else if (!strcmp(what, "go")) {
			__u64 row = turns_serve(&turns);

			print(row != NONE, row != NONE ? &turn_flow(row)->flow : &flow);
		} else {
			return 1;
		}
	}
	return 0;
}
