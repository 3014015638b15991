/* The complete queueing discipline of IFC as a program. It reads line by line
 *
 *     device RATE SCHEDULER SHARE CREDIT FRAME_NS MAX_FLOWS BY_HOST MAX_PACKETS MAX_BYTES QUANTUM LONGEST TARGET_NS
 *            INTERVAL_NS                              starts again, with one lane
 *     come NOW_NS IS_UPDATE HOST PORT BYTES SEGMENTS  ->  0, and the dropped packets
 *     rate RATE                                       from now on
 *     ask NOW_NS                                      ->  the number of packets that left, these packets, and the dropped ones
 *     down                                            ->  the number of dropped packets
 *
 * where packets are numbered from 1. After each line it compares all counters with the packets that exist. */
#include <stdio.h>

#include "host/number.h"

static long read_packet(unsigned char *to, unsigned int length, unsigned int at);
#define bpf_dynptr_read(to, length, packet, at, flags) read_packet(to, length, at)

#include "../src/ifc_qdisc/main.bpf.c"

/* Set by the loader in the kernel. */
const volatile __u32 slots_mask = 255;
const volatile __u32 chains_mask = 63;

#define MAX_FRONT 64
#define MAX_LISTED 4096

struct packet {
	struct sk_buff skb;
	__u64 number;
	unsigned char front[MAX_FRONT];
	struct skb_shared_info shared;
};

static struct Qdisc root;
static struct packet *read_one;
static __u64 packets, held, held_on_wire, watched_ns;
static __u64 left[MAX_LISTED], dropped[MAX_LISTED], left_count, dropped_count;

int bpf_dynptr_from_skb(struct __sk_buff *skb, __u64 flags, struct bpf_dynptr *out)
{
	read_one = (struct packet *)skb;
	return 0;
}

/* Zeros follow the front. */
static long read_packet(__u8 *to, __u32 length, __u32 at)
{
	if (at + length > read_one->skb.len)
		return -1;
	for (__u32 byte = 0; byte < length; byte++)
		to[byte] = at + byte < MAX_FRONT ? read_one->front[at + byte] : 0;
	return 0;
}

/* Counts and frees a packet that left or was dropped. */
static void gone(struct sk_buff *skb, __u64 *list, __u64 *count)
{
	struct packet *packet = (struct packet *)skb;

	if (*count == MAX_LISTED)
		abort();
	list[(*count)++] = packet->number;
	held--;
	held_on_wire -= length_on_wire(skb);
	free(packet);
}

void bpf_kfree_skb(struct sk_buff *skb)
{
	gone(skb, dropped, &dropped_count);
}

void bpf_qdisc_skb_drop(struct sk_buff *skb, struct bpf_sk_buff_ptr *to_free)
{
	gone(skb, dropped, &dropped_count);
}

__u32 bpf_skb_get_hash(struct sk_buff *skb)
{
	return 0;
}

void bpf_qdisc_watchdog_schedule(struct Qdisc *qdisc, __u64 at_ns, __u64 slack_ns)
{
	watched_ns = at_ns;
}

void bpf_qdisc_bstats_update(struct Qdisc *qdisc, const struct sk_buff *skb)
{
}

static void check(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "packet %llu: %s\n", packets, what);
	exit(1);
}

static void check_books(void)
{
	for (int row = 0; row < QUEUES; row++) {
		const struct account *account = &books[row];

		check(account->packets_in == account->packets_out + account->replaced + account->queue_full +
						     account->congestion + account->vanished +
						     account->waiting_packets + account->on_link_packets,
		      "the books are not balanced");
		check(account->waiting_packets || !account->waiting_bytes, "bytes wait without packets");
	}
	check(root.q.qlen == held, "the kernel counts other packets");
	check(root.qstats.backlog == (__u32)held_on_wire, "the kernel counts other bytes");
}

static void list(const __u64 *numbers, __u64 count)
{
	for (__u64 at = 0; at < count; at++)
		printf(" %llu", numbers[at]);
}

