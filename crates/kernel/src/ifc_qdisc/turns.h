/* The order in which flows send their updates, for BPF and for the host: with turns by host, as freshline-core's
 * router::IfilHosts, which explains the rules; with turns by flow, as router::Ifil.
 *
 *     by host:       the first flow of the host at the front is served; then the host moves to the end, or
 *                    leaves if it has no other flow
 *     by flow:       the same, and each flow has its own host
 *     a full queue:  a flow of a host with at least two flows fewer displaces the first flow of a host with
 *                    the most flows
 *
 * Flows and hosts are rows of arrays. Rows are linked by their numbers, and found by their keys (chains.h). Free
 * rows that were used before are in a list; rows that were never used come after all others. Each call follows
 * a bounded number of links. The packets are stored elsewhere, by the rows of their flows.
 *
 * The including file defines the arrays: turn_flow, turn_host and hosts_with return a pointer, or NULL if there
 * is no such row; flow_chain and host_chain return the first link of the chain of a hash. */
#ifndef FRESHLINE_IFC_TURNS_H
#define FRESHLINE_IFC_TURNS_H

#include "chains.h"

/* The key by which a host is looked up. */
struct host_key {
	/* Its address as on the wire: a whole IPv4 address (mapped), or the first half of an IPv6 address. */
	__u64 halves[2];
	__u64 hash;
};

struct turn_flow {
	/* The link of its chain. It is the first member, as the verifier does not support a pointer to another
	 * member that may be NULL. */
	__u64 link;
	__u64 hash;
	struct flow flow;
	/* The flow of the same host that joined next; in a free row, the next free row. */
	__u64 behind;
};

struct turn_host {
	/* The link of its chain; the first member, too. */
	__u64 link;
	struct host_key key;
	/* Whether it is in a chain: not with turns by flow. */
	__u64 is_chained;
	__u64 flows;
	__u64 first;
	__u64 last;
	/* The previous and the next host with the same number of flows. */
	__u64 before;
	__u64 after;
	/* The host with the next turn; in a free row, the next free row. */
	__u64 next;
};

struct turns {
	/* The first and the last host in the order of turns. */
	__u64 first;
	__u64 last;
	/* The maximum number of flows per host at the moment. */
	__u64 most;
	/* For flows and for hosts: the first free row, and the number of rows that were ever used. */
	__u64 free_flow;
	__u64 used_flows;
	__u64 free_host;
	__u64 used_hosts;
};

#define NO_TURNS { NONE, NONE, 0, NONE, 0, NONE, 0 }

static inline struct turn_flow *turn_flow(__u64 row);
static inline struct turn_host *turn_host(__u64 row);
/* The first host with `flows` flows, from 1 to the maximum number of flows: its row plus 1; 0 for none. */
static inline __u64 *hosts_with(__u64 flows);
static inline __u64 *flow_chain(__u64 hash);
static inline __u64 *host_chain(__u64 hash);

static inline __u64 *flow_link(__u64 row)
{
	struct turn_flow *flow = turn_flow(row);

	return flow ? &flow->link : NULL;
}

static inline __u64 *host_link(__u64 row)
{
	struct turn_host *host = turn_host(row);

	return host ? &host->link : NULL;
}

static inline struct host_key host_of(const __u64 *secrets, const struct flow *flow)
{
	struct host_key host;

	__builtin_memcpy(host.halves, flow->source, sizeof(flow->source));
	if (host.halves[0] || number32(flow->source + 8) != 0xffff)
		host.halves[1] = 0;
	host.hash = spread(secrets[0] + hashed(secrets, 0, host.halves[0]) +
			   hashed(secrets, 1, host.halves[1]));
	return host;
}

/* The row of a flow with a queued update; NONE if it has none, NO_ROOM if its chain is full as well. */
static inline __u64 turns_flow(const struct flow *flow, __u64 hash)
{
	const __u64 *first = flow_chain(hash);
	__u64 link = first ? *first : 0;

	for (int step = 0; step < MAX_CHAIN; step++) {
		const struct turn_flow *at = link ? turn_flow(link - 1) : NULL;

		if (!at)
			return NONE;
		if (at->hash == hash && is_same_flow(&at->flow, flow))
			return link - 1;
		link = at->link;
	}
	return NO_ROOM;
}

/* The row of a host with flows; NONE if it has none, NO_ROOM if its chain is full as well. */
static inline __u64 turns_host(const struct host_key *key)
{
	const __u64 *first = host_chain(key->hash);
	__u64 link = first ? *first : 0;

	for (int step = 0; step < MAX_CHAIN; step++) {
		const struct turn_host *at = link ? turn_host(link - 1) : NULL;

		if (!at)
			return NONE;
		if (at->key.halves[0] == key->halves[0] && at->key.halves[1] == key->halves[1])
			return link - 1;
		link = at->link;
	}
	return NO_ROOM;
}

