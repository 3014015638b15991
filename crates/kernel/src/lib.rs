//! Freshline's laws inside Linux, on other people's sockets and packets: eBPF programs and their loaders.
//!
//! Each program has a folder: `main.bpf.c` is what the kernel runs, `mod.rs` its loader. What
//! programs share is in the folder above: `intf.h`, what the loaders share with them; the
//! arithmetic of laws in integers, which a test holds against the same laws of
//! [`freshline_core`]. Settings are written into a program's constants before it is loaded, so
//! that the verifier and the compiler of the kernel know them. Statistics come back through maps.
//!
//! | program | where | law |
//! |---|---|---|
//! | [`receiver`] `cgroup` | sockets of a cgroup | RTAC or DRWA: how much may be in flight to them |
//! | [`receiver`] `device` | what passes a network device | the same, for all that is behind it |
//! | [`sorpc`] | what leaves through a device | SORPC: which packets are in no hurry |
//! | [`ifc_qdisc`] | the root of a device's queues | IFC: updates' newest, and a share of the link |
//! | [`dtpa`] | TCP's choice of congestion controls | DTPA: how long a node waits in a mesh |
//!
//! What the kernel holds is found by asking the kernel: a loader keeps no state of its own in
//! files, so there is none to go stale. A program lasts as long as its link, and a link as long as
//! somebody holds it: a process, or a pin in the BPF file system, which outlives processes.

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
