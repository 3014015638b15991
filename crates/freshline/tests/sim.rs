//! Applications over simulated paths, in virtual time.

mod common;

use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Outcome, URL, ms, robot, secs};
use freshline::sim::{Report, Sim, SimError};
use freshline::{
    LawConfig, Monitor, MonitorEvent, Source, SourceBuilder, SourceEvent, TopicKind, TopicParams,
};
use freshline_lab::run::Metric;
use freshline_lab::scenario::Scenario;

fn monitor(sim: &mut Sim) -> Result<Monitor, SimError> {
    Monitor::builder(URL).simulate(sim)
}

/// A minute of a robot that puts a pose of `len` bytes every 2 ms.
fn minute(mut sim: Sim, builder: SourceBuilder, len: usize) -> Result<Report, Box<dyn Error>> {
    let _monitor = monitor(&mut sim)?;
    let robot = builder.simulate(&mut sim, "source")?;
    let pose = robot.topic("pose")?;
    sim.every(ms(2), move |_| {
        pose.put(vec![7; len]).expect("the source runs");
    });
    let began = Instant::now();
    sim.run_for(secs(60));
    let report = sim.report();
    println!("{:?} for {report}", began.elapsed());
    Ok(report)
}

/// The check of an application: is what the operator sees fresh?
fn is_fresh(report: &Report) -> Result<bool, SimError> {
    let age = report.age("robot-7/pose")?;
    Ok(age.mean < ms(100) && age.p95 < ms(300))
}

