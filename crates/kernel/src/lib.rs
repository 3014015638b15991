//! Freshline's laws inside Linux, on the sockets and packets of any program: eBPF programs and
//! their loaders.
//!
//! Each program has a folder: `main.bpf.c` runs in the kernel, `mod.rs` is its loader. The parent
//! folder has the shared files: `intf.h`, the interface to the loaders, and the integer arithmetic
//! of the laws, which a test checks against the laws of [`freshline_core`]. Settings are written
//! into a program's constants before it is loaded, so that the verifier and the kernel's compiler
//! know them. Statistics are read from maps.
//!
//! | program | attached to | law |
//! | --- | --- | --- |
//! | [`receiver`] `cgroup` | sockets of a cgroup | RTAC or DRWA: limits the data in flight to them |
//! | [`receiver`] `device` | packets through a network device | the same, for all hosts behind it |
//! | [`sorpc`] | packets that leave through a device | SORPC: gives bulk data the lowest priority |
//! | [`ifc_qdisc`] | the root of a device's queues | IFC: only the newest updates, and a share of the link |
//! | [`dtpa`] | TCP's list of congestion controls | DTPA: the waiting time of a node in a mesh |
//!
//! Attached programs are found by queries to the kernel: a loader keeps no state in files that
//! could become stale. A program exists as long as its link, and a link as long as a process or a
//! pin in the BPF file system holds it. A pin outlives processes.

pub mod cgroup;
mod device;
pub mod dtpa;
mod error;
pub mod ifc_qdisc;
mod maps;
mod mounts;
mod pin;
mod programs;
pub mod receiver;
mod root;
pub mod sorpc;

pub use error::KernelError;
