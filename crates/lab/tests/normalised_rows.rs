//! Rows of a reproduction that are relative to another row, or the sum of several, run by run.

use freshline_lab::reproduce::{Compared, Options, ReproduceError, Verdict, reproduce};
use freshline_lab::run::sample;
use freshline_lab::scenario::Scenario;

/// Runs differ by when updates and the download begin.
const SCENARIO: &str = r#"
title = "Updates behind a queue and past it"
duration = "5s"
runs = 6

[[link]]
name = "link"
forward = { rate = "10mbit", delay = "10ms", queue = "200p" }

[[flow]]
name = "updates"
path = ["link"]
start_spread = "20ms"
updates = { law = "poisson", rate = "20/s", payload = "400B" }

[[flow]]
name = "download"
path = ["link"]
start_spread = "1s"
tcp = { control = "cubic" }

[reproduce]
of = "nothing"

[[reproduce.row]]
id = "ifc"
what = "freshness control"
set = { "link.link.forward.queue" = "ifc" }
metric = "age_mean"
of = "updates"

[[reproduce.row]]
id = "fifo"
what = "a queue for all"
metric = "age_mean"
of = "updates"
over = "ifc"
expected = 2.0
tolerance = 9.0
"#;

#[test]
fn a_number_is_a_multiple_of_the_other_row_in_the_same_run() {
    let rows = reproduce(SCENARIO, &[], Options::default(), |_| {}).unwrap();
    let (base, ratio) = (&rows[0], &rows[1]);
    assert_eq!((&*base.unit, &*ratio.unit), ("s", "1"));
    assert_eq!((base.deviation, ratio.verdict), (None, Verdict::Holds));

    let ages = |queue: &str| -> Vec<f64> {
        let text = SCENARIO.replace("\"200p\"", queue);
        let scenario = Scenario::parse(text.as_str()).unwrap();
        let of_run = |run: u64| {
            let alone = Scenario { runs: run as u32 + 1, ..scenario.clone() };
            let all = sample(&alone, || {}).unwrap();
            let age = all.iter().find(|one| one.name == "age_mean" && one.of == "updates");
            age.unwrap().metric().value
        };
        // The n-th run's value follows from the means over the first n runs.
        let means: Vec<f64> = (0..6).map(of_run).collect();
        let before = |n: usize| if n == 0 { 0.0 } else { means[n - 1] * n as f64 };
        (0..6).map(|n| means[n] * (n + 1) as f64 - before(n)).collect()
    };
    let ratios: Vec<f64> =
        ages("\"200p\"").iter().zip(ages("\"ifc\"")).map(|(fifo, ifc)| fifo / ifc).collect();
    let mean = ratios.iter().sum::<f64>() / 6.0;
    let squares: f64 = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
    assert!((ratio.ours.unwrap() - mean).abs() < 1e-9, "{ratio:?} {ratios:?}");
    assert!((ratio.deviation.unwrap() - (squares / 5.0).sqrt()).abs() < 1e-9, "{ratio:?}");
}

#[test]
fn a_row_over_one_that_is_not_above_it_is_refused() {
    let text = SCENARIO.replace("over = \"ifc\"", "over = \"red\"");
    let error = reproduce(text.as_str(), &[], Options::default(), |_| {}).unwrap_err();
    assert!(matches!(error, ReproduceError::UnknownRow { .. }));
    assert_eq!(error.to_string(), "`a queue for all`: no row above has the id `red`");
}

#[test]
fn a_number_is_the_sum_of_several_rows() {
    let text = SCENARIO.replace("over = \"ifc\"", "id = \"fifo\"\nplus = [\"ifc\"]");
    let text = text.replacen("id = \"fifo\"\n", "", 1);
    let [alone, sum] = [SCENARIO.replace("over = \"ifc\"", ""), text]
        .map(|text| reproduce(text.as_str(), &[], Options::default(), |_| {}).unwrap());
    let ours = |rows: &[Compared], row: usize| rows[row].ours.unwrap();
    assert!((ours(&sum, 1) - ours(&alone, 0) - ours(&alone, 1)).abs() < 1e-9, "{sum:?}");
    assert_eq!(&*sum[1].unit, "s");
}
