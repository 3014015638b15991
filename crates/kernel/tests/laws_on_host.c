/* law.h as a program: what it is told, line by line, and the windows that it chooses.
 *
 *     window RATE RTT BASE FLIGHT SEGMENT THETA    ->  the window of one round trip
 *     settings THETA DELTA                         ->  the settings of the connection
 *     round_trip NOW SAMPLE
 *     arrival NOW BYTES SEGMENT                    ->  the window advertised then */
#include <stdio.h>
#include <string.h>

#include "../src/rtac/law.h"

int main(void)
{
	struct rtac_settings settings = { 0 };
	struct remote remote = { 0 };
	struct rtac law = { .flow = 1 };
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
		} else if (!strcmp(what, "settings")) {
			settings.theta_milli = in[0];
			settings.delta_ns = in[1];
		} else if (!strcmp(what, "round_trip")) {
			rtac_on_round_trip(&law, &remote, in[0], in[1]);
		} else {
			rtac_on_arrival(&law, &remote, in[0], in[1], in[2], &settings);
			printf("%llu\n", law.window);
		}
	}
	return 0;
}
