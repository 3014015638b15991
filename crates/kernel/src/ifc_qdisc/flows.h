/* Accounts of recent flows, in a set-associative table: the hash of a flow (chains.h) selects a set of WAYS
 * rows. A new flow replaces the flow of its set that has been silent for the longest time. For main.bpf.c
 * only. */
#ifndef FRESHLINE_IFC_FLOWS_H
#define FRESHLINE_IFC_FLOWS_H

#include "state.h"

/* Assigns a row to a new flow. */
static __always_inline struct flow_account *begin_flow(__u64 row, const struct flow *flow)
{
	struct flow_account *account;
	__u32 key = row;

	bpf_map_update_elem(&flows, &key, &unknown_flow, BPF_ANY);
	account = bpf_map_lookup_elem(&flows, &key);
	if (!account)
		return NULL;
	account->flow = *flow;
	account->number = ++about.flows_begun;
	account->first_ns = bpf_ktime_get_boot_ns();
	return account;
}

/* The row of a set whose flow has been silent for the longest time; an unused row if there is one. */
static __always_inline __u64 most_silent(__u64 set)
{
	__u64 row = set * WAYS, silent_ns = ~0ULL;

	for (__u32 way = 0; way < WAYS; way++) {
		__u32 key = set * WAYS + way;
		const struct flow_account *account = bpf_map_lookup_elem(&flows, &key);

		if (account && account->last_ns < silent_ns) {
			silent_ns = account->last_ns;
			row = key;
		}
	}
	return row;
}

/* The account of an arriving packet's flow, which may be new; NULL if the maps cannot be read. */
static __always_inline struct flow_account *flow_account(const struct flow *flow, __u64 hash, __u64 *row)
{
	__u32 number = hash % FLOW_SETS, tag = hash / FLOW_SETS | 1;
	struct flow_set *set = bpf_map_lookup_elem(&flow_sets, &number);
	struct flow_account *account;

	if (!set)
		return NULL;
	for (__u32 way = 0; way < WAYS; way++) {
		__u32 key = number * WAYS + way;

		if (set->tags[way] != tag)
			continue;
		account = bpf_map_lookup_elem(&flows, &key);
		if (account && is_same_flow(&account->flow, flow)) {
			*row = key;
			return account;
		}
	}
	*row = most_silent(number);
	account = begin_flow(*row, flow);
	set->tags[*row % WAYS] = tag;
	return account;
}

/* The account of a packet's flow; NULL if its row belongs to another flow now. */
static __always_inline struct flow_account *flow_of(const struct place *packet)
{
	__u32 key = packet->flow_row;
	struct flow_account *account = bpf_map_lookup_elem(&flows, &key);

	return account && account->number == packet->flow_number ? account : NULL;
}

#endif
