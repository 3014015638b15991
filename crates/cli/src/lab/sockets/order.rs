//! Whether two laws have the same order in the lab and over sockets.

use freshline_lab::run::Sampled;
use serde::Serialize;

/// Mean ages that differ by less than this fraction of the lower one are a tie.
const DRAW: f64 = 0.02;

/// A family of paths, in the lab and over sockets.
#[derive(Debug, Serialize)]
pub(super) struct Compared {
    pub(super) family: String,
    pub(super) title: String,
    /// Sources that share the path.
    pub(super) sources: usize,
    /// Runs of each law, in the lab as over sockets.
    pub(super) runs: usize,
    pub(super) laws: Vec<Figures>,
    pub(super) pairs: Vec<Pair>,
    /// How late the emulators were, ms: the 99th percentile of each run, and the maximum of these.
    pub(super) late_p99_ms: f64,
}

/// The results of a law in the lab and over sockets.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    pub(super) law: &'static str,
    pub(super) lab: Figure,
    pub(super) sockets: Figure,
}

/// Means over the runs.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub(super) age_mean_ms: f64,
    /// Half the width of the 95 % interval; `null` with one run.
    pub(super) age_ci95_ms: Option<f64>,
    /// Updates per second and source.
    pub(super) updates_per_s: f64,
}

/// A law with its ages in ms and its rates, run by run.
pub(super) struct Law {
    pub(super) law: &'static str,
    pub(super) lab: (Sampled, Sampled),
    pub(super) sockets: (Sampled, Sampled),
}

impl Law {
    pub(super) fn figures(&self) -> Figures {
        let figure = |(age, sent): &(Sampled, Sampled)| {
            let age = age.metric();
            let updates_per_s = sent.metric().value;
            Figure { age_mean_ms: age.value, age_ci95_ms: age.ci95, updates_per_s }
        };
        Figures { law: self.law, lab: figure(&self.lab), sockets: figure(&self.sockets) }
    }
}

/// The fresher one of two laws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    First,
    Second,
    Tie,
}

impl Order {
    /// The order of two laws by their ages in runs with the same randomness, run by run.
    fn of(first: &Sampled, second: &Sampled) -> Self {
        let difference = first.minus(1.0, second).metric();
        let lower = first.metric().value.min(second.metric().value);
        let noise = difference.ci95.unwrap_or(0.0).max(DRAW * lower);
        match difference.value {
            less if less < -noise => Self::First,
            more if more > noise => Self::Second,
            _ => Self::Tie,
        }
    }
}

/// Whether the order of two laws is that of the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Same,
    /// A tie in the lab, over sockets, or both.
    Tie,
    Differs,
}

/// A pair of laws.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Pair {
    pub(super) laws: [&'static str; 2],
    /// The fresher one in the lab.
    pub(super) lab: Order,
    /// The fresher one over sockets.
    pub(super) sockets: Order,
    pub(super) verdict: Verdict,
}

impl Pair {
    /// The pairs of all laws.
    pub(super) fn all(laws: &[Law]) -> Vec<Self> {
        let seconds = |first: usize| laws[first + 1..].iter().map(move |second| (first, second));
        let pairs = (0..laws.len()).flat_map(seconds);
        pairs.map(|(first, second)| Self::of(&laws[first], second)).collect()
    }

    fn of(first: &Law, second: &Law) -> Self {
        let lab = Order::of(&first.lab.0, &second.lab.0);
        let sockets = Order::of(&first.sockets.0, &second.sockets.0);
        let verdict = match (lab, sockets) {
            (Order::Tie, _) | (_, Order::Tie) => Verdict::Tie,
            (lab, sockets) if lab == sockets => Verdict::Same,
            _ => Verdict::Differs,
        };
        Self { laws: [first.law, second.law], lab, sockets, verdict }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ages(values: &[f64]) -> Sampled {
        Sampled::of_runs("age", "source", "ms", values)
    }

    fn law(law: &'static str, lab: &[f64], sockets: &[f64]) -> Law {
        let rates = || ages(&[1.0]);
        Law { law, lab: (ages(lab), rates()), sockets: (ages(sockets), rates()) }
    }

    #[test]
    fn a_difference_within_the_noise_of_the_runs_or_below_a_fiftieth_is_a_tie() {
        let apart = |first: &[f64], second: &[f64]| Order::of(&ages(first), &ages(second));
        assert_eq!(apart(&[10.0, 10.1, 9.9], &[12.0, 12.1, 11.9]), Order::First);
        assert_eq!(apart(&[12.0, 12.1, 11.9], &[10.0, 10.1, 9.9]), Order::Second);
        assert_eq!(apart(&[10.0, 10.1, 9.9], &[10.15, 10.25, 10.05]), Order::Tie);
        // Less by 2 in the mean, but between -8 and 4.
        assert_eq!(apart(&[10.0, 20.0, 30.0], &[18.0, 24.0, 26.0]), Order::Tie);
        // Common variation of the runs does not hide the difference between the laws.
        assert_eq!(apart(&[10.0, 20.0, 30.0], &[12.0, 22.0, 32.0]), Order::First);
        assert_eq!(apart(&[10.0], &[10.1]), Order::Tie);
        assert_eq!(apart(&[10.0], &[10.3]), Order::First);
    }

    #[test]
    fn an_order_differs_only_where_both_worlds_see_the_laws_apart() {
        let laws = [
            law("tenth", &[10.0, 10.1], &[10.2, 10.3]),
            law("acp+", &[12.0, 12.1], &[12.2, 12.1]),
            law("lazy", &[11.0, 11.1], &[13.2, 13.1]),
        ];
        let verdicts: Vec<_> = Pair::all(&laws).iter().map(|it| (it.laws, it.verdict)).collect();
        let [tenth, acp_plus, lazy] = ["tenth", "acp+", "lazy"];
        assert_eq!(
            verdicts,
            [
                ([tenth, acp_plus], Verdict::Same),
                ([tenth, lazy], Verdict::Same),
                ([acp_plus, lazy], Verdict::Differs),
            ]
        );
    }
}
