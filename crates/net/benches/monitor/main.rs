//! What a monitor costs: updates per second, large states, bytes a source, one-way latency; the first and the last
//! beside the least that the sockets cost without it, measured in the same run.
//!
//! `cargo bench -p freshline-net`. Everything runs over the loopback, on two threads. Options that
//! `cargo bench` adds are not looked at.

mod large;
mod latency;
mod memory;
mod throughput;
mod traffic;

use std::num::NonZero;
use std::{fs, thread};

fn main() {
    let cores = thread::available_parallelism().map_or(0, NonZero::get);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("{cores} cores, Linux {kernel}");
    throughput::report();
    large::report();
    memory::report();
    latency::report();
}
