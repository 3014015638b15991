/* law.h and packet.h of IFC as a program: input, line by line, and output.
 *
 *     scheduler SCHEDULER SHARE CREDIT FRAME_NS       a new scheduler
 *     share SHARE
 *     prefer NOW_NS              ->  the class that goes first
 *     sent CLASS BYTES
 *     shaper                                          a new shaper
 *     arrive NOW_NS                                   at an empty queue
 *     send BYTES RATE            ->  the end of the transmission
 *     framing OVERHEAD MPU CELLS
 *     on_link BYTES              ->  the number of bytes on the link
 *     segments GSO_SEGS GSO_SIZE LENGTH ON_WIRE BEFORE  ->  the number of segments
 *     ether_type TYPE            ->  whether it is link control
 *     beside WAITING OTHERS WAS_LAST  ->  whether a link control packet goes first
 *     codel TARGET_NS INTERVAL_NS MAX_PACKET          a new CoDel
 *     empty                                           the queue has become empty
 *     leave NOW_NS SOJOURN_NS BEHIND  ->  whether the packet is dropped
 *     recent                                          a new rate
 *     left AT_NS BYTES           ->  the start of the window, the bytes in it, and in the previous one
 *     sojourn NS                 ->  its bucket, and its bucket of a flow
 *     rules COUNT, and CONDITION OUTCOME FROM TO LENGTH of each
 *     packet LENGTH, and its bytes  ->  whether it is IP, dscp, fragment, update, link control, stream, class, protocol, ports,
 *                                       and the addresses as four numbers
 *     frame LENGTH, and its bytes  ->  whether it is link control, and the output of `packet` */
#include <stdio.h>
#include <string.h>

#include "../src/ifc_qdisc/packet.h"
#include "../src/ifc_qdisc/recent.h"
#include "host/number.h"

static struct rule rules[MAX_RULES];
static __u64 rules_count;
static __u8 front[FRONT_MEMORY] __attribute__((aligned(8)));

/* Reads `length` bytes of the front. Bytes left over from the previous packet must not matter. */
static void read_front(__u32 length)
{
	for (__u32 at = 0; at < length && at < FRONT; at++)
		front[at] = number();
}

static void tell_packet(__u32 length)
{
	struct header header;
	int is_packet = read_header(front, length, &header);
	int class = class_of(&header, rules, rules_count);

	printf("%d %d %d %d %d %d %d %d %d %d %llu %llu %llu %llu\n", is_packet, header.dscp,
	       header.is_fragment, header.is_update, header.is_link_control, header.stream, class,
	       header.flow.protocol, header.flow.source_port, header.flow.destination_port,
	       number64(header.flow.source), number64(header.flow.source + 8),
	       number64(header.flow.destination), number64(header.flow.destination + 8));
}

int main(void)
{
	struct scheduler_settings settings = { 0 };
	struct scheduler_state state = { 0 };
	struct shaper shaper = { 0 };
	struct framing framing = { 0 };
	struct codel_settings codel = { 0 };
	struct codel_state law = { 0 };
	struct recent recent = { 0 };
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
		} else if (!strcmp(what, "framing")) {
			framing.overhead = number();
			framing.mpu = number();
			framing.cells = number();
		} else if (!strcmp(what, "on_link")) {
			printf("%llu\n", (unsigned long long)on_link(number(), &framing));
		} else if (!strcmp(what, "segments")) {
			__u64 count = number(), size = number(), length = number(), on_wire = number();

			printf("%llu\n", (unsigned long long)segments_in(count, size, length, on_wire, number()));
		} else if (!strcmp(what, "ether_type")) {
			printf("%d\n", is_link_protocol(number()));
		} else if (!strcmp(what, "beside")) {
			__u64 beside = number(), others = number();

			printf("%d\n", beside_goes_first(beside, others, number()));
		} else if (!strcmp(what, "codel")) {
			memset(&law, 0, sizeof(law));
			codel.target_ns = number();
			codel.interval_ns = number();
			codel.max_packet = number();
		} else if (!strcmp(what, "empty")) {
			codel_on_empty(&law);
		} else if (!strcmp(what, "leave")) {
			__u64 now_ns = number(), sojourn_ns = number();

			printf("%d\n", codel_strikes(&law, now_ns, sojourn_ns, number(), &codel));
		} else if (!strcmp(what, "recent")) {
			memset(&recent, 0, sizeof(recent));
		} else if (!strcmp(what, "left")) {
			__u64 at_ns = number();

			recent_count(&recent, at_ns, number());
			printf("%llu %llu %llu\n", (unsigned long long)recent.began_ns,
			       (unsigned long long)recent.now, (unsigned long long)recent.before);
		} else if (!strcmp(what, "sojourn")) {
			__u64 bucket = sojourn_bucket(number());

			printf("%llu %llu\n", (unsigned long long)bucket,
			       (unsigned long long)flow_sojourn_bucket(bucket));
		} else if (!strcmp(what, "rules")) {
			rules_count = number();
			for (__u64 at = 0; at < rules_count && at < MAX_RULES; at++) {
				rules[at].condition = number();
				rules[at].outcome = number();
				rules[at].from = number();
				rules[at].to = number();
				rules[at].length = number();
			}
		} else if (!strcmp(what, "packet")) {
			__u32 length = number();

			read_front(length);
			tell_packet(length);
		} else if (!strcmp(what, "frame")) {
			__u32 length = number();
			struct content content;

			read_front(length);
			content = content_of(front, smaller(length, FRONT));
			printf("%d ", is_link_protocol(content.ether_type));
			/* Like queue_of: only the packet is read, and only if it is IP. */
			length = is_ip(content.ether_type) ? smaller(length - content.at, FRONT) : 0;
			memmove(front, front + content.at, length);
			tell_packet(length);
		} else {
			return 1;
		}
	}
	return 0;
}
