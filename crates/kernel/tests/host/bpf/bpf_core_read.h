/* The part of libbpf's header of this name that the tests on the host need. */
#ifndef FRESHLINE_HOST_BPF_CORE_READ_H
#define FRESHLINE_HOST_BPF_CORE_READ_H

#define bpf_core_cast(from, type) ((type *)(from))

#endif