/* The host that loses its first flow to a new flow of the host in row `known`, if the queue is full; NONE if
 * the new flow is refused. */
static inline __u64 turns_victim(const struct turns *turns, __u64 known)
{
	const struct turn_host *host = turn_host(known);
	const __u64 *head = hosts_with(turns->most);

	if (!head || turns->most < (host ? host->flows : 0) + 2)
		return NONE;
	return *head - 1;
}

/* Sets a host's number of flows, and moves it to the list of hosts with that number. */
static inline void turns_count(struct turns *turns, __u64 row, struct turn_host *host, __u64 flows)
{
	__u64 *head = hosts_with(host->flows);
	struct turn_host *other;

	if (host->flows) {
		other = turn_host(host->before);
		if (other)
			other->after = host->after;
		else if (head)
			*head = host->after + 1;
		other = turn_host(host->after);
		if (other)
			other->before = host->before;
	}
	host->flows = flows;
	host->before = NONE;
	head = hosts_with(flows);
	if (flows && head) {
		host->after = *head - 1;
		*head = row + 1;
		other = turn_host(host->after);
		if (other)
			other->before = row;
	}
	turns->most = larger(turns->most, flows);
	head = hosts_with(turns->most);
	if (turns->most && head && !*head)
		turns->most--;
}

/* Puts a host at the end of the turns. */
static inline void turns_append(struct turns *turns, __u64 row, struct turn_host *host)
{
	struct turn_host *last = turns->first != NONE ? turn_host(turns->last) : NULL;

	host->next = NONE;
	if (last)
		last->next = row;
	else
		turns->first = row;
	turns->last = row;
}

/* Assigns a row at the end of the turns to a host without flows. Returns the row, or NONE. Without a key, the
 * host is that of a single flow, and is never looked up. */
static inline __u64 turns_welcome(struct turns *turns, const struct host_key *key)
{
	__u64 row = turns->free_host != NONE ? turns->free_host : turns->used_hosts, *first;
	struct turn_host *host = turn_host(row);

	if (!host)
		return NONE;
	if (turns->free_host == row)
		turns->free_host = host->next;
	else
		turns->used_hosts++;
	host->flows = 0;
	host->is_chained = key != NULL;
	if (key) {
		host->key = *key;
		first = host_chain(key->hash);
		if (first)
			chain(first, row, &host->link);
	}
	turns_append(turns, row, host);
	return row;
}

/* Assigns a row to a flow, after the other flows of its host. The host is in row `known`; if that is NONE, the
 * host is new and has the key `key`, or NULL if it is the host of this flow only. Returns the flow's row, or
 * NONE. */
static inline __u64 turns_join(struct turns *turns, const struct flow *flow, __u64 hash, __u64 known,
			       const struct host_key *key)
{
	__u64 at = turns->free_flow != NONE ? turns->free_flow : turns->used_flows, row, *first;
	struct turn_flow *place = turn_flow(at), *last;
	struct turn_host *host;

	if (!place)
		return NONE;
	row = known != NONE ? known : turns_welcome(turns, key);
	host = turn_host(row);
	first = flow_chain(hash);
	if (!host || !first)
		return NONE;
	if (turns->free_flow == at)
		turns->free_flow = place->behind;
	else
		turns->used_flows++;
	place->flow = *flow;
	place->hash = hash;
	place->behind = NONE;
	chain(first, at, &place->link);
	last = host->flows ? turn_flow(host->last) : NULL;
	if (last)
		last->behind = at;
	else
		host->first = at;
	host->last = at;
	turns_count(turns, row, host, host->flows + 1);
	return at;
}

/* Removes the first flow of a host. Returns its row, which is free then, or NONE if the host has no flow. */
static inline __u64 turns_take(struct turns *turns, __u64 row)
{
	struct turn_host *host = turn_host(row);
	struct turn_flow *place = host ? turn_flow(host->first) : NULL;
	__u64 at;

	if (!place || !host->flows)
		return NONE;
	at = host->first;
	unchain(flow_chain(place->hash), at, &place->link, flow_link);
	host->first = place->behind;
	place->behind = turns->free_flow;
	turns->free_flow = at;
	turns_count(turns, row, host, host->flows - 1);
	return at;
}

/* Removes the flow that has the turn. Returns its row, which is free then, or NONE if there is no flow. */
static inline __u64 turns_serve(struct turns *turns)
{
	__u64 row = turns->first, at;
	struct turn_host *host = turn_host(row);

	if (!host)
		return NONE;
	turns->first = host->next;
	at = turns_take(turns, row);
	if (at == NONE)
		return NONE;
	if (host->flows) {
		turns_append(turns, row, host);
		return at;
	}
	if (host->is_chained)
		unchain(host_chain(host->key.hash), row, &host->link, host_link);
	host->next = turns->free_host;
	turns->free_host = row;
	return at;
}

#endif
