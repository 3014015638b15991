/* turns.h of IFC as a program: a queue of updates, of which only the flows matter. It reads line by line
 *
 *     queue MOST BY_HOST              begins anew, with room for so many flows
 *     come HIGH LOW PORT          ->  what happens, an enum fate, and which flow lost its place, or zeros
 *     go                          ->  whether there was a flow, and which
 *
 * where HIGH and LOW are the halves of a source address. */
#include <stdio.h>
#include <string.h>

#include "../src/ifc_qdisc/turns.h"

#define MAX_FLOWS 64

enum fate {
	JOINED,
	REPLACED,
	REFUSED,
	EVICTED,
};

static struct turn_flow flows[MAX_FLOWS];
static struct turn_host hosts[MAX_FLOWS];
static __u64 with[MAX_FLOWS + 1];
static struct flow held[MAX_FLOWS];
static __u64 most, count, by_host;
static struct turns turns;
/* Of hosts; every third one that it is to forget it keeps. */
static struct {
	struct host_address address;
	__u64 row;
} table[16 * MAX_FLOWS];
static __u64 known, forgotten;

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

static __u64 find_host(const struct host_address *address)
{
	__u64 at = 0;

	while (at < known && memcmp(&table[at].address, address, sizeof(*address)))
		at++;
	return at;
}

static inline __u64 host_row(const struct host_address *address)
{
	__u64 at = find_host(address);

	return at < known ? table[at].row : NONE;
}

static inline void set_host_row(const struct host_address *address, __u64 row)
{
	__u64 at = find_host(address);

	known += at == known;
	table[at].address = *address;
	table[at].row = row;
}

static inline void forget_host_row(const struct host_address *address)
{
	__u64 at = find_host(address);

	if (forgotten++ % 3 && at < known)
		table[at] = table[--known];
}

static unsigned long long number(void)
{
	unsigned long long read = 0;

	if (scanf("%llu", &read) != 1)
		fprintf(stderr, "a number is missing\n");
	return read;
}

static void big_endian(unsigned long long value, __u8 *bytes)
{
	for (int at = 7; at >= 0; at--, value >>= 8)
		bytes[at] = value;
}

static unsigned long long read_big_endian(const __u8 *bytes)
{
	unsigned long long value = 0;

	for (int at = 0; at < 8; at++)
		value = value << 8 | bytes[at];
	return value;
}

static void print(int what, const struct flow *flow)
{
	printf("%d %llu %llu %d\n", what, read_big_endian(flow->source),
	       read_big_endian(flow->source + 8), flow->source_port);
}

static __u64 find(const struct flow *flow)
{
	__u64 at = 0;

	while (at < count && memcmp(&held[at], flow, sizeof(*flow)))
		at++;
	return at;
}

/* As put_newest of arrive.h. */
static void come(const struct flow *flow)
{
	struct host_address address = host_of(flow);
	struct flow lost = { { 0 } };
	enum fate fate = JOINED;
	__u64 host, victim;

	if (find(flow) < count) {
		print(REPLACED, &lost);
		return;
	}
	host = by_host ? turns_host(&address) : NONE;
	if (count >= most) {
		victim = turns_victim(&turns, host);
		if (victim == NONE) {
			print(REFUSED, &lost);
			return;
		}
		fate = turns_take(&turns, victim, &lost) ? EVICTED : REFUSED;
		held[find(&lost)] = held[count - 1];
		count--;
	}
	if (!turns_join(&turns, flow, host, by_host ? &address : NULL))
		fate = REFUSED;
	held[count++] = *flow;
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
			count = known = forgotten = 0;
		} else if (!strcmp(what, "come")) {
			big_endian(number(), flow.source);
			big_endian(number(), flow.source + 8);
			flow.source_port = number();
			come(&flow);
		} else if (!strcmp(what, "go")) {
			int served = turns_serve(&turns, &flow);

			if (served) {
				held[find(&flow)] = held[count - 1];
				count--;
			}
			print(served, &flow);
		} else {
			return 1;
		}
	}
	return 0;
}
