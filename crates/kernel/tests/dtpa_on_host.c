/* law.h of DTPA as a program: its input, line by line, and its output after a round trip.
 *
 *     new SHARE_PER_1000_S RTT_WEIGHT MAX_WINDOW MEMORY WITHOUT_PEAK
 *     sent SEGMENTS
 *     timeout
 *     fast_retransmit
 *     round_trip SAMPLE_US WINDOW  ->  TXP and the RTT in us; for a window of WINDOW segments of
 *                                      SEGMENT bytes each, the rate in bytes per second; the maximum
 *                                      window in segments; the counted segments and losses; the
 *                                      limited window, the same while TCP repairs a loss, and the
 *                                      threshold of a reduction that begins with it */
#include <stdio.h>
#include <string.h>

#include "../src/dtpa/law.h"

#define SEGMENT 1000

int main(void)
{
	struct dtpa_settings settings = { 0 };
	struct dtpa law = { 0 };
	unsigned long long in[5];
	char what[16];

	while (scanf("%15s", what) == 1) {
		if (!strcmp(what, "new") &&
		    scanf("%llu %llu %llu %llu %llu", &in[0], &in[1], &in[2], &in[3], &in[4]) == 5) {
			settings = (struct dtpa_settings){ in[0], in[1], in[2], in[3], in[4] };
			law = (struct dtpa){ 0 };
		} else if (!strcmp(what, "sent") && scanf("%llu", &in[0]) == 1) {
			dtpa_on_sent(&law, in[0], &settings);
		} else if (!strcmp(what, "timeout")) {
			dtpa_count(&law.timeouts);
		} else if (!strcmp(what, "fast_retransmit")) {
			dtpa_count(&law.fast_retransmits);
		} else if (!strcmp(what, "round_trip") && scanf("%llu %llu", &in[0], &in[1]) == 2) {
			dtpa_on_round_trip(&law, in[0], &settings);
			printf("%u %u %llu %llu %u %u ", law.period_us, law.srtt_us,
			       dtpa_rate(&law, in[1], SEGMENT, &settings),
			       dtpa_most_window(&law, &settings), law.sent,
			       law.timeouts + law.fast_retransmits);
			printf("%llu %llu %llu\n", dtpa_held_window(&law, in[1], 0, &settings),
			       dtpa_held_window(&law, in[1], 1, &settings), dtpa_threshold(in[1]));
		} else {
			return 1;
		}
	}
	return 0;
}
