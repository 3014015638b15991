//! A chain of nodes, each in a network namespace of its own, and their streams to the first node:
//!
//! ```text
//!                host 1 10.80.11.2         host 3              host 6
//!                  │                         │                   │
//!   node 0 ────── node 1 ───── node 2 ───── node 3 ───── … ───── node 6
//!   10.80.1.1     10.80.1.2, 10.80.2.1      10.80.3.2, …
//! ```
//!
//! A link passes 125 full packets a second, has a queue of 15 packets at either end, and may lose
//! some by chance. A node's own packets and the forwarded ones share a queue.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::socket::{setsockopt, sockopt::TcpCongestion};

use super::common::{FRESHLINE, assert_succeeded, command_in, ip, within};

/// The hops to the first node.
const HOPS: u32 = 6;
/// Hops from the senders to the first node.
pub(crate) const SENDERS: [u32; 3] = [1, 3, 6];

const RATE: &str = "500kbit";
const MTU: u32 = 500;
const QUEUE: u32 = 15;

/// The parameters of a chain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// How many packets of 1000 a link loses.
    pub(crate) lost_of_1000: u32,
    /// Whether senders are hosts behind their nodes: then TCP does not see the node's queue.
    pub(crate) has_hosts: bool,
}

pub(crate) struct Chain {
    prefix: String,
    kind: Kind,
}

impl Chain {
    pub(crate) fn new(kind: Kind) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let chain = Self { prefix: format!("fl-mesh-{}-{number}", std::process::id()), kind };
        for node in 0..=HOPS {
            chain.add(&chain.node(node));
        }
        for hop in 1..=HOPS {
            let [near, far] = [chain.node(hop - 1), chain.node(hop)];
            ip(&format!("link add uplink netns {far} type veth peer name downlink netns {near}"));
            chain.begin(&near, "downlink", &format!("10.80.{hop}.1"));
            chain.begin(&far, "uplink", &format!("10.80.{hop}.2"));
            for (node, device) in [(near, "downlink"), (far, "uplink")] {
                chain.limit(&node, device);
            }
        }
        if kind.has_hosts {
            SENDERS.into_iter().for_each(|hops| chain.add_host(hops));
        }
        (0..=HOPS).for_each(|node| chain.route(node));
        chain
    }

    fn node(&self, number: u32) -> String {
        format!("{}-{number}", self.prefix)
    }

    fn host(&self, hops: u32) -> String {
        format!("{}-host-{hops}", self.prefix)
    }

    /// The namespace of the sender at a distance of `hops`.
    pub(crate) fn sender(&self, hops: u32) -> String {
        if self.kind.has_hosts { self.host(hops) } else { self.node(hops) }
    }

    fn names(&self) -> Vec<String> {
        let nodes = (0..=HOPS).map(|number| self.node(number));
        nodes.chain(SENDERS.map(|hops| self.host(hops))).collect()
    }

    fn add(&self, name: &str) {
        ip(&format!("netns add {name}"));
        within(name, || {
            fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            // Metrics that a connection has learned of a path must not affect the next one.
            fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1").unwrap();
        });
    }

    fn begin(&self, name: &str, device: &str, address: &str) {
        let lines = [
            format!("addr add {address}/24 dev {device}"),
            format!("link set dev {device} mtu {MTU} gso_max_segs 1 up"),
        ];
        batch(Command::new("ip").args(["-n", name]), &lines);
    }

    /// Rate, queue and losses of a device.
    fn limit(&self, name: &str, device: &str) {
        let burst = MTU + 40;
        let mut lines = vec![
            format!("qdisc add dev {device} root handle 1: tbf rate {RATE} burst {burst} limit 1m"),
            format!("qdisc add dev {device} parent 1:1 handle 2: pfifo limit {QUEUE}"),
        ];
        if self.kind.lost_of_1000 > 0 {
            lines.extend(lossy(device, self.kind.lost_of_1000));
        }
        batch(&mut command_in(name, "tc"), &lines);
    }

    fn add_host(&self, hops: u32) {
        let [host, node] = [self.host(hops), self.node(hops)];
        self.add(&host);
        ip(&format!("link add v netns {host} type veth peer name host netns {node}"));
        self.begin(&host, "v", &format!("10.80.1{hops}.2"));
        self.begin(&node, "host", &format!("10.80.1{hops}.1"));
        ip(&format!("-n {host} route add default via 10.80.1{hops}.1"));
    }

    /// Up by default; down to all that is behind the next node.
    fn route(&self, node: u32) {
        let mut lines = Vec::new();
        if node > 0 {
            lines.push(format!("route add default via 10.80.{node}.1"));
        }
        let next = node + 1;
        let behind = (next + 1..=HOPS).chain(
            SENDERS
                .into_iter()
                .filter(|hops| *hops >= next && self.kind.has_hosts)
                .map(|hops| 10 + hops),
        );
        lines.extend(behind.map(|net| format!("route add 10.80.{net}.0/24 via 10.80.{next}.2")));
        batch(Command::new("ip").args(["-n", &self.node(node)]), &lines);
    }

    /// A connection to the first node from the sender at a distance of `hops`, with its two ends.
    pub(crate) fn connection(&self, hops: u32, congestion: &str) -> [TcpStream; 2] {
        let listener = within(&self.node(0), || TcpListener::bind("10.80.1.1:0").unwrap());
        let address = listener.local_addr().unwrap();
        let from = within(&self.sender(hops), || TcpStream::connect(address).unwrap());
        setsockopt(&from, TcpCongestion, &congestion.into()).unwrap();
        [from, listener.accept().unwrap().0]
    }

    /// Our command in the namespace of a sender.
    pub(crate) fn freshline(&self, hops: u32) -> Command {
        command_in(&self.sender(hops), FRESHLINE)
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for name in self.names() {
            if Path::new("/var/run/netns").join(&name).exists() {
                let _ = Command::new("ip").args(["netns", "del", &name]).output();
            }
        }
    }
}

/// Lines for `tc` with which a device loses `lost_of_1000` of 1000 arriving packets.
pub(crate) fn lossy(device: &str, lost_of_1000: u32) -> [String; 2] {
    // `tc` compares a random number of 32 bits with a bound and drops the packet if it is above.
    let random = u32::MAX - 4095 + 56;
    let bound = u32::MAX / 1000 * (1000 - lost_of_1000);
    let (drop, pass) = (2, 0);
    let program = format!("4,32 0 0 {random},53 0 1 {bound},6 0 0 {drop},6 0 0 {pass}");
    let at = format!("dev {device} parent ffff: protocol ip");
    [
        format!("qdisc add dev {device} ingress"),
        format!("filter add {at} bpf da bytecode \"{program}\""),
    ]
}

/// Passes these lines to a command of iproute2; each must succeed.
#[track_caller]
pub(crate) fn batch(command: &mut Command, lines: &[String]) {
    let command = command.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    running.stdin.take().unwrap().write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    assert_succeeded(&running.wait_with_output().unwrap());
}
