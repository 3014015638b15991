//! `freshline router run` on the host between the others.

use std::io::Read;
use std::process::Child;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::net::{DEVICE, Net, Running};

/// A router that is up.
pub(crate) struct Router<'a> {
    net: &'a Net,
    device: &'a str,
    pub(crate) running: Running,
}

impl<'a> Router<'a> {
    /// With these flags, for the device towards B.
    pub(crate) fn start(net: &'a Net, flags: &[&str]) -> Self {
        Self::of(net, "--dev", DEVICE, flags)
    }

    /// For the device towards B by another name of it.
    pub(crate) fn by_name(net: &'a Net, name: &'a str, flags: &[&str]) -> Self {
        Self::of(net, "--dev", name, flags)
    }

    /// With a TUN device into which the packets of A are routed.
    pub(crate) fn behind_tun(net: &'a Net, flags: &[&str]) -> Self {
        const TUN: &str = "shaped";
        let router = Self::of(net, "--tun", TUN, flags);
        for family in ["-4", "-6"] {
            net.ip("r", &format!("{family} route add default dev {TUN} table 100"));
            net.ip("r", &format!("{family} rule add iif a lookup 100"));
        }
        router
    }

    fn of(net: &'a Net, via: &str, device: &'a str, flags: &[&str]) -> Self {
        let command = ["router", "run", "--json", via, device];
        let running = Running(net.freshline("r", &[&command[..], flags].concat()).spawn().unwrap());
        let router = Self { net, device, running };
        for _ in 0..250 {
            if router.ask("status", &[]).0 == Some(0) {
                return router;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the router does not answer");
    }

    /// `freshline router status` or `set` for the device: exit code, output and errors.
    pub(crate) fn ask(&self, what: &str, flags: &[&str]) -> (Option<i32>, String, String) {
        let command = [&["router", what, "--dev", self.device, "--json"], flags].concat();
        output_of(self.net.freshline("r", &command).spawn().unwrap())
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.ask("status", &[]).1).unwrap()
    }

    /// Ends it as a request to terminate does: its report.
    pub(crate) fn stop(mut self) -> Value {
        self.running.signal(Signal::SIGTERM);
        let mut out = String::new();
        self.running.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }
}

pub(crate) fn output_of(child: Child) -> (Option<i32>, String, String) {
    let done = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

pub(crate) fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no count: {value}"))
}
