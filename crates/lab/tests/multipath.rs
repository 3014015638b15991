//! Streams over several paths: theoretical bounds, head-of-line blocking, and results.

#[path = "common/scenarios.rs"]
mod scenarios;

use freshline_core::unit::{Span, Time};
use freshline_lab::run::Metric;
use freshline_lab::world::Flow;
use scenarios::{refused, scenario, value};

/// Two wires of 10 and 5 Mbit/s.
const WIRES: &str = r#"
    title = "two wires"
    duration = "20s"
    warm_up = "5s"

    [[link]]
    name = "a"
    forward = { rate = "10mbit", delay = "10ms", queue = "100p" }

    [[link]]
    name = "b"
    forward = { rate = "5mbit", delay = "10ms", queue = "100p" }

    [[flow]]
    name = "mptcp"
    [flow.multipath]
    paths = [["a"], ["b"]]
    scheduler = "qaware"
    control = "cubic"
"#;

fn measured(changes: &[&str]) -> Vec<Metric> {
    scenarios::measured(WIRES, changes)
}

/// Of 1500 bytes on the wire 1428 are payload.
const EFFICIENCY: f64 = 1428.0 / 1500.0;

#[test]
fn with_buffers_that_are_large_enough_every_scheduler_that_does_not_wait_gets_the_sum() {
    for scheduler in ["min_srtt", "round_robin", "ecf", "blest", "linger", "qaware", "earliest"] {
        let metrics = measured(&[&format!("flow.mptcp.multipath.scheduler={scheduler}")]);
        let goodput = value(&metrics, "goodput", "mptcp");
        let sum = 15e6 * EFFICIENCY;
        assert!((0.97 * sum..=1.001 * sum).contains(&goodput), "{scheduler}: {goodput}");
        for (path, most) in [("mptcp/1", 10e6), ("mptcp/2", 5e6)] {
            let part = value(&metrics, "goodput", path);
            assert!(part <= 1.001 * most * EFFICIENCY, "{scheduler}: {path} {part}");
        }
    }
}

#[test]
fn copies_go_wherever_there_is_room_and_count_once() {
    let settings = ["flow.mptcp.multipath.scheduler=redundant", "flow.mptcp.multipath.rate=2mbit"];
    let metrics = measured(&settings);
    for of in ["mptcp", "mptcp/1", "mptcp/2"] {
        let goodput = value(&metrics, "goodput", of);
        assert!((1.98e6..=2.02e6).contains(&goodput), "{of}: {goodput}");
    }
}

#[test]
fn a_file_arrives_whole_under_loss_with_every_scheduler_and_with_the_handler_or_without() {
    for scheduler in [
        "min_srtt",
        "round_robin",
        "redundant",
        "ecf",
        "blest",
        "daps",
        "linger",
        "qaware",
        "earliest",
    ] {
        for handler in ["true", "false"] {
            let changes = [
                "warm_up=0s",
                "duration=120s",
                "link.a.forward.loss=0.02",
                "link.b.forward.loss=0.01",
                "flow.mptcp.multipath.file=3MB",
                &format!("flow.mptcp.multipath.scheduler={scheduler}"),
                &format!("flow.mptcp.multipath.handler={handler}"),
            ];
            let mut built = scenario(WIRES, &changes).unwrap().build(0).unwrap();
            built.world.run_until(Time::ZERO + Span::from_secs(120));
            let Flow::Multipath(multipath) = &built.world.flows()[0].flow else { panic!() };
            let delivered = multipath.receiver().delivered().get();
            assert_eq!(delivered, 3_000_000, "{scheduler}, handler {handler}");
            assert!(multipath.sender().is_finished(), "{scheduler}, handler {handler}");
        }
    }
}

#[test]
fn small_queues_keep_devices_short_and_both_paths_full() {
    let small = "flow.mptcp.multipath.pacing_shift=10";
    for scheduler in ["min_srtt", "ecf", "blest", "qaware"] {
        let scheduler = format!("flow.mptcp.multipath.scheduler={scheduler}");
        let metrics = measured(&[&scheduler, small]);
        let goodput = value(&metrics, "goodput", "mptcp");
        let sum = 15e6 * EFFICIENCY;
        assert!((0.97 * sum..=1.001 * sum).contains(&goodput), "{scheduler}: {goodput}");
        for path in ["mptcp/1", "mptcp/2"] {
            let held = value(&metrics, "device_queue_mean", path);
            assert!(held < 5.0, "{scheduler}, {path}: {held} packets");
        }
    }
    let held = value(&measured(&[]), "device_queue_mean", "mptcp/1");
    assert!(held > 20.0, "without them windows lie in the device: {held} packets");
}

