/* The laws as a program: what they are told, line by line, and the windows that they choose.
 *
 *     window RATE RTT BASE FLIGHT SEGMENT THETA    ->  RTAC's window of one round trip
 *     rtac THETA DELTA                             ->  the law of the connection, with its settings
 *     drwa 0 0
 *     round_trip NOW SAMPLE
 *     arrival NOW BYTES SEGMENT                    ->  the window advertised then */
#include <stdio.h>
#include <string.h>

#include "../src/receiver/drwa.h"

int main(void)
{
	struct rtac_settings settings = { 0 };
	struct remote remote = { 0 };
	struct rtac law = { .flow = 1 };
	int is_drwa = 0;
	unsigned long long in[6];
	char what[16];

	while (scanf("%15s", what) == 1) {
		int count = !strcmp(what, "window") ? 6 : !strcmp(what, "arrival") ? 3 : 2;

		for (int index = 0; index < count; index++)
			if (scanf("%llu", &in[index]) != 1)
				return 1;
		if (!strcmp(what, "window")) {
			__u64 rate = in[0], rtt = in[1], base = in[2], flight = in[3];

			printf("%llu\n", rtac_window(rtac_bdp(rate, base),
						     rtac_queue(flight, rtt, base), in[4],
						     rtac_stretch(rtt, base), in[5]));
		} else if (!strcmp(what, "rtac") || !strcmp(what, "drwa")) {
			is_drwa = what[0] == 'd';
			settings.theta_milli = in[0];
			settings.delta_ns = in[1];
		} else if (!strcmp(what, "round_trip")) {
			if (is_drwa)
				drwa_on_round_trip(&law, &remote, in[0], in[1]);
			else
				rtac_on_round_trip(&law, &remote, in[0], in[1]);
		} else {
			if (is_drwa)
				drwa_on_arrival(&law, &remote, in[0], in[1], in[2]);
			else
				rtac_on_arrival(&law, &remote, in[0], in[1], in[2], &settings);
			printf("%llu\n", law.window);
		}
	}
	return 0;
}
