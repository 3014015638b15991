//! A host with two paths to another one, each in a network namespace of its own:
//!
//! ```text
//!            v1 10.79.1.1 ── 10.79.1.2 v1
//!   client                                  server 10.79.9.9, the destination as well
//!            v2 10.79.2.1 ── 10.79.2.2 v2
//! ```
//!
//! And the same in IPv6: `fd79:1::1` and so on, the server at `fd79:9::9`.

use std::any::Any;
use std::ops::Deref;
use std::sync::{PoisonError, RwLock};

use super::common::{FRESHLINE, assert_succeeded, can_run_with, ip};
use super::hosts::Hosts;
use super::process::Process;

/// Addresses on which the server listens and to which it connects.
pub(crate) const SERVER: &str = "10.79.9.9";
pub(crate) const SERVER_6: &str = "fd79:9::9";

/// Whether the tests can run; prints the reason if not.
pub(crate) fn can_run() -> bool {
    can_run_with(&[])
}

/// The rate of a path in Mbit/s.
pub(crate) type Rate = u32;

/// Tests that measure run alone; the others may run at the same time.
pub(crate) static BESIDE: RwLock<()> = RwLock::new(());

/// Both hosts, for as long as this is.
pub(crate) struct Net {
    hosts: Hosts,
    state: tempfile::TempDir,
    /// Of [`BESIDE`].
    _turn: Box<dyn Any + Sync>,
}

impl Net {
    /// For a test that measures.
    pub(crate) fn new(rates: [Rate; 2]) -> Self {
        Self::at(BESIDE.write().unwrap_or_else(PoisonError::into_inner), rates)
    }

    /// While `turn` is held.
    pub(crate) fn at(turn: impl Any + Sync, rates: [Rate; 2]) -> Self {
        let (hosts, state) = (Hosts::new("bond", &["c", "s"]), tempfile::tempdir().unwrap());
        let net = Self { hosts, state, _turn: Box::new(turn) };
        for (path, rate) in [1, 2].into_iter().zip(rates) {
            net.cable(path, rate);
        }
        net.ip("s", &format!("addr add {SERVER}/32 dev lo"));
        net.ip("s", &format!("addr add {SERVER_6}/128 dev lo nodad"));
        net
    }

    /// Lays a cable between the hosts, and a default route over it.
    pub(crate) fn cable(&self, path: usize, rate: Rate) {
        let [c, s] = ["c", "s"].map(|host| self.name(host));
        ip(&format!("link add v{path} netns {c} type veth peer name v{path} netns {s}"));
        for (host, number) in [("c", 1), ("s", 2)] {
            self.ip(host, &format!("addr add 10.79.{path}.{number}/24 dev v{path}"));
            self.ip(host, &format!("addr add fd79:{path}::{number}/64 dev v{path} nodad"));
            self.ip(host, &format!("link set dev v{path} up"));
            let bucket = format!("tbf rate {rate}mbit burst 8k limit 150k");
            self.tc(host, &format!("qdisc add dev v{path} root {bucket}"));
        }
        self.route(path);
        self.ip("c", &format!("-6 route add default via fd79:{path}::2 metric {path}"));
    }

    /// Has the client's host reach everything by this cable.
    pub(crate) fn route(&self, path: usize) {
        self.ip("c", &format!("route add default via 10.79.{path}.2 metric {path}"));
    }

    /// Runs `tc` on a host.
    pub(crate) fn tc(&self, host: &str, arguments: &str) {
        let done = self.command(host, "tc").args(arguments.split(' ')).output().unwrap();
        assert_succeeded(&done);
    }

    /// Where one of many keeps its identity.
    pub(crate) fn state(&self, who: &str) -> String {
        self.state.path().join(who).to_str().unwrap().to_owned()
    }

    /// Cuts the first path silently, or restores it: no host accepts its frames.
    pub(crate) fn cut(&self, is_cut: bool) {
        for (host, far) in [("c", "10.79.1.2"), ("s", "10.79.1.1")] {
            if is_cut {
                self.ip(
                    host,
                    &format!("neigh replace {far} lladdr 02:00:00:00:00:01 dev v1 nud permanent"),
                );
            } else {
                self.ip(host, &format!("neigh del {far} dev v1"));
            }
        }
    }

    /// An emulated path of the server's, to which clients speak as to the server.
    pub(crate) fn emulated(&self, listen: &str, [hop, reverse_hop]: [&str; 2]) -> Process {
        let mut command = self.command("s", FRESHLINE);
        let to = format!("{SERVER}:3775");
        command.args(["emulate", "udp", "--listen", listen, "--to", &to, "--hop", hop]);
        command.args(["--reverse-hop", reverse_hop]);
        Process::start(&mut command, listen).0
    }
}

impl Deref for Net {
    type Target = Hosts;

    fn deref(&self) -> &Hosts {
        &self.hosts
    }
}
