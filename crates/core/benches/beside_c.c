/* The baselines of `beside_c.rs`: the same queue and the same schedulers in plain C, for one type of
 * packet, with nothing generic and nothing virtual but the sink of dropped packets.
 *
 *     ifil FLOWS        ns to replace a packet; ns of two arrivals and a departure at the limit;
 *                       packets replaced, refused and sent in the latter
 *     schedule          ns of a departure without a scheduler, with SDM and with TDM;
 *                       departures of the first class in each */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Arrivals that are drawn in advance, steps between two readings of the clock, and measurements. */
#define DRAWN (1u << 17)
#define BATCH 4096u
#define MEASUREMENTS 100u
/* Queues with different keys, as chains depend on them: times are means over these. */
#define KEYS 8

static double now_ns(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1e9 + at.tv_nsec;
}

struct flow {
	uint8_t source[16], destination[16];
	uint16_t source_port, destination_port;
	uint8_t protocol;
};

struct packet {
	struct flow flow;
	uint8_t rest[8];
	uint32_t size;
};

struct keys {
	uint64_t of_words[10], offset;
};

struct queued {
	struct packet packet;
	uint64_t arrived;
	uint32_t hash, older;
};

struct ifil {
	struct keys keys;
	struct queued *ring;
	/* The number of the newest packet in each bucket. */
	uint32_t *newest;
	uint32_t mask, ring_mask, limit, first, count;
	uint64_t bytes;
};

enum reason { QUEUE_FULL, REPLACED };
static uint64_t drops[2];

__attribute__((noinline)) static void lost(const struct packet *packet, enum reason reason)
{
	drops[reason] += packet->size != 0;
}

/* Volatile, so that the compiler cannot inline it. */
static void (*volatile sink)(const struct packet *, enum reason) = lost;

static uint64_t state = 1;

/* SplitMix64. */
static uint64_t draw(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static void words_of(const struct flow *flow, uint64_t words[5])
{
	memcpy(words, flow->source, 32);
	words[4] = flow->source_port | (uint64_t)flow->destination_port << 16 |
		   (uint64_t)flow->protocol << 32;
}

/* Multilinear-HM, as `flow_hash.rs`. */
static uint32_t hash_of(const struct keys *keys, const uint64_t words[5])
{
	uint64_t sum = keys->offset;

	for (int word = 0; word < 5; word++)
		sum += (keys->of_words[2 * word] + (uint32_t)words[word]) *
		       (keys->of_words[2 * word + 1] + (words[word] >> 32));
	return sum >> 32;
}

static int is_flow(const struct packet *packet, const uint64_t words[5])
{
	uint64_t own[5], difference = 0;

	words_of(&packet->flow, own);
	for (int word = 0; word < 5; word++)
		difference |= own[word] ^ words[word];
	return !difference;
}

static uint32_t power_of_two(uint32_t least)
{
	uint32_t power = 1;

	while (power < least)
		power *= 2;
	return power;
}

static void *made(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory)
		exit(1);
	return memory;
}

static struct ifil ifil_new(uint32_t limit, uint64_t key)
{
	struct ifil queue = { .limit = limit, .first = 1 };
	uint32_t places = power_of_two(limit);

	state = 1000 + key;
	for (int key = 0; key < 10; key++)
		queue.keys.of_words[key] = draw();
	queue.keys.offset = draw();
	queue.mask = queue.ring_mask = places - 1;
	queue.ring = made(places, sizeof(*queue.ring));
	queue.newest = made(places, sizeof(*queue.newest));
	return queue;
}

static void enqueue(struct ifil *queue, uint64_t now, const struct packet *packet)
{
	uint64_t words[5];
	uint32_t hash, number, newer = queue->count, *bucket;

	words_of(&packet->flow, words);
	hash = hash_of(&queue->keys, words);
	bucket = &queue->newest[hash & queue->mask];
	for (number = *bucket; number - queue->first < newer;) {
		struct queued *queued = &queue->ring[number & queue->ring_mask];

		if (queued->hash == hash && is_flow(&queued->packet, words)) {
			struct packet old = queued->packet;

			queue->bytes += packet->size - old.size;
			queued->packet = *packet;
			queued->arrived = now;
			sink(&old, REPLACED);
			return;
		}
		newer = number - queue->first;
		number = queued->older;
	}
	if (queue->count == queue->limit) {
		sink(packet, QUEUE_FULL);
		return;
	}
	number = queue->first + queue->count++;
	queue->ring[number & queue->ring_mask] = (struct queued){
		.packet = *packet, .arrived = now, .hash = hash, .older = *bucket,
	};
	*bucket = number;
	queue->bytes += packet->size;
}

static int dequeue(struct ifil *queue, uint64_t now, struct packet *packet, uint64_t *sojourn)
{
	struct queued *queued = &queue->ring[queue->first & queue->ring_mask];

	if (!queue->count)
		return 0;
	queue->first++;
	queue->count--;
	queue->bytes -= queued->packet.size;
	*packet = queued->packet;
	*sojourn = now - queued->arrived;
	return 1;
}

static struct packet of_flow(uint32_t flow)
{
	struct packet packet = { .flow = { .source_port = 40000, .destination_port = 5000,
					   .protocol = 17 }, .size = 1024 };

	memcpy(packet.flow.source + 12, &flow, 4);
	packet.flow.destination[15] = 1;
	return packet;
}

