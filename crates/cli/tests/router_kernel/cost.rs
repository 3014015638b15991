//! The cost of a packet in the kernel's queueing discipline, and in the kernel's own disciplines. A
//! ns is an instruction here (`guest.rs`): figures do not depend on the host, and do not include
//! the effects of caches. They are for the documentation; the test only asserts that there are
//! figures.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::attached::{Attached, in_kernel, tc};
use super::flood::acquainted;
use super::guest;
use super::net::{DEVICE, Net, can_run};
use super::traffic::{arrived_for_nobody, send};

const PACKETS: usize = 10_000;
const FLOWS: u16 = 16;
/// A packet leaves at once at this rate.
const FAST: &str = "100gbit";

/// From flows by turns.
fn load(net: &Net) {
    send(net, 500, (10_000..10_000 + FLOWS).cycle().take(PACKETS));
}

/// The time of a packet from A to B, in ns, without queueing.
fn way_ns(net: &Net) -> f64 {
    let (start, before) = (Instant::now(), arrived_for_nobody(net));
    load(net);
    let took = start.elapsed();
    assert_eq!(arrived_for_nobody(net) - before, PACKETS as u64, "none waits");
    took.as_nanos() as f64 / PACKETS as f64
}

/// That, with a discipline of the kernel's below its shaper, neither of which is passed by.
fn below_tbf_ns(queue: &str) -> f64 {
    let net = acquainted();
    let shaper = format!("handle 1: tbf rate {FAST} burst 1mb limit 3000000");
    tc(&net, "r", &format!("add dev {DEVICE} root {shaper}"));
    tc(&net, "r", &format!("add dev {DEVICE} parent 1:1 {queue} limit 1000"));
    way_ns(&net)
}

fn by_ifc_ns() -> f64 {
    let net = acquainted();
    let attached = Attached::new(&net, &["--rate", FAST, "--classify", "udp force"]);
    let ns = way_ns(&net);
    attached.detach();
    ns
}

/// The cost of a program in all its calls.
struct Cost {
    name: String,
    ns: u64,
    calls: u64,
}

/// The programs that come with the discipline, by the kernel's statistics, in which a reading of the
/// clock is in each call.
fn of_programs(rate: &str) -> Vec<Cost> {
    let (before, net) = (in_kernel(), acquainted());
    let attached = Attached::new(&net, &["--rate", rate, "--classify", "udp force"]);
    fs::write("/proc/sys/kernel/bpf_stats_enabled", "1").unwrap();
    load(&net);
    fs::write("/proc/sys/kernel/bpf_stats_enabled", "0").unwrap();
    let done = Command::new("bpftool").args(["--json", "prog", "show"]).output().unwrap();
    attached.detach();
    let programs: Value = serde_json::from_slice(&done.stdout).unwrap();
    let ours =
        programs.as_array().unwrap().iter().filter(|program| {
            !before.contains(&format!("prog {} {}", program["id"], program["name"]))
        });
    let costs = ours.filter_map(|program| {
        let (name, calls) = (program["name"].as_str()?.to_owned(), program["run_cnt"].as_u64()?);
        Some(Cost { name, ns: program["run_time_ns"].as_u64()?, calls })
    });
    costs.collect()
}

#[test]
#[ignore = "long: boots a kernel in a guest"]
fn what_a_packet_costs_is_told_beside_the_kernel_s_own() {
    if !guest::entered() || !can_run() {
        return;
    }
    // Remaining work of the guest's start-up.
    thread::sleep(Duration::from_secs(5));
    let bare = way_ns(&acquainted());
    println!("a packet's way: {bare:.0} ns without a queueing discipline, and with");
    for (what, ns) in [
        ("ifc, which shapes itself", by_ifc_ns()),
        ("pfifo below tbf", below_tbf_ns("pfifo")),
        ("fq_codel below tbf", below_tbf_ns("fq_codel")),
    ] {
        println!("{what}: {:.0} ns more", ns - bare);
        assert!(ns > bare);
    }
    for (what, rate) in [("none waits", FAST), ("most are replaced", "20mbit")] {
        let programs = of_programs(rate);
        assert!(programs.iter().any(|program| program.calls >= PACKETS as u64));
        for Cost { name, ns, calls } in programs.iter().filter(|program| program.calls > 0) {
            println!("{what}: {name} {} ns a call, {calls} calls", ns / calls);
        }
    }
}
