//! What a packet costs in the discipline in the kernel, and in the kernel's own. The figures are for
//! the documentation; what is asserted is that there are some.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::attached::{Attached, in_kernel, tc};
use super::guest;
use super::net::{DEVICE, Net, can_run};
use super::traffic::send;

const PACKETS: usize = 10_000;
const FLOWS: u16 = 16;
const TRACING: &str = "/sys/kernel/tracing";

/// What a program or a function took in all its calls.
struct Cost {
    name: String,
    ns: f64,
    calls: u64,
}

/// Sends more than the rate, from flows by turns.
fn load(net: &Net) {
    send(net, 500, (10_000..10_000 + FLOWS).cycle().take(PACKETS));
}

/// The programs that come with the discipline, by the kernel's statistics.
fn of_programs() -> Vec<Cost> {
    let (before, net) = (in_kernel(), Net::new());
    let attached = Attached::new(&net, &["--rate", "20mbit"]);
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
        Some(Cost { name, ns: program["run_time_ns"].as_u64()? as f64, calls })
    });
    costs.collect()
}

/// A discipline of the kernel's below its shaper, by the kernel's tracer of functions.
fn of_shaped(queue: &str) -> Vec<Cost> {
    // With all that they call.
    let functions = ["tbf_enqueue", "tbf_dequeue"];
    let net = Net::new();
    let shaper = "handle 1: tbf rate 20mbit burst 3000 limit 3000000";
    tc(&net, "r", &format!("add dev {DEVICE} root {shaper}"));
    tc(&net, "r", &format!("add dev {DEVICE} parent 1:1 {queue} limit 1000"));
    let set = |file: &str, text: &str| fs::write(format!("{TRACING}/{file}"), text).unwrap();
    set("buffer_size_kb", "16384");
    set("set_ftrace_filter", &functions.join(" "));
    set("max_graph_depth", "1");
    set("current_tracer", "function_graph");
    load(&net);
    set("tracing_on", "0");
    let trace = fs::read_to_string(format!("{TRACING}/trace")).unwrap();
    set("current_tracer", "nop");
    set("tracing_on", "1");
    let cost = |name: &str| {
        // ` 1)   1.234 us    |  tbf_enqueue [sch_tbf]();`
        let calls = trace.lines().filter(|line| line.split([' ', '(']).any(|word| word == name));
        let us = calls.filter_map(|line| {
            line.split_once(" us")?.0.split([' ', ')']).next_back()?.parse::<f64>().ok()
        });
        let (ns, calls) = us.fold((0.0, 0), |(ns, calls), us| (ns + us * 1e3, calls + 1));
        Cost { name: name.to_owned(), ns, calls }
    };
    functions.into_iter().map(cost).collect()
}

#[test]
fn what_a_packet_costs_is_told_beside_the_kernel_s_own() {
    if !guest::entered() || !can_run() {
        return;
    }
    let told = |what: &str, costs: &[Cost]| {
        let calls = costs.iter().map(|cost| {
            format!("{} {:.0} ns in {} calls", cost.name, cost.ns / cost.calls as f64, cost.calls)
        });
        let ns: f64 = costs.iter().map(|cost| cost.ns).sum();
        println!(
            "{what}: {:.0} ns a packet: {}",
            ns / PACKETS as f64,
            calls.collect::<Vec<_>>().join(", ")
        );
        assert!(ns > 0.0);
    };
    told("ifc, which shapes itself", &of_programs());
    if !fs::exists(format!("{TRACING}/set_ftrace_filter")).unwrap() {
        println!("the kernel's own: not measured, as this kernel has no tracer of functions");
        return;
    }
    for queue in ["pfifo", "fq_codel"] {
        told(&format!("{queue} below tbf"), &of_shaped(queue));
    }
}
