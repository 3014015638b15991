//! The examples run, and print the expected text.

use std::process::Command;

/// The output of an example.
fn run(name: &str, arguments: &[&str]) -> String {
    // Next to this test's own program, in `deps`.
    let test = std::env::current_exe().expect("it is running");
    let built = test.parent().and_then(|deps| deps.parent()).expect("cargo's folders");
    let output = Command::new(built.join("examples").join(name))
        .args(arguments)
        .env("ONCE", "1")
        .output()
        .unwrap_or_else(|error| panic!("example {name} is built with the tests: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{name}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn commands_are_carried_out_while_they_are_young() {
    let said = run("commands", &[]);
    assert!(said.contains("drives at 4 m/s") && said.contains("without one: None"), "{said}");
}

#[test]
fn frames_arrive_whole() {
    assert!(run("images", &[]).contains("frame 19 of 200000 bytes"));
}

#[test]
fn a_relay_passes_a_door_on() {
    assert!(run("relay", &[]).contains("door-3 is shut"));
}

#[test]
fn a_web_server_waits_for_a_pose() {
    assert!(run("in_axum", &[]).contains("x=1"));
}

#[test]
fn one_loop_drives_a_source_and_reads_states() {
    assert!(run("own_loop", &[]).matches(" old").count() >= 10);
}

#[test]
fn telemetry_leaves_at_the_laws_rate() {
    let monitor = freshline::Monitor::builder("udp://127.0.0.1:0").spawn().unwrap();
    let states = monitor.subscribe("robot-7/*");
    assert!(run("telemetry", &[&monitor.url(), "50"]).contains("updates were acknowledged"));
    let mut topics: Vec<_> =
        std::iter::from_fn(|| states.try_next()).map(|state| state.topic().to_owned()).collect();
    topics.sort();
    topics.dedup();
    assert_eq!(topics, ["battery", "load", "pose"]);
}

#[cfg(feature = "sim")]
#[test]
fn one_application_runs_over_sockets_and_in_virtual_time() {
    let said = run("simulated", &[]);
    assert!(
        said.contains("over loopback") && said.contains("in 60.000 s of virtual time"),
        "{said}"
    );
}
