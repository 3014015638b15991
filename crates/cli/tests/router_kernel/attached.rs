//! `freshline router attach` on the host between the others, and its objects in the kernel.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::common::FRESHLINE;
use super::net::{DEVICE, Net};

/// A discipline in the kernel, at the root of the device towards B.
pub(crate) struct Attached<'a> {
    net: &'a Net,
}

impl<'a> Attached<'a> {
    /// With these flags.
    pub(crate) fn new(net: &'a Net, flags: &[&str]) -> Self {
        let attached = Self { net };
        attached.done("attach", flags);
        attached
    }

    /// Output of `freshline router` with this word and these flags, which succeeds.
    fn done(&self, what: &str, flags: &[&str]) -> String {
        let done = asked(self.net, what, flags);
        let [out, errors] = [done.stdout, done.stderr].map(|said| String::from_utf8(said).unwrap());
        assert!(done.status.success(), "{what} {flags:?}: {errors}");
        out
    }

    pub(crate) fn set(&self, flags: &[&str]) {
        self.done("set", flags);
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.done("status", &["--json"])).unwrap()
    }

    pub(crate) fn detach(self) {
        self.done("detach", &[]);
    }
}

/// `freshline router WHAT --dev DEVICE FLAGS` on the router. It sees the BPF file system, unlike a
/// command of `ip netns exec`.
pub(crate) fn asked(net: &Net, what: &str, flags: &[&str]) -> Output {
    net.within("r", || {
        let mut command = Command::new(FRESHLINE);
        command.args(["router", what, "--dev", DEVICE]).args(flags).stdin(Stdio::null());
        command.output().unwrap()
    })
}

/// The programs, maps and links of eBPF that are in the kernel, and the pinned objects.
pub(crate) fn in_kernel() -> BTreeSet<String> {
    let list = |kind: &str| {
        let done = Command::new("bpftool").args(["--json", kind, "show"]).output().unwrap();
        let list: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
        let list = list.as_array().cloned().unwrap_or_default();
        list.into_iter()
            .map(|one| format!("{kind} {} {}", one["id"], one["name"]))
            .collect::<Vec<_>>()
    };
    let pins = std::fs::read_dir("/sys/fs/bpf").unwrap().flatten();
    let pins = pins.map(|entry| entry.path().display().to_string());
    ["prog", "map", "link"].into_iter().flat_map(list).chain(pins).collect()
}

/// Objects in the kernel that were not there `before`, after the time that their removal takes.
pub(crate) fn left_besides(before: &BTreeSet<String>) -> BTreeSet<String> {
    let mut left = BTreeSet::new();
    // The kernel frees programs and maps after a grace period.
    for _ in 0..50 {
        left = in_kernel().difference(before).cloned().collect();
        if left.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    left
}

/// `tc qdisc` on a host.
#[track_caller]
pub(crate) fn tc(net: &Net, host: &str, arguments: &str) {
    let mut command = Command::new("tc");
    command.arg("qdisc").args(arguments.split(' '));
    let done = net.within(host, || command.output().unwrap());
    assert!(done.status.success(), "{arguments}: {}", String::from_utf8_lossy(&done.stderr));
}