#[test]
fn a_robot_over_lte_is_fresh_by_its_law_and_not_at_a_fixed_rate_that_is_too_high() -> Outcome {
    let report = minute(Sim::lte()?, robot(URL), 1000)?;
    assert!(is_fresh(&report)?, "{report}");
    let fixed = LawConfig::Fixed { rate: "500/s".parse()? };
    let report = minute(Sim::lte()?, robot(URL).law(fixed), 1000)?;
    assert!(!is_fresh(&report)?, "{report}");
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_results() -> Outcome {
    let run = |seed| minute(Sim::lte()?.seed(seed)?, robot(URL), 300);
    assert_eq!(run(1)?, run(1)?);
    assert_ne!(run(1)?, run(2)?);
    Ok(())
}

#[test]
fn states_are_handed_out_with_their_ages_in_virtual_time() -> Outcome {
    let mut sim = Sim::link("10mbit", "20ms")?;
    let monitor = monitor(&mut sim)?;
    let source = robot(URL).simulate(&mut sim, "source")?;
    let states = monitor.subscribe("robot-7/*");
    assert_eq!(states.next_state().map(|state| state.seq()), None, "it does not wait");
    let pose = source.topic("pose")?;
    pose.put(b"x=1")?;
    let has_come = sim.run_until_done(ms(1), secs(1), || monitor.latest("robot-7/pose").is_some());
    assert!(has_come);
    let state = states.try_next().expect("it has arrived");
    assert_eq!(state.text(), Some("x=1"));
    // A challenge, the opening with its cookie and its ack take two round trips.
    let came_at = sim.now();
    assert!(came_at >= ms(100) && came_at < ms(103), "{came_at:?}");
    assert_eq!(
        monitor.events().try_next(),
        Some(MonitorEvent::Opened { source: "robot-7".into() })
    );
    assert!(monitor.events().next_within(secs(1)).is_none());
    sim.run_for(secs(1));
    pose.put(b"x=2")?;
    sim.run_for(ms(500));
    let state = states.try_next().expect("the newest");
    let age = state.age().expect("by now it is known");
    assert!(age >= ms(499) && age <= ms(501), "{age:?}");
    assert_eq!(source.events().try_next(), Some(SourceEvent::Opened));
    let (rate, age) = (source.rate(), source.age());
    assert!(source.is_open() && rate > 0.0 && age.is_some(), "{rate} {age:?}");
    assert_eq!(monitor.sources(9)?.len(), 1);
    Ok(())
}

#[test]
fn an_outage_is_told_as_in_the_world() -> Outcome {
    let mut sim = Sim::link("10mbit", "20ms")?;
    let monitor = Monitor::builder(URL).max_age("robot-7/*", ms(300)).simulate(&mut sim)?;
    let source = robot(URL).simulate(&mut sim, "source")?;
    let pose = source.topic("pose")?;
    sim.every(ms(10), move |now| {
        pose.put(format!("{now:?}")).expect("the source runs");
    });
    sim.run_for(secs(5));
    assert!(monitor.latest("robot-7/pose").is_some());
    while monitor.events().try_next().is_some() {}
    sim.cut("link")?;
    sim.run_for(secs(1));
    assert!(monitor.latest("robot-7/pose").is_none(), "it is too old");
    assert!(matches!(monitor.events().try_next(), Some(MonitorEvent::Stale { .. })));
    sim.set_loss("link", 0.0)?;
    let recovered = || matches!(monitor.events().try_next(), Some(MonitorEvent::Recovered { .. }));
    assert!(sim.run_until_done(ms(10), secs(5), recovered));
    assert!(matches!(sim.cut("uplink"), Err(SimError::Unknown { kind: "link", .. })));
    Ok(())
}

#[test]
fn changes_of_a_link_outlast_a_further_source() -> Outcome {
    let mut sim = Sim::link("10mbit", "20ms")?;
    sim.set_rate("link", "1mbit")?;
    sim.cut("link")?;
    let mut sim = sim.set("link.link.forward.delay", "30ms")?;
    let monitor = monitor(&mut sim)?;
    let mut robots = Vec::new();
    for name in ["robot-1", "robot-2"] {
        let robot = Source::builder(URL).name(name).simulate(&mut sim, "source")?;
        robot.topic("")?.put([7; 1000])?;
        robots.push(robot);
    }
    sim.run_for(secs(2));
    assert_eq!(monitor.sources(9)?.len(), 0, "the link is cut");
    sim.set_loss("link", 0.0)?;
    let state = robots[0].topic("")?;
    state.sample_with(|state| state.extend([7; 1000]))?;
    sim.run_for(secs(60));
    assert_eq!(monitor.sources(9)?.len(), 2);
    let report = sim.report();
    let sent = report.source("robot-1")?.sent_bps;
    assert!(report.forward("link")?.queue_max >= ms(8), "1000 B take 8 ms at 1 Mbit/s: {report}");
    assert!(sent < 1.1e6, "{report}");
    Ok(())
}

#[test]
fn a_further_source_is_too_late_once_packets_may_be_in_flight() -> Outcome {
    let mut sim = Sim::link("10mbit", "20ms")?;
    let monitor = monitor(&mut sim)?;
    let source = robot(URL).simulate(&mut sim, "source")?;
    source.topic("pose")?.put("x=1")?;
    sim.run_for(Duration::ZERO);
    let error = robot(URL).simulate(&mut sim, "source").expect_err("it has run");
    assert!(matches!(error, SimError::TooLate(_)), "{error}");
    sim.run_for(ms(110));
    assert!(monitor.latest("robot-7/pose").is_some(), "nothing was lost");
    let error = sim.seed(2).expect_err("it has run");
    assert!(matches!(error, SimError::TooLate(_)), "{error}");
    Ok(())
}

/// A source or monitor where a function that it calls finds it.
type Slot<T> = Arc<Mutex<Option<T>>>;

#[test]
fn a_sampling_function_may_use_the_handle_of_its_own_source() -> Outcome {
    let mut sim = Sim::link("10mbit", "20ms")?;
    let monitor = monitor(&mut sim)?;
    let slot = Slot::default();
    let source = robot(URL).receive().simulate(&mut sim, "source")?;
    let (pose, own) = (source.topic("pose")?, Arc::clone(&slot));
    pose.sample_with(move |state| {
        let source = own.lock().unwrap();
        let source: &Source = source.as_ref().expect("it is set below");
        assert!(!source.has_ended(), "{source:?}");
        state.extend(format!("{:.1}", source.rate()).bytes());
    })?;
    *slot.lock().unwrap() = Some(source);
    sim.run_for(secs(2));
    assert!(monitor.latest("robot-7/pose").is_some());
    Ok(())
}

#[test]
fn a_sampling_function_may_end_its_own_source() -> Outcome {
    type End = fn(Source);
    let ends: [End; 2] = [
        |source| {
            let closed = source.close().expect_err("a report needs the end of the step");
            assert!(matches!(closed, freshline::Error::Ended), "{closed}");
        },
        drop,
    ];
    for end in ends {
        let mut sim = Sim::link("10mbit", "20ms")?;
        let monitor = monitor(&mut sim)?;
        let slot = Slot::default();
        let source = robot(URL).simulate(&mut sim, "source")?;
        let (pose, own, mut left) = (source.topic("pose")?, Arc::clone(&slot), 9);
        pose.sample_with(move |state| {
            state.push(7);
            left -= 1;
            if left == 0 {
                own.lock().unwrap().take().map(end).expect("it ends once");
            }
        })?;
        *slot.lock().unwrap() = Some(source);
        let has_come = || monitor.latest("robot-7/pose").is_some();
        assert!(sim.run_until_done(ms(1), secs(9), has_come));
        assert!(sim.run_until_done(ms(1), secs(9), || slot.lock().unwrap().is_none()));
        assert!(pose.put("x=2").is_err(), "it has ended");
        sim.run_for(secs(1));
        assert!(monitor.latest("robot-7/pose").is_none(), "it has said goodbye");
    }
    Ok(())
}

/// A source that its own function owns, whose topic is closed with this function.
#[test]
fn a_source_may_belong_to_its_own_function() -> Outcome {
    let mut sim = Sim::link("10mbit", "20ms")?;
    let monitor = monitor(&mut sim)?;
    let source = Arc::new(robot(URL).simulate(&mut sim, "source")?);
    let (pose, own) = (source.topic("pose")?, Arc::clone(&source));
    pose.sample_with(move |state| state.extend(format!("{:?}", own.has_ended()).bytes()))?;
    drop(source);
    sim.run_for(secs(1));
    assert!(monitor.latest("robot-7/pose").is_some());
    drop(sim);
    assert!(pose.put("x=1").is_err(), "the function was dropped, and the source with it");
    Ok(())
}

#[test]
fn a_sampling_function_may_use_and_end_its_own_monitor() -> Outcome {
    let mut sim = Sim::link("10mbit", "20ms")?;
    let monitor = Monitor::builder(URL).topic("cmd").simulate(&mut sim)?;
    let source = robot(URL).receive().simulate(&mut sim, "source")?;
    source.topic("pose")?.put("x=1")?;
    let slot = Slot::default();
    let (cmd, own, mut left) = (monitor.topic("cmd")?, Arc::clone(&slot), 9);
    cmd.sample_with(move |state| {
        let mut monitor = own.lock().unwrap();
        let open: &Monitor = monitor.as_ref().expect("it is there until the end");
        assert!(!open.has_ended() && open.sources(9).is_err(), "{open:?}");
        state.push(7);
        left -= 1;
        if left == 0 {
            let closed = monitor.take().map(Monitor::close);
            assert!(matches!(closed, Some(Err(freshline::Error::Ended))));
        }
    })?;
    *slot.lock().unwrap() = Some(monitor);
    assert!(sim.run_until_done(ms(1), secs(9), || source.latest("monitor/cmd").is_some()));
    assert!(sim.run_until_done(ms(1), secs(60), || slot.lock().unwrap().is_none()));
    assert!(cmd.put("late").is_err(), "it has ended");
    Ok(())
}

#[test]
fn two_sources_share_a_link() -> Outcome {
    let mut sim = Sim::link("4mbit", "10ms")?;
    let _monitor = monitor(&mut sim)?;
    let mut robots = Vec::new();
    for name in ["robot-1", "robot-2"] {
        let robot = Source::builder(URL).name(name).simulate(&mut sim, "source")?;
        let state = robot.topic("")?;
        sim.every(ms(1), move |_| {
            state.put([1; 500]).expect("the source runs");
        });
        robots.push(robot);
    }
    sim.run_for(secs(2));
    sim.begin_measuring();
    sim.run_for(secs(20));
    let report = sim.report();
    let [one, two] = [report.age("robot-1")?, report.age("robot-2")?];
    assert!(one.mean < ms(40) && two.mean < ms(40), "{report}");
    let [one, two] = [report.source("robot-1")?, report.source("robot-2")?];
    assert!(one.sent_bps + two.sent_bps < 4e6 && one.sent_bps > 1e5, "{report}");
    assert_eq!(report.duration(), secs(20));
    assert!(matches!(report.age("robot-3"), Err(SimError::UnknownTopic { .. })));
    Ok(())
}

/// A download and an upload compete with the robot, whose flow is one of the lab's own.
const BESIDE_TCP: &str = r#"
title = "A robot beside streams"
duration = "60s"
warm_up = "5s"

[[link]]
name = "dsl"
forward = { rate = "10mbit", delay = "15ms", queue = { discipline = "fq_codel" } }

[[flow]]
name = "robot"
path = ["dsl"]
start_spread = "100ms"
updates = { law = "tenth", payload = "500B" }

[[flow]]
name = "upload"
path = ["dsl"]
tcp = { control = "cubic" }
"#;

#[test]
fn a_flow_of_the_lab_is_replaced_by_an_application_beside_tcp() -> Outcome {
    let mut sim = Sim::scenario(BESIDE_TCP)?;
    let _monitor = monitor(&mut sim)?;
    let source = robot(URL).simulate(&mut sim, "robot")?;
    let pose = source.topic("pose")?;
    sim.every(ms(5), move |_| {
        pose.put([7; 500]).expect("the source runs");
    });
    sim.run_for(secs(30));
    let report = sim.report();
    assert!(report.age("robot-7/pose")?.mean < ms(60), "{report}");
    assert!(report.goodput("upload")? > 7e6, "{report}");
    assert!(report.forward("dsl")?.utilisation > 0.8, "{report}");
    assert_eq!(report.duration(), secs(25), "without the warm-up");
    let error = robot(URL).simulate(&mut sim, "robot").expect_err("it is taken");
    assert!(matches!(error, SimError::FlowTaken { count: 1, .. }), "{error}");
    let error = robot(URL).simulate(&mut sim, "upload").expect_err("it is a stream");
    assert!(matches!(error, SimError::TooLate(_)), "{error}");
    Ok(())
}

/// The lab's own source takes a state at the moment of sending, as `sample_with` does.
#[test]
fn the_lab_and_a_simulation_measure_the_same_age() -> Outcome {
    for (law, tolerance) in [("fixed", 0.02), ("tenth", 0.1)] {
        let rate = if law == "fixed" { "rate = \"50/s\", " } else { "" };
        let text = BESIDE_TCP
            .replace("law = \"tenth\", ", &format!("law = \"{law}\", {rate}"))
            .replace("start_spread = \"100ms\"\n", "");
        let metrics = freshline_lab::run::run(&Scenario::parse(&*text)?, || {})?;
        let is_it = |it: &&Metric| it.name == "age_mean" && it.of == "robot";
        let of_lab = metrics.iter().find(is_it).expect("it is measured").value;
        let mut sim = Sim::scenario(&text)?;
        let _monitor = monitor(&mut sim)?;
        let law = match law {
            "fixed" => LawConfig::Fixed { rate: "50/s".parse()? },
            law => law.parse()?,
        };
        let source = robot(URL).law(law).simulate(&mut sim, "robot")?;
        source.topic("pose")?.sample_with(|state| state.extend([7; 500]))?;
        sim.run_for(secs(60));
        let of_sim = sim.report().age("robot-7/pose")?.mean.as_secs_f64();
        println!("{law:?}: {of_lab} s in the lab, {of_sim} s here");
        assert!((of_sim / of_lab - 1.0).abs() < tolerance, "{of_lab} and {of_sim}");
    }
    Ok(())
}

/// Three robots, a station each, and a laptop that uploads.
const WIFI: &str = r#"
title = "Robots in a Wi-Fi cell"
duration = "60s"

[[cell]]
name = "wifi"
radio = { access = "edca" }

[[link]]
name = "lan"
forward = { rate = "100mbit", delay = "1ms" }

[[flow]]
name = "robots"
count = 3
path = ["wifi", "lan"]
external = {}

[[flow]]
name = "laptop"
path = ["wifi", "lan"]
tcp = { control = "cubic" }
"#;

#[test]
fn robots_of_a_wifi_cell_are_fresh_beside_an_upload() -> Outcome {
    let mut sim = Sim::scenario(WIFI)?;
    let _monitor = monitor(&mut sim)?;
    let mut robots = Vec::new();
    for number in 1..=3 {
        let name = format!("robot-{number}");
        let robot = Source::builder(URL).name(name).topic("pose").simulate(&mut sim, "robots")?;
        robot.topic("pose")?.sample_with(|state| state.extend([7; 200]))?;
        robots.push(robot);
    }
    let fourth = robot(URL).simulate(&mut sim, "robots");
    assert!(matches!(fourth, Err(SimError::FlowTaken { count: 3, .. })));
    sim.run_for(secs(5));
    sim.begin_measuring();
    sim.run_for(secs(15));
    let report = sim.report();
    for number in 1..=3 {
        let age = report.age(&format!("robot-{number}/pose"))?;
        assert!(age.mean < ms(100), "{report}");
    }
    assert!(report.goodput("laptop")? > 1e6, "{report}");
    Ok(())
}

/// Two links to the monitor, for a robot with two modems.
const TWO_PATHS: &str = r#"
title = "A robot with two modems"
duration = "60s"

[[link]]
name = "lte"
forward = { rate = "10mbit", delay = "25ms", queue = "200p" }

[[link]]
name = "wifi"
forward = { rate = "20mbit", delay = "5ms", queue = "200p" }

[[flow]]
name = "robot"
external = { paths = [["lte"], ["wifi"]] }
"#;

#[test]
fn a_source_over_two_paths_survives_the_loss_of_one() -> Outcome {
    let mut sim = Sim::scenario(TWO_PATHS)?;
    let _monitor = monitor(&mut sim)?;
    let source = robot(URL).simulate(&mut sim, "robot")?;
    let pose = source.topic("pose")?;
    sim.every(ms(10), move |_| {
        pose.put([7; 500]).expect("the source runs");
    });
    sim.run_for(secs(10));
    sim.begin_measuring();
    sim.run_for(secs(10));
    let report = sim.report();
    assert!(report.age("robot-7/pose")?.mean < ms(40), "{report}");
    assert!(report.forward("wifi")?.delivered > report.forward("lte")?.delivered, "{report}");
    sim.cut("wifi")?;
    sim.run_for(secs(5));
    sim.begin_measuring();
    sim.run_for(secs(10));
    let report = sim.report();
    let age = report.age("robot-7/pose")?;
    assert!(age.mean >= ms(25) && age.mean < ms(100), "{report}");
    Ok(())
}

#[test]
fn keys_and_records_come_and_records_survive_loss() -> Outcome {
    let mut sim = Sim::link("10mbit", "20ms")?;
    let monitor = monitor(&mut sim)?;
    let doors = TopicParams { kind: TopicKind::Keyed { max_keys: 9 }, ..TopicParams::new("doors") };
    let every = TopicKind::Every {
        stream: freshline_core::wire::StreamId(0),
        first: 0,
        max_bytes: 1 << 16,
    };
    let log = TopicParams { kind: every, ..TopicParams::new("log") };
    let source = robot(URL).topic(doors).topic(log).simulate(&mut sim, "source")?;
    let (doors, log) = (source.topic("doors")?, source.topic("log")?);
    let records = monitor.subscribe("robot-7/log");
    sim.set_loss("link", 0.2)?;
    let got = Rc::new(RefCell::new(Vec::new()));
    let taken = Rc::clone(&got);
    let mut number = 0_u32;
    sim.every(ms(100), move |_| {
        if number < 50 {
            log.push(number.to_string()).expect("there is room");
            doors.put_key(format!("door-{}", number % 3), number.to_string()).expect("it fits");
            number += 1;
        }
        let texts = std::iter::from_fn(|| records.try_next());
        taken.borrow_mut().extend(texts.map(|record| record.text().map(str::to_owned)));
    });
    sim.run_for(secs(20));
    let wanted: Vec<_> = (0..50).map(|number| Some(number.to_string())).collect();
    assert_eq!(*got.borrow(), wanted, "each once and in order");
    let keys: Vec<_> =
        monitor.keys("robot-7/doors").iter().map(|state| state.text().map(str::to_owned)).collect();
    assert_eq!(keys, ["48", "49", "47"].map(|text| Some(text.to_owned())));
    let report = sim.report();
    assert_eq!(report.delay("robot-7/log")?.count, 50);
    assert!(report.delay("robot-7/log")?.mean < ms(500), "{report}");
    assert!(
        report.age_of_key("robot-7/doors", "door-1")?.max > secs(10),
        "no door has moved since"
    );
    Ok(())
}

#[test]
fn commands_go_the_other_way() -> Outcome {
    let mut sim = Sim::link("10mbit", "20ms")?;
    let monitor = Monitor::builder(URL).topic("cmd").simulate(&mut sim)?;
    let robot = robot(URL).max_age("monitor/cmd", ms(500)).simulate(&mut sim, "source")?;
    let (pose, cmd) = (robot.topic("pose")?, monitor.topic("cmd")?);
    sim.every(ms(10), move |_| {
        pose.put([7; 100]).expect("the source runs");
    });
    let told = cmd.clone();
    sim.every(ms(50), move |now| {
        let given = told.put(format!("{now:?}"));
        assert!(given.is_ok() || now > secs(10), "until the monitor is closed below");
    });
    sim.run_for(secs(10));
    let latest = robot.latest("monitor/cmd").expect("it has arrived");
    assert!(latest.age().expect("it is known") < ms(200));
    let age = sim.report().age_at("robot-7", "monitor/cmd")?;
    assert!(age.mean < ms(150), "{age:?}");
    let report = monitor.close()?;
    assert_eq!(report.sources_open, 1);
    assert!(cmd.put("late").is_err(), "its monitor has ended");
    sim.run_for(secs(1));
    assert!(robot.latest("monitor/cmd").is_none(), "it is too old");
    Ok(())
}

#[test]
fn handles_end_as_in_the_world() -> Outcome {
    let mut sim = Sim::link("10mbit", "20ms")?;
    let monitor = monitor(&mut sim)?;
    let robot = robot(URL).simulate(&mut sim, "source")?;
    let pose = robot.topic("pose")?;
    pose.put("x=1")?;
    sim.run_for(secs(1));
    let report = robot.close()?;
    assert!(report.sent > 0 && report.acked > 0);
    assert!(pose.put("x=2").is_err(), "its source has ended");
    sim.run_for(secs(1));
    assert!(monitor.latest("robot-7/pose").is_none(), "it has said goodbye");
    let second = Monitor::builder(URL).simulate(&mut sim);
    assert!(matches!(second, Err(SimError::SecondMonitor)));
    let states = monitor.subscribe("*");
    drop(sim);
    assert!(states.is_over() && monitor.has_ended());
    Ok(())
}

#[test]
fn a_source_that_never_arrives_is_old() -> Outcome {
    let mut sim = Sim::link("10mbit", "20ms")?;
    let source = robot(URL).simulate(&mut sim, "source")?;
    source.topic("pose")?.put("x=1")?;
    sim.run_for(secs(10));
    let report = sim.report();
    assert_eq!(report.age("robot-7/pose")?.max, secs(10), "there is no monitor");
    assert!(matches!(report.delay("robot-7/pose"), Err(SimError::NotMeasured(_))));
    Ok(())
}

#[test]
fn a_callers_mistakes_are_errors() -> Outcome {
    let error = Sim::link("fast", "1ms").expect_err("it is no rate").to_string();
    assert!(error.contains("fast"), "{error}");
    assert!(Sim::link("1mbit\"", "1ms").is_err());
    assert!(matches!(Sim::scenario_file("no/such.toml"), Err(SimError::Read { .. })));
    let mut sim = Sim::lte()?.set("link.lte.forward.delay", "60ms")?;
    let error = robot(URL).simulate(&mut sim, "uplink").expect_err("there is none").to_string();
    assert!(error.contains("uplink") && error.contains("source"), "{error}");
    let error = robot("tcp://x").simulate(&mut sim, "source").expect_err("no such URL");
    assert!(error.to_string().contains("neither udp nor quic"), "{error}");
    assert!(sim.set_rate("lte", "0bit").is_err() && sim.set_rate("lte", "x").is_err());
    sim.set_rate("lte", "2mbit")?;
    let _source = robot(URL).simulate(&mut sim, "source")?;
    assert!(matches!(sim.set("seed", "2"), Err(SimError::TooLate(_))));
    Ok(())
}
