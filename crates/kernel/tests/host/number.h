/* Input of the tests on the host. */
#ifndef FRESHLINE_HOST_NUMBER_H
#define FRESHLINE_HOST_NUMBER_H

#include <stdio.h>

/* Reads the next number of standard input. */
static inline unsigned long long number(void)
{
	unsigned long long read = 0;

	if (scanf("%llu", &read) != 1)
		fprintf(stderr, "a number is missing\n");
	return read;
}

#endif
