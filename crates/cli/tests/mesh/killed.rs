//! The state that killed commands leave behind, and its completion by the next command.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use nix::sys::socket::sockopt::TcpCongestion;
use nix::sys::socket::{getsockopt, setsockopt};

use super::common::{FRESHLINE, assert_fails, assert_succeeded, can_run_with};
use super::steps::{can_trace, kill_before, steps_of, takes_all};
use super::{Alone, NAME, mesh, status};

const ATTACH: &str = "attach --share 50";

/// A command is killed before any of its steps; then each of the next commands in turn.
#[test]
fn before_every_step_a_command_may_be_killed_and_the_next_ends_the_registration() {
    if !can_run_with(&[]) || !can_trace() {
        return;
    }
    let _alone = Alone::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let chosen = || getsockopt(&listener, TcpCongestion).unwrap();
    let command = |words: &str| {
        let mut command = Command::new(FRESHLINE);
        command.arg("mesh").args(words.split(' '));
        command
    };
    for killed in [ATTACH, "detach"] {
        let prepare = || {
            if killed == "detach" {
                assert_succeeded(&mesh(ATTACH));
                setsockopt(&listener, TcpCongestion, &NAME.into()).unwrap();
            }
        };
        prepare();
        let steps = steps_of(&command(killed));
        mesh("detach");
        println!("{killed} is killed before {} steps", steps.len());
        for step in steps {
            for (at, next) in ["status", ATTACH].into_iter().enumerate() {
                if !takes_all() && step % 2 != at {
                    continue;
                }
                prepare();
                kill_before(&command(killed), step);
                // It fails where all is as it was.
                mesh(next);
                mesh("detach");
                let all = "/proc/sys/net/ipv4/tcp_available_congestion_control";
                assert!(!fs::read_to_string(all).unwrap().contains(NAME));
                assert_ne!(chosen().to_str(), Some(NAME), "{killed} before step {step}, {next}");
                assert!(!Path::new("/sys/fs/bpf/freshline/mesh").exists());
                assert_eq!(status(Command::new(FRESHLINE)), None);
                assert_fails(&mesh("detach"), 1, "nothing is attached");
            }
        }
    }
}
