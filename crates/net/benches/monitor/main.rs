//! The cost of a monitor: updates per second, large states, bytes per source, one-way latency. Throughput and latency
//! are compared with bare sockets, measured in the same run.
//!
//! `cargo bench -p freshline-net [-- PART…]`. Everything runs over the loopback, on two threads. With names of parts
//! (`throughput`, `single`, `large`, `memory`, `million`, `latency`) only those run; `million` runs only if named.
//! Options that `cargo bench` adds are ignored.

mod bare;
mod crowd;
mod large;
mod latency;
mod memory;
mod million;
mod single;
mod throughput;
mod traffic;

use std::num::NonZero;
use std::{env, fs, thread};

fn main() {
    let cores = thread::available_parallelism().map_or(0, NonZero::get);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("{cores} cores, Linux {kernel}");
    let wanted: Vec<_> = env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let parts: [(&str, fn()); 6] = [
        ("throughput", throughput::report),
        ("single", single::report),
        ("large", large::report),
        ("memory", memory::report),
        ("million", million::report),
        ("latency", latency::report),
    ];
    for (name, report) in parts {
        // A million sources take a minute.
        let is_default = wanted.is_empty() && name != "million";
        if is_default || wanted.iter().any(|it| it == name) {
            // A thread of its own: a report may bind its thread to a core.
            thread::spawn(report).join().expect("the report is complete");
        }
    }
}
