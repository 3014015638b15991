//! The laws over real sockets, beside the lab's forecast for the very same paths.

use std::path::Path;
use std::{fs, iter, thread};

use freshline_core::link::{ConditionsConfig, HopConfig, PathConfig};
use freshline_core::unit::{Bytes, Span, UpdateRate};
use freshline_lab::run::run;
use freshline_lab::scenario::{Change, LinkConfig, Scenario, Source};
use freshline_net::stop::Stop;

use super::contest::Contest;
use super::view::View;
use super::{PAYLOAD, Settings};
use lateness::Sleeper;
use verdict::Verdict;

#[path = "../../tests/common/lateness.rs"]
mod lateness;
#[path = "../../tests/common/verdict.rs"]
mod verdict;

/// Of `scenarios/fresher`, where the lab sees the laws well apart.
const FAMILIES: [&str; 4] = ["satellite", "jitter-05", "unequal-hops", "narrow-back"];

/// The laws; `acp+` as published is left out, as losses let its rate drift without end.
const LAWS: [&str; 3] = ["tenth", "acp+d", "lazy"];

/// Of a run in both worlds; the search for the rate counts.
const LENGTH: Span = Span::from_secs(15);

/// Ages of the lab that differ by more than this part are to stand in the same order.
const APART: f64 = 0.05;

/// Each age is to be the lab's but for this part.
const NEAR: f64 = 0.2;

/// A machine that is later shows other paths: this is a twelfth of the least age here, and an update
/// waits for both the emulator and the monitor.
const TIMELY_MS: f64 = 1.0;

/// A family's mean ages in ms, in the order of [`LAWS`].
type Ages = [f64; 3];

/// The scenario of a family, with one of the laws, for as long as the sockets have.
fn scenario(family: &str, law: &str) -> Scenario {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/fresher");
    let text = fs::read_to_string(folder.join(family).with_extension("toml")).unwrap();
    let read_file = |name: &str| fs::read_to_string(folder.join(name));
    let set = |key: &str, value: String| Change::new(key.to_owned(), toml::Value::String(value));
    let changes = [
        set("flow.source.updates.law", law.to_owned()),
        set("duration", LENGTH.to_string()),
        set("warm_up", Span::ZERO.to_string()),
    ];
    Scenario::parse_with(Source { text: &text, read_file: &read_file }, &changes).unwrap()
}

fn forecast(family: &str) -> Ages {
    LAWS.map(|law| {
        let metrics = run(&scenario(family, law), || {}).unwrap();
        let age = metrics.iter().find(|metric| metric.name == "age_mean").unwrap();
        age.value * 1e3
    })
}

/// The links of a scenario with a single flow, as the emulator takes them.
fn conditions(scenario: &Scenario) -> ConditionsConfig {
    let direction = |hop: fn(&LinkConfig) -> &HopConfig| {
        let links = scenario.links.iter();
        let hops = links.flat_map(|link| iter::repeat_n(hop(link).clone(), link.count as usize));
        PathConfig { hop: hops.collect() }
    };
    let forward = direction(|link| &link.there);
    let mut back = direction(|link| link.back.as_ref().unwrap_or(&link.there));
    back.hop.reverse();
    ConditionsConfig { forward, back, wlan: None }
}

/// What the laws come to over sockets, and how late the machine was meanwhile, in ms.
fn measure(family: &str) -> (Ages, f64) {
    let scenario = scenario(family, LAWS[0]);
    let [flow] = &scenario.flows[..] else { panic!("{family}: not a single flow") };
    assert_eq!(flow.updates.as_ref().unwrap().payload, Bytes::from(PAYLOAD));
    let any_rate = UpdateRate::saturating(1.0);
    let laws = super::laws(&Settings::default(), any_rate)
        .into_iter()
        .filter(|(law, _)| LAWS.contains(law))
        .collect();
    let conditions = conditions(&scenario);
    let contest = Contest { conditions, laws, seed: scenario.seed, duration: LENGTH };
    let sleeper = Sleeper::start();
    let runs = contest.run(&Stop::new(), &mut View::Unseen).unwrap();
    let ages = LAWS.map(|law| {
        let run = runs.iter().find(|run| run.law == law).unwrap();
        run.age.as_ref().unwrap().mean.as_millis_f64()
    });
    (ages, sleeper.late_ms())
}

/// Whether the laws are as old as the lab says, and those that it sees apart in the same order.
fn agree(lab: Ages, sockets: Ages) -> bool {
    let is_near = lab.iter().zip(sockets).all(|(lab, age)| (age / lab - 1.0).abs() < NEAR);
    let pairs = (0..LAWS.len()).flat_map(|one| (0..LAWS.len()).map(move |other| (one, other)));
    let mut apart = pairs.filter(|(one, other)| lab[*one] * (1.0 + APART) < lab[*other]);
    is_near && apart.all(|(one, other)| sockets[one] < sockets[other])
}

#[test]
#[ignore = "long: measures delays in real time"]
fn over_real_sockets_the_laws_are_as_old_as_in_the_lab_and_in_its_order() {
    let forecasts = FAMILIES.map(|family| (family, forecast(family)));
    let judge = |family: &str, lab: Ages| {
        let (sockets, late_ms) = measure(family);
        println!(
            "{family}, {LAWS:?}: lab {lab:.1?} ms, sockets {sockets:.1?} ms, the machine late by \
             {late_ms:.2} ms"
        );
        Verdict::of(agree(lab, sockets), late_ms, TIMELY_MS)
    };
    let at_once = thread::scope(|scope| {
        forecasts
            .map(|(family, lab)| scope.spawn(move || judge(family, lab)))
            .map(|running| running.join().unwrap())
    });
    for ((family, lab), verdict) in forecasts.into_iter().zip(at_once) {
        let [tenth, others @ ..] = lab;
        assert!(others.iter().all(|other| tenth * (1.0 + APART) < *other), "{family}: {lab:?}");
        assert!(verdict.or_again(|| judge(family, lab)), "{family}");
    }
}
