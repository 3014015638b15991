//! Freshline's laws inside Linux, on other people's sockets: eBPF programs and their loaders.
//!
//! Each program has a folder: `main.bpf.c` is what the kernel runs, `intf.h` what it shares with
//! its loader, `law.h` the arithmetic in integers, which a test holds against the same law of
//! [`freshline_core`]. Settings are written into a program's constants before it is loaded, so
//! that the verifier and the compiler of the kernel know them. Statistics come back through maps.
//!
//! | program | where | law |
//! |---|---|---|
//! | [`rtac`] | sockets of a cgroup | RTAC: how much may be in flight to a receiver |
//!
//! What the kernel holds is found by asking the kernel: a loader keeps no state of its own in
//! files, so there is none to go stale. A program lasts as long as its link, and a link as long as
//! somebody holds it: a process, or a pin in the BPF file system, which outlives processes.

pub mod cgroup;
mod error;
mod pin;
pub mod rtac;

pub use error::KernelError;