#[test]
fn a_file_arrives_whole_under_loss_with_small_queues() {
    // With a shift of 2 the limit is above 3 packets: the queue drops some that count as the subflow's own.
    for (queue, shift) in [("100p", 10), ("3p", 2)] {
        let changes = [
            "warm_up=0s",
            "duration=120s",
            "link.a.forward.loss=0.02",
            &format!("link.a.forward.queue={queue}"),
            "flow.mptcp.multipath.file=3MB",
            &format!("flow.mptcp.multipath.pacing_shift={shift}"),
        ];
        let mut built = scenario(WIRES, &changes).unwrap().build(0).unwrap();
        built.world.run_until(Time::ZERO + Span::from_secs(120));
        let Flow::Multipath(multipath) = &built.world.flows()[0].flow else { panic!() };
        assert_eq!(multipath.receiver().delivered().get(), 3_000_000, "{queue}");
    }
}

/// Three flows over one wire of 20 Mbit/s: one with two subflows, and two TCP streams with Reno.
const SHARED: &str = r#"
    title = "one bottleneck"
    duration = "120s"
    warm_up = "20s"

    [[link]]
    name = "a"
    forward = { rate = "20mbit", delay = "10ms", queue = "60p" }

    [[flow]]
    name = "mptcp"
    [flow.multipath]
    paths = [["a"], ["a"]]
    scheduler = "min_srtt"
    control = "lia"

    [[flow]]
    name = "tcp"
    count = 2
    path = ["a"]
    tcp = { control = "reno" }
"#;

#[test]
fn coupled_subflows_take_no_more_than_a_stream_where_uncoupled_ones_take_two_shares() {
    let ratio = |control: &str| {
        let control = format!("flow.mptcp.multipath.control={control}");
        let metrics = scenarios::measured(SHARED, &[&control]);
        value(&metrics, "goodput", "mptcp") / value(&metrics, "goodput", "tcp")
    };
    let [lia, olia, reno] = ["lia", "olia", "reno"].map(ratio);
    assert!((0.6..1.35).contains(&lia), "lia {lia}");
    assert!((0.6..1.35).contains(&olia), "olia {olia}");
    assert!((1.6..2.4).contains(&reno), "reno {reno}");
}

#[test]
fn coupled_subflows_still_fill_two_paths_of_their_own() {
    for control in ["lia", "olia"] {
        let metrics = measured(&[&format!("flow.mptcp.multipath.control={control}")]);
        let goodput = value(&metrics, "goodput", "mptcp");
        assert!(goodput > 0.9 * 15e6 * EFFICIENCY, "{control}: {goodput}");
    }
}

/// A window of 40 kB over 10 Mbit/s and 20 ms, and 5 Mbit/s and 400 ms.
const NARROW: [&str; 4] = [
    "flow.mptcp.multipath.receive_buffer=[\"80kB\", \"80kB\"]",
    "flow.mptcp.multipath.scheduler=round_robin",
    "link.b.forward.delay=200ms",
    "duration=40s",
];

#[test]
fn a_slow_path_that_holds_the_window_is_helped_out_and_penalised() {
    let [with, without] = ["true", "false"].map(|handler| {
        let handler = format!("flow.mptcp.multipath.handler={handler}");
        measured(&[&NARROW[..], &[&handler]].concat())
    });
    for metrics in [&with, &without] {
        assert!(value(metrics, "window_blocked", "mptcp") > 100.0, "the window blocks the stream");
    }
    for name in ["opportunistic", "penalties"] {
        assert!(value(&with, name, "mptcp") > 10.0, "{name}");
        assert_eq!(value(&without, name, "mptcp"), 0.0, "{name}");
    }
    let [better, worse] = [&with, &without].map(|metrics| value(metrics, "goodput", "mptcp"));
    assert!(better > 3.0 * worse, "{better} with the handler, {worse} without");
    // Nor more than the window lets through on the fast path.
    assert!(better < 10e6 * EFFICIENCY, "{better}");
}

