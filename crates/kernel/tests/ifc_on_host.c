/* law.h and packet.h of IFC as a program: what they are told, line by line, and what they make of it.
 *
 *     scheduler SCHEDULER SHARE CREDIT FRAME_NS       begins anew
 *     share SHARE
 *     prefer NOW_NS              ->  the class that goes first
 *     sent CLASS BYTES
 *     shaper                                          begins anew
 *     arrive NOW_NS                                   where nothing waits
 *     send BYTES RATE            ->  when the transmission ends
 *     sojourn NS                 ->  its bucket, and that of a flow
 *     rules COUNT, and CONDITION CLASS FROM TO of each
 *     packet LENGTH, and its bytes  ->  whether it is IP, dscp, fragment, update, class, protocol, ports,
 *                                       and the addresses as four numbers */
#include <stdio.h>
#include <string.h>

#include "../src/ifc_qdisc/packet.h"

static unsigned long long number(void)
{
	unsigned long long read = 0;

	if (scanf("%llu", &read) != 1)
		fprintf(stderr, "a number is missing\n");
	return read;
}

static unsigned long long big_endian(const __u8 *bytes)
{
	unsigned long long value = 0;

	for (int at = 0; at < 8; at++)
		value = value << 8 | bytes[at];
	return value;
}

int main(void)
{
	struct scheduler_settings settings = { 0 };
	struct scheduler_state state = { 0 };
	struct shaper shaper = { 0 };
	static struct rule rules[MOST_RULES];
	static __u8 front[FRONT_MEMORY];
	struct header header;
	__u64 rules_count = 0;
	char what[16];

	while (scanf("%15s", what) == 1) {
		if (!strcmp(what, "scheduler")) {
			memset(&state, 0, sizeof(state));
			settings.scheduler = number();
			settings.aoi_share = number();
			settings.credit = number();
			settings.frame_ns = number();
		} else if (!strcmp(what, "share")) {
			settings.aoi_share = number();
		} else if (!strcmp(what, "prefer")) {
			printf("%d\n", scheduler_prefers(&state, number(), &settings));
		} else if (!strcmp(what, "sent")) {
			enum class class = number();

			scheduler_on_sent(&state, class, number(), &settings);
		} else if (!strcmp(what, "shaper")) {
			memset(&shaper, 0, sizeof(shaper));
		} else if (!strcmp(what, "arrive")) {
			shaper_on_arrival(&shaper, number());
		} else if (!strcmp(what, "send")) {
			__u64 bytes = number();

			printf("%llu\n", (unsigned long long)shaper_send(&shaper, bytes, number()));
		} else if (!strcmp(what, "sojourn")) {
			__u64 bucket = sojourn_bucket(number());

			printf("%llu %llu\n", (unsigned long long)bucket,
			       (unsigned long long)flow_sojourn_bucket(bucket));
		} else if (!strcmp(what, "rules")) {
			rules_count = number();
			for (__u64 at = 0; at < rules_count && at < MOST_RULES; at++) {
				rules[at].condition = number();
				rules[at].class = number();
				rules[at].from = number();
				rules[at].to = number();
			}
		} else if (!strcmp(what, "packet")) {
			__u32 length = number();
			int is_ip;

			/* What is left of the packet before must not matter. */
			for (__u32 at = 0; at < length && at < FRONT; at++)
				front[at] = number();
			is_ip = read_header(front, length, &header);
			printf("%d %d %d %d %d %d %d %d %llu %llu %llu %llu\n", is_ip, header.dscp,
			       header.is_fragment, header.is_update, class_of(&header, rules, rules_count),
			       header.flow.protocol, header.flow.source_port, header.flow.destination_port,
			       big_endian(header.flow.source), big_endian(header.flow.source + 8),
			       big_endian(header.flow.destination), big_endian(header.flow.destination + 8));
		} else {
			return 1;
		}
	}
	return 0;
}
