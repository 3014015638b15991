//! The state that killed `attach` and `detach` commands leave behind, and its completion by the
//! next command.

use std::fs;
use std::process::Command;

use super::attached::{asked, in_kernel, left_besides};
use super::common::{FRESHLINE, text};
use super::guest;
use super::net::{DEVICE, Net, can_run};
use super::steps::{can_trace, few, kill_before, steps_of};

const OURS: &str = "/sys/fs/bpf/freshline";
const RATE: &[&str] = &["--rate", "5mbit"];

fn router(what: &str) -> Command {
    let mut command = Command::new(FRESHLINE);
    command.args(["router", what, "--dev", DEVICE]);
    if what == "attach" {
        command.args(RATE);
    }
    command
}

fn root(net: &Net) -> String {
    let show = || Command::new("tc").args(["qdisc", "show", "dev", DEVICE, "root"]).output();
    text(&net.within("r", show).unwrap().stdout)
}

#[test]
#[ignore = "long: boots a kernel in a guest"]
fn before_every_step_a_command_may_be_killed_and_the_next_restores_the_root() {
    if !guest::entered() || !can_run() || !can_trace() {
        return;
    }
    let net = Net::new();
    let before = (root(&net), in_kernel());
    for killed in ["attach", "detach"] {
        let prepare = || {
            if killed == "detach" {
                assert!(asked(&net, "attach", RATE).status.success());
            }
        };
        prepare();
        let steps = net.within("r", || steps_of(&router(killed)));
        asked(&net, "detach", &[]);
        println!("{killed} is killed before {} steps", steps.len());
        // An emulated processor is slow.
        for step in few(&steps, 2) {
            prepare();
            net.within("r", || kill_before(&router(killed), step));
            // Either fails where all is as it was.
            if step.is_multiple_of(2) {
                asked(&net, "attach", RATE);
            }
            asked(&net, "detach", &[]);
            assert_eq!(root(&net), before.0, "{killed} before step {step}");
            let mut left = left_besides(&before.1);
            // An empty folder for all pins is not a record of any.
            if fs::read_dir(OURS).is_ok_and(|mut pins| pins.next().is_none()) {
                left.remove(OURS);
            }
            assert_eq!(left, Default::default(), "{killed} before step {step}");
        }
    }
}
