/* The part of libbpf's header of this name that the tests on the host need. A map is an array in memory, of the
 * length that `host_size` gives it. The test sets the time. */
#ifndef FRESHLINE_HOST_BPF_HELPERS_H
#define FRESHLINE_HOST_BPF_HELPERS_H

#include <stdlib.h>
#include <string.h>

#define SEC(name)
#define __kptr
#define __ksym
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define __noinline __attribute__((noinline))
#undef __always_inline
#define __always_inline inline
#define barrier_var(variable) (void)(variable)

#define MAX_HOST_MAPS 16

struct host_map {
	const void *map;
	char *rows;
	__u32 count;
	unsigned long size;
};

static struct host_map host_maps[MAX_HOST_MAPS];
static __u64 host_now_ns;

/* Gives a map `count` rows of zeros. */
static inline void host_size_map(const void *map, __u32 count, unsigned long size)
{
	int at = 0;

	while (host_maps[at].map && host_maps[at].map != map)
		if (++at == MAX_HOST_MAPS)
			abort();
	free(host_maps[at].rows);
	host_maps[at] = (struct host_map){ map, calloc(count, size), count, size };
}

/* The row of this number, or NULL. */
static inline void *host_row(const void *map, const void *key)
{
	__u32 row;

	memcpy(&row, key, sizeof(row));
	for (int at = 0; at < MAX_HOST_MAPS; at++)
		if (host_maps[at].map == map)
			return row < host_maps[at].count ? host_maps[at].rows + row * host_maps[at].size : NULL;
	abort();
}

#define host_size(map, count) host_size_map(map, count, sizeof(*(map)->value))
#define bpf_map_lookup_elem(map, key) ((typeof((map)->value))host_row(map, key))
#define bpf_map_update_elem(map, key, from, flags) memcpy(host_row(map, key), from, sizeof(*(map)->value))
#define bpf_ktime_get_ns() host_now_ns
#define bpf_ktime_get_boot_ns() host_now_ns
#define bpf_get_prandom_u32() ((__u32)random())

#define bpf_kptr_xchg(at, with)             \
	({                                  \
		typeof(*(at)) host_was = *(at); \
		*(at) = (with);             \
		host_was;                   \
	})

#define bpf_loop(rounds, round, context, flags)                                    \
	do {                                                                       \
		for (__u64 host_at = 0; host_at < (__u64)(rounds); host_at++)      \
			if (round(host_at, context))                               \
				break;                                             \
	} while (0)

#endif
