/* The part of libbpf's header of this name that the tests on the host need. */
#ifndef FRESHLINE_HOST_BPF_TRACING_H
#define FRESHLINE_HOST_BPF_TRACING_H

#define BPF_PROG(name, ...) name(__VA_ARGS__)

#endif
