//! The examples run.

#[path = "../examples/memory_link/main.rs"]
#[allow(dead_code, unreachable_pub, reason = "they are programs of their own")]
mod memory_link;

#[test]
fn a_source_and_a_monitor_find_each_other_over_a_link_in_memory() {
    memory_link::main();
}

#[test]
fn a_complete_endpoint_takes_at_most_60_lines() {
    for (name, text) in [
        ("source", include_str!("../examples/memory_link/source.rs")),
        ("monitor", include_str!("../examples/memory_link/monitor.rs")),
    ] {
        let lines = text.lines().count();
        assert!(lines <= 60, "{name}: {lines} lines");
    }
}
