/* law.h as a program: send buffers, line by line, and their bands.
 *
 *     THRESHOLD QUEUED SIZE    ->  0 urgent, 1 bulk */
#include <stdio.h>

#include "../src/sorpc/law.h"

int main(void)
{
	unsigned long long threshold, queued, size;

	while (scanf("%llu %llu %llu", &threshold, &queued, &size) == 3)
		printf("%d\n", sorpc_band(queued, size, threshold) == BULK);
	return 0;
}
