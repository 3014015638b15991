//! The state that killed commands leave behind, and its completion by the next command.

use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::Link;
use serde_json::Value;

use super::common::{FRESHLINE, assert_fails, assert_succeeded, text};
use super::net::{DEVICE, Net, can_run};
use super::steps::{can_trace, kill_before, steps_of};

/// The leftovers on A's devices according to `status`.
fn leftovers(net: &Net) -> Vec<Value> {
    let printed = net.uplink("status --json").output().unwrap();
    let report: Value = serde_json::from_slice(&printed.stdout).unwrap();
    report["orphans"].as_array().unwrap().clone()
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
        Link::open(net.pin().join("control")).unwrap().detach().unwrap();
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
fn what_is_left_of_a_device_is_not_removed_from_another_namespace() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let root = net.root();
    assert_succeeded(&net.uplink(ATTACH).output().unwrap());
    Link::open(net.pin().join("control")).unwrap().detach().unwrap();
    let elsewhere = |what: &str| {
        let mut command = net.command("b", FRESHLINE);
        command.args(["uplink", what, "--dev", DEVICE]).output().unwrap()
    };
    assert_succeeded(&elsewhere("attach"));
    assert_succeeded(&elsewhere("detach"));
    assert_succeeded(&net.uplink("detach").output().unwrap());
    assert_clean(&net, &root);
}

/// A command is killed before any of its steps; then each of the next commands in turn.
#[test]
fn before_every_step_a_command_may_be_killed_and_the_next_restores_the_device() {
    if !can_run() || !can_trace() {
        return;
    }
    let net = Net::new();
    let root = net.root();
    for (first, killed) in [(None, ATTACH), (Some(ATTACH), "detach")] {
        let prepare = || {
            if let Some(first) = first {
                assert_succeeded(&net.uplink(first).output().unwrap());
            }
        };
        prepare();
        let steps = steps_of(&net.uplink(killed));
        let _ = net.uplink("detach").output().unwrap();
        println!("{killed} is killed before {} steps, the last is {:?}", steps.len(), steps.last());
        for step in steps {
            prepare();
            kill_before(&net.uplink(killed), step);
            // It fails where all is as it was.
            let next = if step.is_multiple_of(2) { "status" } else { ATTACH };
            let _ = net.uplink(next).output().unwrap();
            let _ = net.uplink("detach").output().unwrap();
            assert_clean(&net, &root);
        }
    }
}
