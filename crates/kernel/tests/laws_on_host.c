/* The laws as a program: input, line by line, and the windows that they choose.
 *
 *     window RATE RTT BASE FLIGHT SEGMENT THETA    ->  RTAC's window of one round trip
 *     rtac THETA DELTA SLOPE SHIFT                 ->  the law of all connections, with its settings
 *     pure THETA DELTA SLOPE SHIFT                     (those of struct rtac_settings)
 *     drwa 0 0 0 0
 *     round_trip FLOW NOW SAMPLE
 *     arrival FLOW NOW BYTES SEGMENT               ->  the advertised window, the state of the remote
 *                                                      host, an enum ownership, and the flow that
 *                                                      keeps the queue, an enum queue_owner */
#include <stdio.h>
#include <string.h>

#include "../src/receiver/algorithm1.h"
#include "../src/receiver/drwa.h"

#define FLOWS 2

static int numbers_of(const char *what)
{
	if (!strcmp(what, "window"))
		return 6;
	return !strcmp(what, "round_trip") ? 3 : 4;
}

int main(void)
{
	struct rtac_settings settings = { 0 };
	struct remote remote = { 0 };
	struct rtac laws[FLOWS] = { { .flow = 1 }, { .flow = 2 } };
	int is_drwa = 0;
	unsigned long long in[6];
	char what[16];

	while (scanf("%15s", what) == 1) {
		struct rtac *law;

		for (int index = 0; index < numbers_of(what); index++)
			if (scanf("%llu", &in[index]) != 1)
				return 1;
		law = &laws[in[0] % FLOWS];
		if (!strcmp(what, "window")) {
			__u64 rate = in[0], rtt = in[1], base = in[2], flight = in[3];

			printf("%llu\n", rtac_window(rtac_bdp(rate, base),
						     rtac_queue(flight, rtt, base), in[4],
						     rtac_stretch(rtt, base), in[5]));
		} else if (!strcmp(what, "rtac") || !strcmp(what, "pure") || !strcmp(what, "drwa")) {
			is_drwa = what[0] == 'd';
			settings.is_pure = what[0] == 'p';
			settings.theta_milli = in[0];
			settings.delta_ns = in[1];
			settings.slope = in[2];
			settings.slope_shift = in[3];
		} else if (!strcmp(what, "round_trip")) {
			if (is_drwa)
				drwa_on_round_trip(law, &remote, in[1], in[2]);
			else if (settings.is_pure)
				algorithm1_on_round_trip(law, &remote, in[2]);
			else
				rtac_on_round_trip(law, &remote, in[1], in[2], &settings);
		} else {
			if (is_drwa)
				drwa_on_arrival(law, &remote, in[1], in[2], in[3]);
			else if (settings.is_pure)
				algorithm1_on_read(law, &remote, in[1], in[2], in[3], &settings);
			else
				rtac_on_arrival(law, &remote, in[1], in[2], in[3], &settings);
			printf("%llu %llu %d\n", law->window, remote.state,
			       rtac_owner(law, &remote, &settings));
		}
	}
	return 0;
}