static void tell(void)
{
	check_books();
	printf("%llu", left_count);
	list(left, left_count);
	list(dropped, dropped_count);
	printf("\n");
}

static void begin(void)
{
	const struct turns none = NO_TURNS;
	const struct rule is_udp = { .condition = PROTOCOL, .outcome = OUTCOME_FORCED_AOI, .from = UDP };

	ifc_reset(&root);
	ifc_destroy(&root);
	memset(books, 0, sizeof(books));
	memset(&settings, 0, sizeof(settings));
	memset(&scheduler, 0, sizeof(scheduler));
	memset(&shaper, 0, sizeof(shaper));
	turns = none;
	new_lanes.first = old_lanes.first = free_slot = NONE;
	packets = used_slots = beside_was_last = 0;
	settings.rate = number();
	settings.scheduler.scheduler = number();
	settings.scheduler.aoi_share = number();
	settings.scheduler.credit = number();
	settings.scheduler.frame_ns = number();
	settings.max_flows = number();
	settings.by_host = number();
	settings.max_packets = number();
	settings.max_bytes = number();
	settings.quantum = number();
	settings.drops_longest = number();
	settings.codel.target_ns = number();
	settings.codel.interval_ns = number();
	settings.codel.max_packet = 1514;
	settings.lanes = 1;
	settings.rules[settings.rules_count++] = is_udp;
	host_size(&updates, settings.max_flows);
	host_size(&turn_hosts, settings.max_flows);
	host_size(&hosts_by_flows, settings.max_flows + 1);
	host_size(&flow_chains, chains_mask + 1);
	host_size(&host_chains, chains_mask + 1);
	host_size(&slots, slots_mask + 1 + MAX_OTHER);
	host_size(&lanes, settings.lanes);
	host_size(&link, LINES);
	host_size(&sojourns, CLASSES * SOJOURN_BUCKETS);
	host_size(&flows, FLOW_SETS * WAYS);
	host_size(&flow_sets, FLOW_SETS);
	check(!ifc_init(&root, NULL, NULL), "it was not put in place");
	/* A second device cannot use it. */
	check(ifc_init(NULL, NULL, NULL) == -EBUSY, "it is in two places");
	ifc_reset(NULL);
	ifc_destroy(NULL);
}

static struct sk_buff *made(void)
{
	struct packet *packet = calloc(1, sizeof(*packet));
	int is_update = number();
	unsigned char *ip = packet->front;

	ip[0] = 0x45;
	ip[9] = is_update ? UDP : TCP;
	ip[12] = ip[16] = 10;
	ip[15] = number();
	ip[21] = number();
	packet->number = ++packets;
	packet->skb.protocol = bpf_htons(0x0800);
	packet->skb.head = packet->skb.data = ip;
	packet->skb.len = number();
	packet->skb.end = (unsigned char *)&packet->shared - ip;
	packet->shared.gso_segs = number();
	((struct qdisc_skb_cb *)packet->skb.cb)->pkt_len = packet->skb.len;
	held++;
	held_on_wire += packet->skb.len;
	return &packet->skb;
}

int main(void)
{
	char what[16];

	while (scanf("%15s", what) == 1) {
		struct bpf_sk_buff_ptr to_free = { NULL };

		left_count = dropped_count = 0;
		if (!strcmp(what, "device")) {
			begin();
		} else if (!strcmp(what, "come")) {
			host_now_ns = number();
			ifc_enqueue(made(), &root, &to_free);
			tell();
		} else if (!strcmp(what, "rate")) {
			settings.rate = number();
		} else if (!strcmp(what, "ask")) {
			struct sk_buff *skb;

			host_now_ns = number();
			watched_ns = 0;
			while ((skb = ifc_dequeue(&root)))
				gone(skb, left, &left_count);
			check(!held || watched_ns > host_now_ns, "no timer is set");
			tell();
		} else if (!strcmp(what, "down")) {
			ifc_reset(&root);
			check(!held, "a packet stays");
			check_books();
			printf("%llu\n", dropped_count);
		} else {
			return 1;
		}
	}
	return 0;
}
