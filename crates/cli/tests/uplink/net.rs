//! Two hosts, each in a network namespace of its own, joined by a cable of two devices:
//!
//! ```text
//!   A 10.78.0.1 (v) ── (v) 10.78.0.2 B
//! ```

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::common::{FRESHLINE, can_run_with, ip, text};
use super::hosts::Hosts;

/// The device of either host.
pub(crate) const DEVICE: &str = "v";

/// Whether the tests can run; prints the reason if not.
pub(crate) fn can_run() -> bool {
    can_run_with(&[])
}

/// The two namespaces and everything attached in them, for the lifetime of this value.
pub(crate) struct Net {
    hosts: Hosts,
    /// One at a time: they measure.
    _alone: MutexGuard<'static, ()>,
}

impl Net {
    pub(crate) fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let net = Self { hosts: Hosts::new("uplink", &["a", "b"]), _alone: alone };
        net.connect();
        net
    }

    /// Lays the cable. TCP passes on up to 64 kB as one packet to a host that is so near; to one
    /// across the Internet, at these rates, two segments.
    pub(crate) fn connect(&self) {
        let [a, b] = ["a", "b"].map(|host| self.name(host));
        ip(&format!("link add {DEVICE} netns {a} type veth peer name {DEVICE} netns {b}"));
        for (host, number) in [("a", 1), ("b", 2)] {
            self.ip(host, &format!("addr add 10.78.0.{number}/24 dev {DEVICE}"));
            self.ip(host, &format!("link set dev {DEVICE} up gso_max_segs 2"));
        }
    }

    /// A command on A by `ip netns exec`.
    pub(crate) fn exec(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name("a"), program]);
        command
    }

    /// Runs `tc` for the device of a host.
    pub(crate) fn tc(&self, host: &str, what: &str, arguments: &str) -> String {
        let mut command = self.command(host, "tc");
        command.args(what.split(' ')).args(["dev", DEVICE]);
        let done = command.args(arguments.split_whitespace()).output().unwrap();
        assert!(done.status.success(), "tc {what} {arguments}: {}", text(&done.stderr));
        text(&done.stdout)
    }

    /// Puts a queueing discipline at the root of A's device, if there is such a one.
    pub(crate) fn puts(&self, root: &str) -> bool {
        let mut command = self.command("a", "tc");
        command.args(["qdisc", "replace", "dev", DEVICE, "root"]).args(root.split(' '));
        command.output().unwrap().status.success()
    }

    /// The queueing discipline at the root of A's device, as `tc` has it.
    pub(crate) fn root(&self) -> String {
        let all = self.tc("a", "qdisc show", "");
        all.lines().find(|line| line.contains("root")).unwrap_or_default().to_owned()
    }

    /// `freshline uplink` on A.
    pub(crate) fn uplink(&self, arguments: &str) -> Command {
        let mut command = self.command("a", FRESHLINE);
        command.arg("uplink").args(arguments.split(' '));
        command
    }

    /// Runs it for A's device.
    pub(crate) fn on_device(&self, what: &str, options: &str) -> Output {
        let mut command = self.uplink(what);
        command.args(["--dev", DEVICE]).args(options.split_whitespace()).output().unwrap()
    }

    /// The `status` of A's device.
    pub(crate) fn status(&self) -> Option<Value> {
        let printed = self.uplink("status --json").output().unwrap();
        let report: Value = serde_json::from_slice(&printed.stdout).unwrap();
        let all = report["attachments"].as_array().unwrap();
        all.iter().find(|one| one["other_namespace"] == false).cloned()
    }

    /// The number of A's folders of pins.
    pub(crate) fn pins(&self) -> usize {
        self.folders().len()
    }

    /// A's folder of pins.
    pub(crate) fn pin(&self) -> PathBuf {
        self.folders().pop().expect("a folder")
    }

    fn folders(&self) -> Vec<PathBuf> {
        let pins = fs::read_dir("/sys/fs/bpf/freshline").into_iter().flatten().flatten();
        pins.map(|pin| pin.path()).filter(|pin| self.is_pin(pin)).collect()
    }

    /// Whether this is a folder of A's pins.
    fn is_pin(&self, path: &Path) -> bool {
        let netns = self.within("a", || fs::read_link("/proc/thread-self/ns/net").unwrap());
        // Such as `net:[4026532246]`.
        let netns = netns.to_str().unwrap();
        let number = &netns["net:[".len()..netns.len() - 1];
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(&format!("uplink-{number}-"))
    }
}

impl Deref for Net {
    type Target = Hosts;

    fn deref(&self) -> &Hosts {
        &self.hosts
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for host in ["a", "b"] {
            let _ = self.command(host, FRESHLINE).args(["uplink", "detach"]).output();
        }
    }
}
