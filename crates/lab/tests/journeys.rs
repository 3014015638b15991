//! Laws of several stops, switched on and off, and the worlds in which they are combined.

use freshline_lab::journey::{Journey, JourneyError, Kind, Outcome, journey};
use freshline_lab::library;
use freshline_lab::run::run;
use freshline_lab::scenario::{Change, Scenario};

/// A robot with an upload of its own on Wi-Fi, behind a slow link.
const HOME: &str = r#"
title = "a small home"
duration = "20s"
warm_up = "5s"

[[cell]]
name = "wifi"
[cell.radio]
standard = "802.11n"
rate = "mcs0"
queue = "1000p"
ap_queue = "ifc"
lifetime = "10s"

[[cell.station]]
name = "robot"
queue = "dual"

[[link]]
name = "access"
forward = { rate = "50mbit", delay = "10ms", queue = "1000p" }

[[flow]]
name = "robot"
station = "robot"
path = ["wifi", "access"]
updates = { law = "tenth", payload = "500B" }

[[flow]]
name = "log"
station = "robot"
path = ["wifi", "access"]
tcp = { control = "cubic", host = "sorpc" }

[[journey.column]]
name = "age"
metric = "age_mean"
of = "robot"
better = "lower"

[[journey.column]]
name = "log"
metric = "goodput"
of = "log"
better = "higher"

[[journey.law]]
name = "Tenth"
stop = "source"
meant_for = ["age"]
[journey.law.off]
"flow.robot.updates.law" = "fixed"
"flow.robot.updates.rate" = "50/s"

[[journey.law]]
name = "SORPC"
stop = "host"
meant_for = ["age"]
[journey.law.off]
"flow.log.tcp.host" = "single"
"cell.wifi.station.robot.queue" = "1000p"

[[journey.law]]
name = "IFC"
stop = "wlan"
meant_for = ["log"]
[journey.law.off]
"cell.wifi.radio.ap_queue" = "1000p"

[[journey.today]]
name = "FQ-CoDel"
[journey.today.set]
"cell.wifi.station.robot.queue" = "fq_codel"
"#;

fn table() -> Journey {
    journey(HOME, &[], || {}).unwrap()
}

fn age(table: &Journey, row: &str) -> f64 {
    table.rows.iter().find(|it| it.name == row).unwrap().values[0].value
}

#[test]
fn a_table_has_each_law_alone_in_turn_all_and_all_but_one() {
    let table = table();
    let rows: Vec<_> = table.rows.iter().map(|row| (&*row.name, row.kind)).collect();
    assert_eq!(
        rows,
        [
            ("none", Kind::None),
            ("Tenth", Kind::Alone),
            ("SORPC", Kind::Alone),
            ("IFC", Kind::Alone),
            ("Tenth + SORPC", Kind::InTurn),
            ("all", Kind::All),
            ("all but Tenth", Kind::AllBut),
            ("all but SORPC", Kind::AllBut),
            ("all but IFC", Kind::AllBut),
            ("FQ-CoDel", Kind::Today),
        ]
    );
    // The file as it stands has all laws on.
    let alone = run(&Scenario::parse(HOME).unwrap(), || {}).unwrap();
    let alone = alone.iter().find(|it| (it.name, &*it.of) == ("age_mean", "robot")).unwrap();
    assert_eq!(age(&table, "all").to_bits(), alone.value.to_bits());
}

/// The station's queue is the bottleneck: 6.5 Mbit/s in front of 50. Its own upload stands before its updates
/// in a drop-tail queue, and behind them with two bands.
#[test]
fn bands_and_disciplines_in_front_of_the_air_let_updates_pass() {
    let table = table();
    let [none, bands, fq] = ["none", "SORPC", "FQ-CoDel"].map(|row| age(&table, row));
    assert!(none > 0.2, "{none}");
    assert!(bands < 0.05, "{bands}");
    assert!(fq < 0.05, "{fq}");
}