#[test]
fn what_a_dead_path_had_in_flight_takes_the_other_one() {
    let settings = ["duration=30s", "warm_up=0s", "flow.mptcp.multipath.file=5MB"];
    let dead = r#"link.b.forward.loss=0.9999"#;
    let completion = |handler: &str| {
        let handler = format!("flow.mptcp.multipath.handler={handler}");
        let metrics = measured(&[&settings[..], &[dead, &handler]].concat());
        metrics.iter().find(|metric| metric.name == "completion").map(|metric| metric.value)
    };
    // 5 MB take 4.3 s over the path that is left.
    let with = completion("true").expect("the file arrives");
    assert!(with < 6.0, "{with}");
}

/// A window of 128 kB over wires of 10 and 5 Mbit/s that drop nothing: the queue of the slower one can
/// hold all of it.
#[test]
fn qaware_by_equation_2_2_gets_the_sum_of_unequal_devices_where_algorithm_1_does_not() {
    let goodput = |scheduler: &str| {
        let metrics = measured(&[
            &format!("flow.mptcp.multipath.scheduler={scheduler}"),
            "flow.mptcp.multipath.receive_buffer=[\"256kB\", \"256kB\"]",
            "flow.mptcp.multipath.handler=false",
        ]);
        value(&metrics, "goodput", "mptcp")
    };
    let algorithm_1 = "{ scheduler = \"qaware\", estimator = \"algorithm-1\" }";
    let [earliest, qaware, algorithm_1] = ["earliest", "qaware", algorithm_1].map(goodput);
    for better in [earliest, qaware] {
        assert!(better > 0.98 * 15e6 * EFFICIENCY, "{better}");
        assert!(better > 1.02 * algorithm_1, "{better} {algorithm_1}");
    }
}

#[test]
fn a_video_has_the_bitrate_that_the_paths_carry_together() {
    let video = "{ rates = [\"1mbit\", \"2mbit\", \"4mbit\", \"8mbit\"], length = \"300s\", \
                 segment = \"4s\", buffer = \"24s\", request = \"10ms\" }";
    let video = format!("flow.mptcp.multipath.video={video}");
    let watch = |rates: [&str; 2]| {
        let [a, b] = rates;
        let metrics = measured(&[
            &video,
            "warm_up=0s",
            "duration=400s",
            &format!("link.a.forward.rate={a}"),
            &format!("link.b.forward.rate={b}"),
        ]);
        ["bitrate_mean", "stall_time", "stalls"].map(|name| value(&metrics, name, "mptcp"))
    };
    let [bitrate, stalled, stalls] = watch(["3mbit", "2mbit"]);
    // 4.76 Mbit/s of payload.
    assert!((4.0e6..4.8e6).contains(&bitrate), "{bitrate}");
    assert_eq!((stalled, stalls), (0.0, 0.0));
    // 0.76 Mbit/s are too little for the lowest bitrate.
    let [bitrate, stalled, ..] = watch(["500kbit", "300kbit"]);
    assert!(bitrate == 1e6 && stalled > 60.0, "{bitrate} {stalled}");
}

#[test]
fn a_video_that_cannot_be_played_is_refused_with_the_reason() {
    let with = |rates: &str, length: &str, buffer: &str| {
        let video = format!(
            "flow.mptcp.multipath.video={{ rates = [{rates}], length = \"{length}\", segment = \"4s\", \
             buffer = \"{buffer}\" }}"
        );
        refused(WIRES, &[&video])
    };
    for (message, expected) in [
        (with("\"2mbit\", \"1mbit\"", "60s", "20s"), "bitrates above zero, rising"),
        (with("", "60s", "20s"), "bitrates above zero, rising"),
        (with("\"1mbit\"", "3s", "20s"), "`video.length` is shorter"),
        (with("\"1mbit\"", "60s", "4s"), "`video.buffer` is not longer"),
    ] {
        assert!(message.contains(expected), "{message}");
    }
}
