//! Two hosts and a router between them, each in a network namespace of its own:
//!
//! ```text
//!   A 10.77.1.1 ── 10.77.1.2 R 10.77.2.2 ── 10.77.2.1 B        also fd77:1::, fd77:2::
//!         in A: `r`     in R: `a`, `b`    in B: `r`
//! ```
//!
//! The sender may be behind a path of Freshline's emulator in A, for the propagation delay: not
//! every kernel can emulate one.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use tempfile::NamedTempFile;

use super::common::{FRESHLINE, ip};
use super::hosts::Hosts;

/// The device of the router towards B.
pub(crate) const DEVICE: &str = "b";

/// The missing requirement of the tests on this machine, if any; it is printed once.
pub(crate) fn can_run() -> bool {
    let cubic = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let table = "/proc/net/netfilter/nfnetlink_queue";
    let missing = if !Uid::effective().is_root() {
        "root"
    } else if Command::new("ip").arg("-V").output().is_err() {
        "ip"
    } else if !cubic.is_ok_and(|known| known.contains("cubic")) {
        "TCP cubic in the kernel"
    } else if !Path::new(table).exists() {
        "NFQUEUE in the kernel (CONFIG_NETFILTER_NETLINK_QUEUE)"
    } else {
        return true;
    };
    println!("skipped: needs {missing}");
    false
}

/// The three namespaces, for as long as this is.
pub(crate) struct Net {
    hosts: Hosts,
    /// One at a time: they measure.
    _alone: MutexGuard<'static, ()>,
    /// The file of the path behind which senders are.
    path: Option<NamedTempFile>,
}

impl Net {
    /// With this propagation delay between the sender and B, in both directions.
    pub(crate) fn with_delay(delay: &str) -> Self {
        let mut net = Self::new();
        let mut path = NamedTempFile::with_suffix(".toml").unwrap();
        let hop = format!("delay = \"{delay}\"\nqueue = \"10000p\"");
        write!(path, "[[forward.hop]]\n{hop}\n[[reverse.hop]]\n{hop}\n").unwrap();
        net.path = Some(path);
        // The emulator's addresses.
        net.ip("r", "route add 100.64.0.0/10 via 10.77.1.1");
        net
    }

    pub(crate) fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let hosts = Hosts::new("router", &["a", "r", "b"]);
        let net = Self { hosts, _alone: alone, path: None };
        let [a, r, b] = ["a", "r", "b"].map(|host| net.name(host));
        for host in ["a", "r", "b"] {
            // Addresses of IPv6 are not looked for elsewhere first, and are there at once.
            net.set(host, "ipv6/conf/default/accept_dad", "0");
        }
        for (number, host, device) in [(1, &a, "a"), (2, &b, "b")] {
            ip(&format!("link add r netns {host} type veth peer name {device} netns {r}"));
            for (name, interface, end) in [(host, "r", 1), (&r, device, 2)] {
                ip(&format!("-n {name} addr add 10.77.{number}.{end}/24 dev {interface}"));
                ip(&format!("-n {name} addr add fd77:{number}::{end}/64 dev {interface} nodad"));
                ip(&format!("-n {name} link set dev {interface} up"));
            }
            ip(&format!("-n {host} route add default via 10.77.{number}.2"));
            ip(&format!("-n {host} route add default via fd77:{number}::2"));
        }
        for host in ["a", "r"] {
            net.set(host, "ipv4/ip_forward", "1");
            net.set(host, "ipv6/conf/all/forwarding", "1");
        }
        net
    }

    pub(crate) fn set(&self, host: &str, setting: &str, value: &str) {
        self.within(host, || fs::write(format!("/proc/sys/net/{setting}"), value).unwrap());
    }

    /// The address of host B.
    pub(crate) fn far(&self) -> IpAddr {
        "10.77.2.1".parse().unwrap()
    }

    /// A command of `freshline` on `host`.
    pub(crate) fn freshline(&self, host: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(host), FRESHLINE]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A command that sends, on A or behind the path there.
    pub(crate) fn sender(&self, program: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name("a")]);
        if let Some(path) = &self.path {
            command.args([FRESHLINE, "emulate", "run"]).arg(path.path()).arg("--");
        }
        command.args(program).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// The kernel's queues to user space on the router.
    pub(crate) fn queues(&self) -> String {
        let list = "/proc/thread-self/net/netfilter/nfnetlink_queue";
        self.within("r", || fs::read_to_string(list).unwrap())
    }
}

impl Deref for Net {
    type Target = Hosts;

    fn deref(&self) -> &Hosts {
        &self.hosts
    }
}

/// A process that ends with this.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().try_into().unwrap()), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