#[test]
fn verdicts_compare_all_laws_with_the_best_single_one() {
    let table = table();
    let [of_age, of_log] = &table.verdicts[..] else { panic!("{:?}", table.verdicts) };
    let best = ["Tenth", "SORPC"].map(|row| age(&table, row)).into_iter().reduce(f64::min).unwrap();
    assert!((of_age.worse - (age(&table, "all") / best - 1.0)).abs() < 1e-12);
    assert_eq!((of_log.column, of_log.best), (1, 2));
    let expected = if of_age.worse <= 0.05 { Outcome::Holds } else { Outcome::Worse };
    assert_eq!(of_age.outcome, expected, "without intervals");
}

#[test]
fn a_law_that_makes_things_worse_is_named() {
    let harmful = HOME.replace(
        "[[journey.today]]",
        "[[journey.law]]\nname = \"harm\"\nstop = \"router\"\nmeant_for = [\"age\"]\n\
         [journey.law.on]\n\"link.access.forward.delay\" = \"80ms\"\n\n[[journey.today]]",
    );
    let table = journey(&*harmful, &[], || {}).unwrap();
    let of_age = &table.verdicts[0];
    assert_eq!(of_age.outcome, Outcome::Worse, "{of_age:?}");
    assert!(of_age.hurt_by.contains(&3), "{of_age:?}");
}

/// Three runs whose ages differ by more than the tolerance.
#[test]
fn what_intervals_cannot_tell_is_undecided() {
    let runs = [Change::parse("runs=3").unwrap(), Change::parse("duration=6s").unwrap()];
    let noisy = HOME.replace("start_spread", "").replace("law = \"tenth\"", "law = \"acp\"");
    let table = journey(&*noisy, &runs, || {}).unwrap();
    for verdict in &table.verdicts {
        let half = verdict.ci95.unwrap();
        let [low, high] = [verdict.worse - half, verdict.worse + half];
        let expected = match () {
            () if low > 0.05 => Outcome::Worse,
            () if high <= 0.05 => Outcome::Holds,
            () => Outcome::Undecided,
        };
        assert_eq!(verdict.outcome, expected, "{verdict:?}");
    }
}

/// Nothing is dropped in any row: no law is better or worse than another.
#[test]
fn columns_of_zeros_hold() {
    let zeros =
        HOME.replace("metric = \"goodput\"\nof = \"log\"", "metric = \"drops\"\nof = \"access\"");
    let table = journey(&*zeros, &[], || {}).unwrap();
    let of_drops = &table.verdicts[1];
    assert_eq!((of_drops.worse, of_drops.outcome), (0.0, Outcome::Holds), "{of_drops:?}");
}

#[test]
fn laws_that_make_no_table_are_refused_with_what_to_do() {
    for (from, to, expected) in [
        ("meant_for = [\"log\"]", "meant_for = [\"loss\"]", "not the `name` of a column"),
        ("stop = \"wlan\"", "stop = \"air\"", "`air` is not a stop; write source"),
        ("\"flow.log.tcp.host\"", "\"cell.wifi.radio.ap_queue\"", "a key belongs to one law"),
        (
            "\"flow.log.tcp.host\" = \"single\"",
            "\"cell.wifi.radio\" = {}",
            "a key belongs to one law",
        ),
        ("\"flow.log.tcp.host\" = \"single\"", "\"runs\" = 2", "which all rows have in common"),
        ("name = \"SORPC\"", "name = \"Tenth\"", "the name `Tenth` is empty, is given twice"),
        ("name = \"SORPC\"", "name = \"all\"", "the name `all` is empty"),
    ] {
        let error = Scenario::parse(&*HOME.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("line"), "{error}");
    }
    let unknown = journey(&*HOME.replace("age_mean", "age_men"), &[], || {}).unwrap_err();
    assert!(matches!(unknown, JourneyError::UnknownMetric { .. }), "{unknown}");
    assert!(matches!(journey("", &[], || {}), Err(JourneyError::Row { .. })));
    let station = HOME.replace("name = \"robot\"\nqueue", "name = \"toaster\"\nqueue");
    let error = Scenario::parse(&*station).unwrap_err().to_string();
    assert!(error.contains("no flow gives a `station` called `toaster`"), "{error}");
    let hold = "queue = { discipline = \"ifil\", hold = { update_period = \"1s\", output_period = \"1ms\" } }";
    let error = Scenario::parse(&*HOME.replace("queue = \"dual\"", hold)).unwrap_err().to_string();
    assert!(error.contains("leave `hold` out"), "{error}");
}

