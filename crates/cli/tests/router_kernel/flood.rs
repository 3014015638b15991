//! The kernel's queueing discipline with more flows than it has room for, and its removal under
//! load.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::attached::{Attached, asked, in_kernel, left_besides, tc};
use super::guest;
use super::net::{Net, can_run};
use super::running::count;
use super::traffic::{Bulk, Updates, arrived_for_nobody, send, send_from};

/// Over both classes.
fn of_all(status: &Value, what: &str) -> u64 {
    status["classes"].as_array().unwrap().iter().map(|class| count(&class[what])).sum()
}

/// Releases all queued packets; returns the `status` after it.
fn drained(attached: &Attached) -> Value {
    attached.set(&["--rate", "1gbit"]);
    for _ in 0..100 {
        let status = attached.status();
        if count(&status["backlog"]["packets"]) == 0 {
            return status;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("it does not drain: {}", attached.status());
}

/// Every packet that arrived has left, was dropped for a counted reason, or is queued.
#[track_caller]
fn assert_conserved(status: &Value) {
    let dropped = ["replaced", "queue_full", "congestion"].map(|why| of_all(status, why));
    let all = of_all(status, "packets_out") + dropped.iter().sum::<u64>();
    let waiting = count(&status["backlog"]["packets"]);
    assert_eq!(of_all(status, "packets_in"), all + waiting, "{status}");
}

/// Two hosts that have resolved each other's address: until then a host drops packets that follow
/// quickly. One datagram has arrived.
pub(crate) fn acquainted() -> Net {
    let net = Net::new();
    send(&net, 100, [10_000].into_iter());
    for _ in 0..100 {
        if arrived_for_nobody(&net) == 1 {
            return net;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("nothing arrives");
}

/// All packets that left have arrived, and one before them.
#[track_caller]
fn assert_arrived(net: &Net, status: &Value) {
    assert_eq!(arrived_for_nobody(net) - 1, count(&status["classes"][0]["packets_out"]));
}

#[test]
#[ignore = "long: boots a kernel in a guest"]
fn of_each_flow_of_updates_one_packet_waits() {
    const FLOWS: usize = 300;
    const EACH: usize = 8;
    if !guest::entered() || !can_run() {
        return;
    }
    let net = acquainted();
    let attached = Attached::new(&net, &["--rate", "64kbit", "--classify", "udp force"]);
    // A socket's datagrams to a port are a flow.
    let ports = (0..EACH).flat_map(|_| (10_000..).take(FLOWS));
    send(&net, 100, ports);
    let status = attached.status();
    let waiting = count(&status["backlog"]["packets"]);
    // The hosts' own packets are in the other class.
    assert!((FLOWS as u64 / 2..=FLOWS as u64 + 20).contains(&waiting), "{status}");
    let status = drained(&attached);
    assert_conserved(&status);
    let updates = &status["classes"][0];
    assert_eq!(count(&updates["packets_in"]), (FLOWS * EACH) as u64, "{status}");
    assert!(count(&updates["replaced"]) > (FLOWS * (EACH - 2)) as u64, "{status}");
    assert_arrived(&net, &status);
    attached.detach();
}

/// How many packets another host sends in the flood, each of a flow of its own.
const FEW: usize = 20;

/// How many of those arrive within this time. The queue is full of the flood's, of which 1 ms each
/// takes one.
fn arrived_from_another_host(net: &Net, within: Duration) -> usize {
    net.ip("a", "addr add 10.77.1.3/24 dev r");
    let sockets: Vec<_> = net.within("b", || {
        let bind = |port: u16| UdpSocket::bind((net.far(), port)).unwrap();
        (9000..).take(FEW).map(bind).collect()
    });
    send_from(net, "10.77.1.3", 100, (9000..).take(FEW));
    thread::sleep(within + Duration::from_millis(10));
    let arrived = |socket: &&UdpSocket| {
        socket.set_nonblocking(true).unwrap();
        let from = socket.recv_from(&mut [0; 200]).ok().map(|(_, from)| from.ip().to_string());
        from.as_deref() == Some("10.77.1.3")
    };
    sockets.iter().filter(arrived).count()
}

#[test]
#[ignore = "long: boots a kernel in a guest"]
fn after_a_flood_of_flows_every_packet_is_accounted_for() {
    const PORTS: usize = 50_000;
    if !guest::entered() || !can_run() {
        return;
    }
    let net = acquainted();
    let attached = Attached::new(&net, &["--rate", "1mbit", "--classify", "udp force"]);
    // Two sockets: 100,000 flows.
    for _ in 0..2 {
        send(&net, 100, (10_000..).take(PORTS));
    }
    let status = attached.status();
    let waiting = count(&status["backlog"]["packets"]);
    let updates = &status["classes"][0];
    assert_eq!(count(&updates["packets_in"]), 2 * PORTS as u64, "{status}");
    assert!(waiting < 5_000 && count(&updates["queue_full"]) > 90_000, "{status}");
    let from_other = arrived_from_another_host(&net, 2 * Duration::from_millis(FEW as u64));
    let status = drained(&attached);
    assert_eq!(from_other, FEW, "{status}");
    assert_conserved(&status);
    // Packets from the other host found a socket.
    assert_eq!(
        arrived_for_nobody(&net) - 1 + FEW as u64,
        count(&status["classes"][0]["packets_out"])
    );
    attached.detach();
}

#[test]
#[ignore = "long: boots a kernel in a guest"]
fn attached_and_detached_under_load_it_leaves_nothing() {
    if !guest::entered() || !can_run() {
        return;
    }
    let before = in_kernel();
    let net = Net::new();
    // Without the discipline the stream would take all of the guest.
    tc(&net, "a", "add dev r root netem rate 8mbit limit 1000");
    let (updates, bulk) = (Updates::start(&net), Bulk::start(&net));
    for _ in 0..3 {
        let attached = Attached::new(&net, &["--rate", "5mbit", "--classify", "udp force"]);
        thread::sleep(Duration::from_millis(400));
        let status = attached.status();
        assert!(of_all(&status, "packets_out") > 0, "{status}");
        attached.detach();
        thread::sleep(Duration::from_millis(100));
    }
    assert!(!asked(&net, "status", &[]).status.success(), "nothing is attached");
    // Both go on; the stream may wait for a timeout first.
    assert!((0..20).any(|_| bulk.goodput(Duration::from_millis(500)) > 0.0));
    assert!(updates.age_ms(Duration::from_millis(500)).is_finite());
    assert_eq!(left_besides(&before), Default::default());
    drop(bulk);
    // With its namespace goes the device, while packets wait.
    let attached = Attached::new(&net, &["--rate", "64kbit", "--classify", "udp force"]);
    send(&net, 100, 10_000..11_000);
    assert!(count(&attached.status()["backlog"]["packets"]) > 0);
    drop(net);
}
