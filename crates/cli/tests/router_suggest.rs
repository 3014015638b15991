//! `freshline router suggest`: its answers, and its answers to unreachable targets.

use std::process::{Command, Output};

/// The paper's single link, an update of 1052 bytes on it every 5 ms.
fn suggest(wish: &str) -> Output {
    let link = "router suggest --rate 10mbit --delay 10ms --interval 5ms --size 1052B";
    let words = link.split_whitespace().chain(wish.split_whitespace());
    Command::new(env!("CARGO_BIN_EXE_freshline")).args(words).output().expect("freshline starts")
}

fn refused(wish: &str) -> String {
    let output = suggest(wish);
    assert_eq!(output.status.code(), Some(2), "{wish}");
    // miette wraps lines.
    let text = String::from_utf8(output.stderr).unwrap();
    text.replace('│', "").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_wanted_age_gives_a_share_in_a_table() {
    let output = suggest("--max-age 20ms");
    let text = String::from_utf8(output.stdout).unwrap();
    let last: Vec<_> = text.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(last, ["0.063199", "20.00", "ms", "9.37", "Mbit/s"]);
}

#[test]
fn a_wanted_throughput_gives_a_share_in_json() {
    let output = suggest("--min-throughput 9mbit --json");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = serde_json::json!({
        "scheduler": "sdm",
        "aoi_share": 0.1,
        "age_mean_ms": 17.5496,
        "drop_averse_bps": 9_000_000,
    });
    assert_eq!(report, expected);
}

#[test]
fn what_is_out_of_reach_or_makes_no_sense_is_explained() {
    for (wish, explanation) in [
        ("--max-age 13ms", "wish for 13.9416ms or more"),
        ("--min-throughput 12mbit", "wish for 9.99999mbit or less"),
        ("--max-age 20ms --frame 10ms", "--frame does not apply to sdm"),
        ("--max-age 20ms --scheduler tdm --frame 1ms", "give a longer frame"),
        ("--max-age 20ms --min-throughput 1mbit", "cannot be used with"),
        ("", "required arguments were not provided"),
    ] {
        let message = refused(wish);
        assert!(message.contains(explanation), "{wish}: {message}");
    }
}
