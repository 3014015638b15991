//! Hosts in network namespaces of their own.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::common::{command_in, ip, within};
use super::orphans::remove_orphans;

/// The namespaces, for as long as this is; those of tests that were killed go with the next one's.
pub(crate) struct Hosts {
    prefix: String,
    names: Vec<&'static str>,
}

impl Hosts {
    /// Each with nothing but its loopback; `kind` is in the namespaces' names.
    pub(crate) fn new(kind: &str, names: &[&'static str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        remove_orphans(&format!("fl-{kind}-"));
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("fl-{kind}-{}-{number}", std::process::id());
        let hosts = Self { prefix, names: names.to_vec() };
        for host in names {
            ip(&format!("netns add {}", hosts.name(host)));
            hosts.ip(host, "link set dev lo up");
        }
        hosts
    }

    /// The namespace of a host.
    pub(crate) fn name(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }

    /// Runs `ip` on a host.
    pub(crate) fn ip(&self, host: &str, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.name(host)));
    }

    /// A command on a host, with the files of this one.
    pub(crate) fn command(&self, host: &str, program: &str) -> Command {
        command_in(&self.name(host), program)
    }

    /// Runs `what` on a thread that is on a host.
    pub(crate) fn within<T: Send>(&self, host: &str, what: impl FnOnce() -> T + Send) -> T {
        within(&self.name(host), what)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.names {
            // Whatever of it was made; a failing test must not leave the others.
            let _ = Command::new("ip").args(["netns", "del", &self.name(host)]).output();
        }
    }
}