static void measure_ifil(uint32_t flows, uint64_t key, double times[2], uint64_t counts[3])
{
	struct packet *drawn = made(DRAWN, sizeof(*drawn)), packet = { 0 };
	struct ifil queue = ifil_new(flows, key);
	double replace = 1e9, overload = 1e9;
	uint64_t sojourn = 0, sent = 0;
	uint32_t next = 0;

	state = 1;
	for (uint32_t index = 0; index < DRAWN; index++)
		drawn[index] = of_flow((uint32_t)draw() % flows);
	for (uint32_t flow = 0; flow < flows; flow++) {
		packet = of_flow(flow);
		enqueue(&queue, 0, &packet);
	}
	for (uint32_t measurement = 0; measurement < MEASUREMENTS; measurement++) {
		double begin = now_ns();

		for (uint32_t step = 0; step < BATCH; step++)
			enqueue(&queue, 0, &drawn[next++ % DRAWN]);
		begin = now_ns() - begin;
		replace = begin < replace ? begin : replace;
	}
	next = 0;
	drops[0] = drops[1] = 0;
	for (uint32_t measurement = 0; measurement < MEASUREMENTS; measurement++) {
		double begin = now_ns();

		for (uint32_t step = 0; step < BATCH; step++) {
			enqueue(&queue, 0, &drawn[next++ % DRAWN]);
			enqueue(&queue, 0, &drawn[next++ % DRAWN]);
			sent += dequeue(&queue, 0, &packet, &sojourn);
			__asm__ volatile("" : : "r"(&packet), "r"(&sojourn) : "memory");
		}
		begin = now_ns() - begin;
		overload = begin < overload ? begin : overload;
	}
	times[0] += replace / BATCH / KEYS;
	times[1] += overload / BATCH / KEYS;
	counts[0] = drops[REPLACED];
	counts[1] = drops[QUEUE_FULL];
	counts[2] = sent;
	free(queue.newest);
	free(queue.ring);
	free(drawn);
}

enum scheduler { NONE, SDM, TDM };

/* Shares of one half, and 64 KiB of credit. */
#define WEIGHT 500000
#define CREDIT ((int64_t)WEIGHT * 65536)
#define INTERVAL 50000000ULL

struct ring {
	uint32_t sizes[2 * BATCH];
	uint32_t first, count;
};

struct ifc {
	struct ring rings[2];
	int64_t budget;
	uint64_t ends_at;
	int turn;
};

static inline int prefer(struct ifc *ifc, enum scheduler scheduler, uint64_t now)
{
	switch (scheduler) {
	case NONE:
		return 0;
	case SDM:
		return ifc->budget < 0;
	case TDM:
		if (now >= ifc->ends_at) {
			ifc->turn = !ifc->turn;
			ifc->ends_at = now + INTERVAL;
		}
		return ifc->turn;
	}
	return 0;
}

static inline void on_sent(struct ifc *ifc, int class, uint32_t size, int preferred)
{
	int64_t weighted = (int64_t)WEIGHT * size;

	ifc->budget += class ? weighted : -weighted;
	if (class == preferred)
		return;
	if (ifc->budget > CREDIT)
		ifc->budget = CREDIT;
	if (ifc->budget < -CREDIT)
		ifc->budget = -CREDIT;
}

static inline int depart(struct ifc *ifc, enum scheduler scheduler, uint64_t now)
{
	int preferred = prefer(ifc, scheduler, now);

	for (int other = 0; other < 2; other++) {
		int class = preferred ^ other;
		struct ring *ring = &ifc->rings[class];

		if (!ring->count)
			continue;
		uint32_t size = ring->sizes[ring->first];

		ring->first = (ring->first + 1) % (2 * BATCH);
		ring->count--;
		if (scheduler == SDM)
			on_sent(ifc, class, size, preferred);
		return class;
	}
	return -1;
}

static inline double measure_scheduler(enum scheduler scheduler, uint64_t *of_first)
{
	static struct ifc ifc;
	double least = 1e9;
	uint64_t now = 0;

	memset(&ifc, 0, sizeof(ifc));
	ifc.turn = 1;
	*of_first = 0;
	for (int class = 0; class < 2; class++)
		for (uint32_t place = 0; place < 2 * BATCH; place++)
			ifc.rings[class].sizes[place] = 1024;
	for (uint32_t measurement = 0; measurement < MEASUREMENTS; measurement++) {
		double begin;

		ifc.rings[0].count = ifc.rings[1].count = BATCH;
		begin = now_ns();
		for (uint32_t step = 0; step < BATCH; step++) {
			now += 80000;
			int class = depart(&ifc, scheduler, now);

			__asm__ volatile("" : : "r"(class) : "memory");
			*of_first += class == 0;
		}
		begin = now_ns() - begin;
		least = begin < least ? begin : least;
	}
	return least / BATCH;
}

int main(int count, char **arguments)
{
	if (count == 3 && !strcmp(arguments[1], "ifil")) {
		double times[2] = { 0 };
		uint64_t counts[3];

		for (uint64_t key = 0; key < KEYS; key++)
			measure_ifil(atoi(arguments[2]), key, times, counts);
		printf("%f %f %llu %llu %llu\n", times[0], times[1], (unsigned long long)counts[0],
		       (unsigned long long)counts[1], (unsigned long long)counts[2]);
	} else {
		uint64_t first[3];
		double none = measure_scheduler(NONE, &first[0]);
		double sdm = measure_scheduler(SDM, &first[1]);
		double tdm = measure_scheduler(TDM, &first[2]);

		printf("%f %f %f %llu %llu %llu\n", none, sdm, tdm, (unsigned long long)first[0],
		       (unsigned long long)first[1], (unsigned long long)first[2]);
	}
	return 0;
}