/// Updates of a station with a second path, which is not a cell.
#[test]
fn a_station_takes_several_paths() {
    let changes = [
        Change::parse("flow.robot.updates.paths=[[\"wifi\", \"access\"], [\"access\"]]").unwrap(),
        Change::parse("flow.robot.path=[]").unwrap(),
    ];
    let metrics = run(&Scenario::parse_with(HOME, &changes).unwrap(), || {}).unwrap();
    let age = metrics.iter().find(|it| (it.name, &*it.of) == ("age_mean", "robot")).unwrap();
    // The second path is not behind the slow cell.
    assert!(age.value < 0.03, "{age:?}");
}

/// A link keeps its rate, and only its delay follows a trace.
#[test]
fn a_delay_varies_beside_a_rate() {
    let source = |name: &str| match name {
        "walk.trace" => Ok("0 delay=0ms\n5000 delay=100ms\n10000 delay=0ms\n".to_owned()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    let text = r#"
        title = "a delay that varies"
        duration = "20s"
        [[link]]
        name = "way"
        forward = { rate = "1mbit", trace = "walk.trace" }
        reverse = {}
        [[flow]]
        name = "robot"
        path = ["way"]
        updates = { law = "fixed", rate = "100/s", payload = "97B", overhead = "28B" }
    "#;
    let scenario =
        Scenario::parse(freshline_lab::scenario::Source { text, read_file: &source }).unwrap();
    let metrics = run(&scenario, || {}).unwrap();
    let value = |name: &str| metrics.iter().find(|it| it.name == name).unwrap().value;
    // 125 bytes take 1 ms; half of the time there are 100 ms more; 100 updates/s are 5 ms on average.
    assert!((value("age_mean") - 0.056).abs() < 0.002, "{}", value("age_mean"));
    assert!((value("age_p99") - 0.111).abs() < 0.002, "{}", value("age_p99"));
}

/// Commands go down through a mesh to a node.
#[test]
fn a_mesh_carries_flows_to_its_nodes() {
    let text = r#"
        title = "commands to a node of a mesh"
        duration = "30s"
        [[mesh]]
        name = "field"
        at = [[0.0, 0.0], [10.0, 0.0], [20.0, 0.0]]
        range = 12.0
        [[link]]
        name = "lte"
        forward = { rate = "5mbit", delay = "25ms" }
        [[flow]]
        name = "commands"
        node = 2
        path = ["field", "lte"]
        reverse = true
        updates = { law = "fixed", rate = "1/s", payload = "16B" }
        [[flow]]
        name = "states"
        node = 2
        path = ["field", "lte"]
        updates = { law = "fixed", rate = "1/s", payload = "16B" }
    "#;
    let metrics = run(&Scenario::parse(text).unwrap(), || {}).unwrap();
    let age =
        |of: &str| metrics.iter().find(|it| (it.name, &*it.of) == ("age_mean", of)).unwrap().value;
    let (down, up) = (age("commands"), age("states"));
    // Half a second of the period, 25 ms of the link, and two hops over the air.
    for age in [down, up] {
        assert!((0.53..0.7).contains(&age), "{down} {up}");
    }
}

#[test]
fn all_bundled_journeys_can_be_built() {
    let mut count = 0;
    for text in library::several("journey").unwrap() {
        let scenario = Scenario::parse(text.source()).unwrap_or_else(|error| {
            panic!("{}: {error}", text.name);
        });
        // That of the kernel's home has its rows in a script.
        let Some(config) = scenario.journey else { continue };
        count += 1;
        for law in 0..config.laws.len() {
            let off = config.changes(|other| other != law);
            let built = Scenario::parse_with(text.source(), &off);
            assert!(built.is_ok(), "{}: {:?}", text.name, built.err());
        }
        for alternative in &config.alternatives {
            let changes: Vec<_> =
                config.changes(|_| false).into_iter().chain(alternative.changes()).collect();
            let built = Scenario::parse_with(text.source(), &changes);
            assert!(built.is_ok(), "{}: {:?}", text.name, built.err());
        }
    }
    assert_eq!(count, 5);
}
