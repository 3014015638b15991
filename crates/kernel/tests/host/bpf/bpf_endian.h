/* The part of libbpf's header of this name that the tests on the host need, for a little-endian host. */
#ifndef FRESHLINE_HOST_BPF_ENDIAN_H
#define FRESHLINE_HOST_BPF_ENDIAN_H

#define bpf_ntohs(number) __builtin_bswap16(number)
#define bpf_htons(number) __builtin_bswap16(number)
#define bpf_htonl(number) __builtin_bswap32(number)

#endif
