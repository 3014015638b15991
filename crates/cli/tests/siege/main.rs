//! A monitor under attack by hostile hosts: the service for an honest source and newcomers
//! meanwhile, and its cost.
//!
//! The monitor, its sources and the attackers are in a network namespace of their own. A short run
//! of each attack tests the service, without limits on times. The table of docs/performance.md is
//! printed by
//!
//! ```sh
//! cargo test --release -p freshline-cli --test siege -- --ignored --nocapture
//! ```
//!
//! With `SIEGE=half-open`, only the rows without an attack and the rows with this text in their
//! name run. With `SIEGE_FIFO=1`, the monitor and its sources run with real-time priority
//! (SCHED_FIFO), so that neither other programs on the machine nor the generators delay them.

mod attacks;
#[allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/hosts.rs"]
mod hosts;
#[path = "../common/orphans.rs"]
mod orphans;
#[path = "../common/process.rs"]
mod process;
mod world;

use std::env;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use attacks::Attack;
use nix::unistd::Uid;
use world::{Seen, World};

/// The monitor's memory limit here, in MB: 1024 connections without a session of 40 kB, 10,000
/// records of 0.6 kB and as many names, 200 meters of 60 kB, and the process; twice the sum, for
/// the allocator's overhead.
const MEMORY_MB: f64 = 150.0;

fn can_run() -> bool {
    let lacks = |tool: &str| Command::new(tool).arg("-V").output().is_err();
    let missing = if !Uid::effective().is_root() || !Path::new("/proc/self/ns/net").exists() {
        "root"
    } else if let Some(tool) = ["ip", "nsenter", "taskset"].into_iter().find(|tool| lacks(tool)) {
        tool
    } else {
        return true;
    };
    println!("skipped: needs {missing}");
    false
}

/// A run with an attack in a world of its own.
fn siege(attack: Option<Attack>, span: Duration) -> Seen {
    let mut world = World::start();
    world.warm_up();
    world.run(attack, span)
}

#[test]
fn an_honest_source_and_newcomers_are_served_during_each_attack() {
    if !can_run() {
        return;
    }
    for attack in Attack::ALL {
        let seen = siege(Some(attack), Duration::from_secs(1));
        println!("{attack:?}: {seen}");
        assert!(seen.honest_updates > 0, "{attack:?}: {seen}");
        assert!(!seen.newcomers.is_empty(), "{attack:?}: {seen}");
        assert!(seen.newcomers.iter().all(Option::is_some), "{attack:?}: {seen}");
        assert!(seen.peak_mb < MEMORY_MB, "{attack:?}: {seen}");
    }
}

#[test]
#[ignore = "prints the table of docs/performance.md: needs root, some minutes and a quiet machine"]
fn what_each_attack_costs() {
    if !can_run() {
        return;
    }
    println!(
        "| attack | offered | updates/s | delay p99 (ms) | age p50, p99 (ms) | p99 by busy core | newcomers: served, slowest (ms) | CPU | memory (MB) | refused |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|---|");
    let mut quiet = None;
    let none = [None, Some(Attack::BusyCore)];
    let only = env::var("SIEGE").unwrap_or_default();
    let wanted = Attack::ALL.into_iter().filter(|attack| attack.name().contains(&only));
    for attack in none.into_iter().chain(wanted.map(Some)) {
        let long = attack.is_some_and(Attack::is_garbage);
        let seen = siege(attack, Duration::from_secs(if long { 30 } else { 15 }));
        // That of the second row, once it is there.
        let quiet = match (attack, quiet) {
            (None, _) => seen.p99_ms,
            (Some(_), before) => *quiet.insert(before.unwrap_or(seen.p99_ms)),
        };
        let name = attack.map_or("none", Attack::name);
        println!("{}", seen.row(name, quiet));
    }
}
