//! Whole runs of a scenario.

use std::io;

use freshline_core::source::LawName;
use freshline_lab::run::{Document, PointResult, points, run as run_scenario, run_one};
use freshline_lab::scenario::{Change, NoLaws, SetError, Source};

use crate::settings::{BadSettings, Settings};

/// Runs a scenario at all points of its sweep and returns the document that
/// `freshline lab run SCENARIO --seed SEED --json` prints, byte for byte, with the line feed at its
/// end; `name` is SCENARIO. `seed` is at most 2⁶³ − 1, TOML's largest number.
///
/// # Errors
/// Those of the scenario, which cannot name files in a page.
pub fn run(name: &str, toml: &str, seed: u64) -> Result<String, SetError> {
    let seed = i64::try_from(seed).unwrap_or(i64::MAX);
    let source = Source { text: toml, read_file: &no_file };
    let points = points(source, &[Change::new("seed", seed.into())])?;
    let mut results = Vec::new();
    for point in &points {
        let metrics = run_scenario(&point.scenario, || {})?;
        results.push(PointResult { set: point.set.clone(), metrics });
    }
    let document = Document::new(name, &points, results);
    let text = serde_json::to_string_pretty(&document).expect("keys are texts");
    Ok(text + "\n")
}

fn no_file(name: &str) -> io::Result<String> {
    Err(io::Error::new(io::ErrorKind::NotFound, format!("a page has no file `{name}`")))
}

/// The mean age in s of all sources of these settings at the fixed rate `rate`, over 20 s after a
/// warm-up of 5 s.
///
/// # Errors
/// [`BadSettings`].
pub fn sweep_point(settings: &Settings, rate: f64) -> Result<f64, BadSettings> {
    let settings = Settings { law: LawName::Fixed, rate, ..settings.clone() };
    let numbers = run_one(&settings.scenario("25s", "5s")?, 0, &NoLaws)?;
    let age = numbers.iter().find(|number| number.of == "source" && number.name == "age_mean");
    Ok(age.expect("each source has an age").value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::settings;

    #[test]
    fn one_seed_gives_one_document() {
        let toml = settings().toml("5s", "1s");
        let first = run("one", &toml, 7).unwrap();
        assert_eq!(first, run("one", &toml, 7).unwrap());
        assert_ne!(first, run("one", &toml, 8).unwrap());
        let document: serde_json::Value = serde_json::from_str(&first).unwrap();
        assert_eq!(document["seed"], 7);
        assert!(document["metrics"].as_array().unwrap().len() > 10);
    }

    #[test]
    fn a_scenario_that_names_a_file_is_refused() {
        let toml = settings().toml("5s", "1s").replace("rate = \"1000kbit\"", "trace = \"lte.up\"");
        let error = run("one", &toml, 1).unwrap_err().to_string();
        assert!(error.contains("lte.up"), "{error}");
        assert!(run("one", "title = ", 1).is_err());
    }

    #[test]
    fn the_mean_age_over_the_rate_is_a_bowl() {
        let age = |part| sweep_point(&settings(), part * settings().capacity()).unwrap();
        let [slow, good, much] = [0.1, 0.5, 1.5].map(age);
        assert!(good < slow && good < much, "{slow} {good} {much}");
    }
}
