/* Whose update is sent next, for BPF and for the host: freshline-core's router::IfilHosts, where its rules
 * are explained, and with turns by flow router::Ifil.
 *
 *     hosts in turn ─► the first flow of the host at the front; the host goes to the end, or leaves with
 *                      its last flow
 *     by flow:         each flow has a host of its own
 *     a full queue:    a host with most flows loses its first one to a host with at least two fewer
 *
 * Flows and hosts are rows of arrays, linked by their numbers. Unused rows are linked, too, and rows never
 * used follow them. Each call follows a fixed number of links. The packets are elsewhere, by their flows.
 *
 * The file that includes this defines the arrays: turn_flow, turn_host and hosts_with give a pointer, or NULL where
 * there is no such row; host_row, set_host_row and forget_host_row are a table of hosts by their
 * addresses, which may forget, and may keep what it was to forget. */
#ifndef FRESHLINE_IFC_TURNS_H
#define FRESHLINE_IFC_TURNS_H

#include "packet.h"

/* The end of a list of rows. */
#define NONE (~0ULL)

/* The address that identifies a host, as on the wire: of IPv4 (mapped) all of it, of IPv6 the first half. */
struct host_address {
	__u64 halves[2];
};

struct turn_flow {
	struct flow flow;
	/* The flow of the same host that joined next; of an unused row, the next unused one. */
	__u64 behind;
};

struct turn_host {
	struct host_address address;
	/* Whether it is in the table by address; not where each flow has a host of its own. */
	__u64 is_in_table;
	__u64 flows;
	__u64 first;
	__u64 last;
	/* Its neighbours among the hosts with as many flows. */
	__u64 before;
	__u64 after;
	/* The host whose turn is next; of an unused row, the next unused one. */
	__u64 next;
};

struct turns {
	/* The hosts with a flow. */
	__u64 first;
	__u64 last;
	/* The largest number of flows that a host has. */
	__u64 most;
	/* The first unused rows, and how many rows were ever used. */
	__u64 free_flow;
	__u64 used_flows;
	__u64 free_host;
	__u64 used_hosts;
};

#define NO_TURNS { NONE, NONE, 0, NONE, 0, NONE, 0 }

static inline struct turn_flow *turn_flow(__u64 row);
static inline struct turn_host *turn_host(__u64 row);
/* The first host with so many flows, from 1 to their limit: its row plus 1, 0 for none. */
static inline __u64 *hosts_with(__u64 flows);
/* The row of a host, perhaps that of an earlier time; NONE for none. */
static inline __u64 host_row(const struct host_address *address);
static inline void set_host_row(const struct host_address *address, __u64 row);
static inline void forget_host_row(const struct host_address *address);

static inline struct host_address host_of(const struct flow *flow)
{
	struct host_address host;

	__builtin_memcpy(host.halves, flow->source, sizeof(host.halves));
	if (host.halves[0] || number32(flow->source + 8) != 0xffff)
		host.halves[1] = 0;
	return host;
}

/* The row of a host that has flows, NONE for none. */
static inline __u64 turns_host(const struct host_address *address)
{
	__u64 row = host_row(address);
	const struct turn_host *host = turn_host(row);

	if (!host || !host->flows || host->address.halves[0] != address->halves[0] ||
	    host->address.halves[1] != address->halves[1])
		return NONE;
	return row;
}

/* The host that loses its first flow where a flow of the host in row `known` finds no room; NONE for none. */
static inline __u64 turns_victim(const struct turns *turns, __u64 known)
{
	const struct turn_host *host = turn_host(known);
	const __u64 *head = hosts_with(turns->most);

	if (!head || turns->most < (host ? host->flows : 0) + 2)
		return NONE;
	return *head - 1;
}

/* Puts a host among those with so many flows. */
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

/* Puts a flow behind the others of its host, which is in row `known`, or where that is NONE has no flow
 * yet: then `address` is the host's, NULL for one of this flow alone. Whether there was a row. */
static inline int turns_join(struct turns *turns, const struct flow *flow, __u64 known,
			     const struct host_address *address)
{
	__u64 at = turns->free_flow != NONE ? turns->free_flow : turns->used_flows, row = known;
	struct turn_flow *place = turn_flow(at), *last;
	struct turn_host *host;

	if (row == NONE)
		row = turns->free_host != NONE ? turns->free_host : turns->used_hosts;
	host = turn_host(row);
	if (!place || !host)
		return 0;
	if (turns->free_flow == at)
		turns->free_flow = place->behind;
	else
		turns->used_flows++;
	place->flow = *flow;
	place->behind = NONE;
	if (known == NONE) {
		if (turns->free_host == row)
			turns->free_host = host->next;
		else
			turns->used_hosts++;
		host->flows = 0;
		host->is_in_table = address != NULL;
		if (address) {
			host->address = *address;
			set_host_row(address, row);
		}
		turns_append(turns, row, host);
	}
	last = host->flows ? turn_flow(host->last) : NULL;
	if (last)
		last->behind = at;
	else
		host->first = at;
	host->last = at;
	turns_count(turns, row, host, host->flows + 1);
	return 1;
}

/* Takes the first flow of a host that has one. Whether there was one. */
static inline int turns_take(struct turns *turns, __u64 row, struct flow *flow)
{
	struct turn_host *host = turn_host(row);
	struct turn_flow *place = host ? turn_flow(host->first) : NULL;
	__u64 at;

	if (!place || !host->flows)
		return 0;
	at = host->first;
	*flow = place->flow;
	host->first = place->behind;
	place->behind = turns->free_flow;
	turns->free_flow = at;
	turns_count(turns, row, host, host->flows - 1);
	return 1;
}

/* Takes the flow whose turn it is. Whether there was one. */
static inline int turns_serve(struct turns *turns, struct flow *flow)
{
	__u64 row = turns->first;
	struct turn_host *host = turn_host(row);

	if (!host)
		return 0;
	turns->first = host->next;
	if (!turns_take(turns, row, flow))
		return 0;
	if (host->flows) {
		turns_append(turns, row, host);
		return 1;
	}
	if (host->is_in_table)
		forget_host_row(&host->address);
	host->next = turns->free_host;
	turns->free_host = row;
	return 1;
}

#endif
