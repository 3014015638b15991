//! `freshline lab sockets`: over real sockets the laws reach the same ages as in the lab, and rank
//! in the same order.

use std::process::{Command, Output};
use std::thread;

use serde_json::Value;
use verdict::Verdict;

#[path = "common/verdict.rs"]
mod verdict;

/// One source, and 24 that share a queue. They run at the same time, as neither needs much processor time.
const FAMILIES: [&str; 2] = ["fresher/unequal-hops", "fresher/families/codel-24-long"];

/// Each age is that of the lab but for this fraction.
const NEAR: f64 = 0.2;

/// Ages of the lab that differ by more than this fraction are in the same order over sockets; less may be
/// the noise of a short run.
const APART: f64 = 0.1;

/// An emulator that is later shows another path: this is a 25th of the lowest age here.
const TIMELY_MS: f64 = 1.0;

fn sockets(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.args(["lab", "sockets"]).args(args).output().unwrap()
}

/// A short run of a family, from the end of its start-up on.
fn sampled(family: &str) -> Value {
    let short = ["--duration", "6s", "--set", "warm_up=3s", "--runs", "1", "--tries", "1"];
    let output = sockets(&[&[family, "--law", "tenth,lazy", "--json"][..], &short[..]].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{errors}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["families"][0].clone()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} in {value}"))
}

fn judge(family: &str) -> Verdict {
    let compared = sampled(family);
    println!("{compared}");
    let laws = compared["laws"].as_array().unwrap();
    assert_eq!(
        (laws.len(), &laws[0]["law"], &laws[1]["law"]),
        (2, &"tenth".into(), &"lazy".into())
    );
    let ages = |world| [0, 1].map(|law: usize| number(&laws[law][world], "age_mean_ms"));
    let (lab, sockets) = (ages("lab"), ages("sockets"));
    let is_near = lab.iter().zip(sockets).all(|(lab, age)| (age / lab - 1.0).abs() < NEAR);
    let pair = &compared["pairs"][0];
    let is_apart = lab[0].max(lab[1]) > (1.0 + APART) * lab[0].min(lab[1]);
    assert!(is_apart || family != FAMILIES[0], "the lab sees these apart: {compared}");
    let is_in_order = !is_apart || pair["verdict"] == "same";
    Verdict::of(is_near && is_in_order, number(&compared, "late_p99_ms"), TIMELY_MS)
}

#[test]
fn over_real_sockets_the_laws_are_as_old_as_in_the_lab_and_in_its_order() {
    let at_once = thread::scope(|scope| {
        let running = FAMILIES.map(|family| scope.spawn(move || judge(family)));
        running.map(|running| running.join().unwrap())
    });
    for (family, verdict) in FAMILIES.into_iter().zip(at_once) {
        assert!(verdict.or_again(|| judge(family)), "{family}");
    }
}

#[test]
fn a_family_that_cannot_run_over_sockets_is_refused_before_anything_runs() {
    for (family, words) in [
        ("fresher/beside-cubic", "runs over sockets have one flow"),
        ("fresher/families/none", "has no case `none`; it has: short-24-25p,"),
        ("fresher/none", "cannot read the scenario"),
    ] {
        let output = sockets(&["fresher/satellite", family]);
        let errors = String::from_utf8_lossy(&output.stderr).replace("\n  │ ", " ");
        assert_eq!(output.status.code(), Some(2), "{family}: {errors}");
        assert!(errors.contains(words) && output.stdout.is_empty(), "{family}: {errors}");
    }
}
