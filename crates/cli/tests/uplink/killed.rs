//! What commands leave behind that are killed, and that the next command completes their work.

use std::fs;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::Link;
use serde_json::Value;

use super::common::{assert_fails, assert_succeeded, text};
use super::net::{DEVICE, Net, can_run};

/// What `status` says was left on A's devices.
fn leftovers(net: &Net) -> Vec<Value> {
    let printed = net.uplink("status --json").output().unwrap();
    let report: Value = serde_json::from_slice(&printed.stdout).unwrap();
    report["leftovers"].as_array().unwrap().clone()
}

/// Nothing is left, and `detach` finds nothing to do.
fn assert_clean(net: &Net, root: &str) {
    assert_eq!((net.status(), net.pins(), net.root()), (None, 0, root.to_owned()));
    assert_eq!(leftovers(net), Vec::<Value>::new());
    assert_fails(&net.on_device("detach", ""), 1, "nothing is attached to v");
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The command, in its own words, killed after some time.
fn killed(net: &Net, command: &str, after: Duration) {
    let child = net.uplink(command).stderr(Stdio::null()).spawn().unwrap();
    thread::sleep(after);
    kill(child);
}

const ATTACH: &str = "attach --dev v --rate 10mbit";
const HOLD: &str = "attach --foreground --dev v --rate 10mbit";
const RUN: &str = "run --dev v --rate 10mbit -- setpriv --pdeathsig KILL sleep 1000";

#[test]
fn status_shows_what_a_killed_process_left_and_detach_removes_it() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let root = net.root();
    for command in [HOLD, RUN] {
        let child = net.uplink(command).stderr(Stdio::null()).spawn().unwrap();
        let begin = Instant::now();
        while net.status().is_none() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{command}");
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(leftovers(&net), Vec::<Value>::new());
        kill(child);
        assert_eq!(net.status(), None);
        let [left] = &leftovers(&net)[..] else { panic!("{command}: nothing is shown") };
        assert_eq!((&left["device"], &left["rate_bps"]), (&DEVICE.into(), &10_000_000.into()));
        let said = text(&net.uplink("status").output().unwrap().stdout);
        let wanted = "v: left by a killed process, still shaped to 10mbit; ";
        assert!(said.contains(wanted), "{said}");
        assert_succeeded(&net.on_device("detach", ""));
        assert_clean(&net, &root);
    }
}

#[test]
fn a_program_that_was_detached_is_no_device_that_is_gone() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let root = net.root();
    // The kernel's state after a `detach` that was killed once it had detached the program.
    let detach_program = || {
        assert_succeeded(&net.uplink(ATTACH).output().unwrap());
        let pins = fs::read_dir("/sys/fs/bpf/freshline").unwrap().flatten();
        let mut pins = pins.map(|pin| pin.path()).filter(|pin| net.is_pin(pin));
        Link::open(pins.next().unwrap().join("control")).unwrap().detach().unwrap();
        assert_eq!((net.status(), net.pins()), (None, 1));
    };
    detach_program();
    assert_eq!(leftovers(&net).len(), 1);
    assert_succeeded(&net.uplink("detach").output().unwrap());
    assert_clean(&net, &root);

    detach_program();
    assert_succeeded(&net.uplink(ATTACH).output().unwrap());
    assert_eq!(leftovers(&net), Vec::<Value>::new());
    assert_succeeded(&net.uplink("detach").output().unwrap());
    assert_clean(&net, &root);
}

#[test]
fn whenever_a_command_is_killed_the_next_detach_restores_the_device() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let root = net.root();
    let begin = Instant::now();
    assert_succeeded(&net.uplink(ATTACH).output().unwrap());
    let attaching = begin.elapsed();
    let begin = Instant::now();
    assert_succeeded(&net.uplink("detach").output().unwrap());
    let detaching = begin.elapsed();
    for eighths in 1..=8 {
        for (command, lasts) in [(ATTACH, attaching), (RUN, attaching), ("detach", detaching)] {
            if command == "detach" {
                assert_succeeded(&net.uplink(ATTACH).output().unwrap());
            }
            killed(&net, command, lasts * eighths / 8);
            // It fails where nothing had begun, or all was done.
            let _ = net.uplink("detach").output().unwrap();
            assert_clean(&net, &root);
        }
    }
}
