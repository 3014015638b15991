//! `freshline router attach` without `--rate`: packets leave at the device's own rate, and queue in the
//! discipline while the device's queue is stopped.
//!
//! ```text
//!   A ── R ── virtio-net, a packet each 1.2 ms ── virtio-net ── B
//! ```
//!
//! The two devices of QEMU are on one hub. QEMU takes a packet out of the ring of the first one at each
//! end of its timer; the driver's byte queue limits (BQL) stop the queue before the ring is full.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::attached::{Attached, tc};
use super::beside::{Outcome, measured};
use super::flood::acquainted;
use super::guest;
use super::net::{DEVICE, Net, can_run};
use super::running::count;
use super::traffic::{arrived_for_nobody, send};

/// 10 Mbit/s of full packets. Nothing boots from it, so that it needs no file of a ROM.
const SENDS: &str = "virtio-net-pci,romfile=,netdev=near,mac=52:54:00:00:00:01,\
                     tx=timer,x-txtimer=1200000,x-txburst=1";
const RECEIVES: &str = "virtio-net-pci,romfile=,netdev=far,mac=52:54:00:00:00:02";
const LINK: [&str; 8] = [
    "-netdev",
    "hubport,id=near,hubid=0",
    "-netdev",
    "hubport,id=far,hubid=0",
    "-device",
    SENDS,
    "-device",
    RECEIVES,
];
const WINDOW: Duration = Duration::from_secs(3);

/// Puts the two devices, eth0 and eth1, in place of the link between R and B.
fn over_the_link() -> Net {
    let net = Net::new();
    let [r, b] = ["r", "b"].map(|host| net.name(host));
    net.ip("r", &format!("link del dev {DEVICE}"));
    for (given, host, namespace, name, address) in
        [("eth0", "r", &r, DEVICE, "10.77.2.2/24"), ("eth1", "b", &b, "r", "10.77.2.1/24")]
    {
        super::common::ip(&format!("link set dev {given} netns {namespace} name {name}"));
        net.ip(host, &format!("addr add {address} dev {name}"));
        net.ip(host, &format!("link set dev {name} up"));
    }
    net.ip("b", "route add default via 10.77.2.2");
    net
}

/// The driver's byte queue limit, in bytes, in the namespace's own sysfs.
fn queue_limit(net: &Net) -> u64 {
    let path = format!("/sys/class/net/{DEVICE}/queues/tx-0/byte_queue_limits/limit");
    let host = net.name("r");
    let done = Command::new("ip").args(["netns", "exec", &host, "cat", &path]).output().unwrap();
    String::from_utf8(done.stdout).unwrap().trim().parse().unwrap()
}

/// Updates and a TCP stream at the same time, and the report after them.
fn by_ifc(net: &Net) -> (Outcome, Value) {
    let attached = Attached::new(net, &["--classify", "udp force"]);
    let outcome = measured(net, WINDOW);
    let status = attached.status();
    attached.detach();
    (outcome, status)
}

#[test]
#[ignore = "long: boots a kernel in a guest"]
fn without_a_rate_the_queue_of_the_device_decides_what_is_scheduled() {
    if !guest::entered_with(&LINK) || !can_run() {
        return;
    }
    let net = over_the_link();
    tc(&net, "r", &format!("replace dev {DEVICE} root pfifo limit 100"));
    let by_pfifo = measured(&net, WINDOW);
    let (by_ifc, status) = by_ifc(&net);
    println!(
        "pfifo {by_pfifo:?}, ifc {by_ifc:?}, {} bytes in the device\n{status}",
        queue_limit(&net)
    );
    assert_eq!(status["rate_bps"], Value::Null);
    assert_eq!(status["super_packets"], "whole");
    assert!(by_ifc.age_ms < 20.0 && by_pfifo.age_ms > 80.0);
    assert!(by_ifc.goodput > 0.9 * by_pfifo.goodput);
    drop(net);
    a_device_that_never_stops_leaves_no_queue();
}

/// A virtual Ethernet device takes each packet at once.
fn a_device_that_never_stops_leaves_no_queue() {
    let net = acquainted();
    let attached = Attached::new(&net, &["--classify", "udp force"]);
    send(&net, 100, (10_000..10_016).cycle().take(1000));
    let status = attached.status();
    assert_eq!(count(&status["classes"][0]["packets_out"]), 1000, "{status}");
    assert_eq!(arrived_for_nobody(&net) - 1, 1000);
    // From now on the queue is the rate's.
    attached.set(&["--rate", "64kbit"]);
    send(&net, 100, (10_000..10_016).cycle().take(1000));
    let status = attached.status();
    assert_eq!(status["rate_bps"], 64_000);
    assert!(count(&status["classes"][0]["replaced"]) > 900, "{status}");
    attached.detach();
}
