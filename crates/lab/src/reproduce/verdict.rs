//! The verdict on a claim, given a number with its confidence interval.
//!
//! ```text
//!        ├─ holds ─┤                    the whole interval is within the claim
//!   ───────────────[ claim ]──────►
//!                ├─ undecided ─┤        it is partly within: more runs are needed
//!                        ├─ broken ─┤
//! ```

use serde::{Deserialize, Serialize};

use crate::run::Sampled;

/// The verdict of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The claim holds with 95 % confidence, or exactly if there is one run.
    #[serde(rename = "holds")]
    Holds,
    /// The claim does not hold, with the same confidence.
    #[serde(rename = "broken")]
    Broken,
    /// The interval covers both.
    #[serde(rename = "undecided")]
    Undecided,
    /// No source states an expectation.
    #[serde(rename = "not judged")]
    NotJudged,
}

impl Verdict {
    /// The name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Broken => "broken",
            Self::Undecided => "undecided",
            Self::NotJudged => "not judged",
        }
    }

    /// The verdict on several simultaneous claims: one broken claim breaks all.
    pub(super) fn of_all(verdicts: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::NotJudged;
        for verdict in verdicts {
            all = match (all, verdict) {
                (Self::Broken, _) | (_, Self::Broken) => return Self::Broken,
                (Self::Undecided, _) | (_, Self::Undecided) => Self::Undecided,
                (Self::Holds, _) | (_, Self::Holds) => Self::Holds,
                _ => Self::NotJudged,
            };
        }
        all
    }
}

/// The range of a claimed number: from `least` to `most`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Claim {
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Claim {
    pub(super) const fn at_least(least: f64) -> Self {
        Self { least, most: f64::INFINITY }
    }

    pub(crate) const fn at_most(most: f64) -> Self {
        Self { least: f64::NEG_INFINITY, most }
    }

    /// The number may differ from `expected` by a fraction of the distance between `expected` and
    /// `base`.
    pub(super) fn near(expected: f64, tolerance: f64, base: f64) -> Self {
        let off = ((expected - base) * tolerance).abs();
        Self { least: expected - off, most: expected + off }
    }

    /// The verdict on a number whose 95 % interval is `ci95` wide on either side.
    pub(crate) fn judge(self, value: f64, ci95: Option<f64>) -> Verdict {
        let half = ci95.unwrap_or(0.0);
        let (low, high) = (value - half, value + half);
        // A number that is unknown in all runs meets no claim.
        if !value.is_finite() {
            Verdict::Broken
        } else if self.least <= low && high <= self.most {
            Verdict::Holds
        } else if high < self.least || self.most < low {
            Verdict::Broken
        } else {
            Verdict::Undecided
        }
    }

    pub(super) fn judge_sampled(self, sampled: &Sampled) -> Verdict {
        let metric = sampled.metric();
        self.judge(metric.value, metric.ci95)
    }
}

/// Whether each exceeds the previous one by a fraction of that.
pub(super) fn rising(rows: &[&Sampled], margin: f64) -> Verdict {
    // Equal numbers do not rise.
    let above = Claim::at_least(f64::MIN_POSITIVE);
    let pairs = rows.iter().zip(rows.iter().skip(1));
    let judge = |(lower, higher): (&&Sampled, &&Sampled)| {
        above.judge_sampled(&higher.minus(1.0 + margin, lower))
    };
    Verdict::of_all(pairs.map(judge))
}

/// Whether all are equal to the first one, within the precision of reading a figure.
pub(super) fn alike(rows: &[&Sampled]) -> Verdict {
    const VISIBLE: f64 = 0.05;
    let [first, others @ ..] = rows else { return Verdict::NotJudged };
    let near = Claim { least: 1.0 - VISIBLE, most: 1.0 + VISIBLE };
    Verdict::of_all(others.iter().map(|other| near.judge_sampled(&other.over(first))))
}

/// Whether the first one is the maximum, or within a draw of it.
pub(super) fn most(rows: &[&Sampled]) -> Verdict {
    let [first, others @ ..] = rows else { return Verdict::NotJudged };
    let above = Claim::at_least(0.0);
    let judge = |other: &&Sampled| above.judge_sampled(&first.minus(drawn(other, -1.0), other));
    Verdict::of_all(others.iter().map(judge))
}

/// Whether the first one is the minimum, or within a draw of it.
pub(super) fn least(rows: &[&Sampled]) -> Verdict {
    let [first, others @ ..] = rows else { return Verdict::NotJudged };
    let below = Claim::at_most(0.0);
    let judge = |other: &&Sampled| below.judge_sampled(&first.minus(drawn(other, 1.0), other));
    Verdict::of_all(others.iter().map(judge))
}

/// The factor that moves a number up (1) or down (-1) by the width of a draw.
fn drawn(sampled: &Sampled, direction: f64) -> f64 {
    const DRAW: f64 = 0.02;
    1.0 + direction * DRAW * sampled.metric().value.signum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(values: &[f64]) -> Sampled {
        Sampled::of_runs("age_mean", "source", "s", values)
    }

    fn all<const N: usize>(numbers: [f64; N]) -> Vec<Sampled> {
        numbers.iter().map(|number| sampled(&[*number])).collect()
    }

    fn refs(rows: &[Sampled]) -> Vec<&Sampled> {
        rows.iter().collect()
    }

    #[test]
    fn a_claim_is_undecided_while_the_interval_covers_both() {
        let claim = Claim::near(10.0, 0.1, 0.0);
        assert_eq!(claim.judge(10.5, Some(0.4)), Verdict::Holds);
        assert_eq!(claim.judge(10.5, Some(0.6)), Verdict::Undecided);
        assert_eq!(claim.judge(11.5, Some(0.6)), Verdict::Undecided);
        assert_eq!(claim.judge(11.5, Some(0.4)), Verdict::Broken);
        assert_eq!(claim.judge(11.5, None), Verdict::Broken);
        assert_eq!(claim.judge(f64::NAN, None), Verdict::Broken);
    }

    #[test]
    fn a_tolerance_is_of_what_the_law_changes() {
        // 115 ms over a path of 110 ms: 111 ms is a fifth of the expected excess.
        let claim = Claim::near(0.115, 0.25, 0.110);
        assert_eq!(claim.judge(0.111, None), Verdict::Broken);
        assert_eq!(claim.judge(0.114, None), Verdict::Holds);
        // Half of a gain, in either direction.
        let claim = Claim::near(0.8, 0.5, 1.0);
        assert_eq!(
            (claim.judge(0.71, None), claim.judge(0.91, None)),
            (Verdict::Holds, Verdict::Broken)
        );
    }

    #[test]
    fn orders_hold_where_all_pairs_do() {
        assert_eq!(rising(&refs(&all([1.0, 1.1, 3.0])), 0.0), Verdict::Holds);
        assert_eq!(rising(&refs(&all([1.0, 1.1, 3.0])), 0.2), Verdict::Broken);
        assert_eq!(rising(&refs(&all([1.0, 1.0])), 0.0), Verdict::Broken);
        assert_eq!(alike(&refs(&all([1.0, 1.04, 0.96]))), Verdict::Holds);
        assert_eq!(alike(&refs(&all([1.0, 1.06]))), Verdict::Broken);
        assert_eq!(most(&refs(&all([0.99, 1.0, 0.2]))), Verdict::Holds);
        assert_eq!(most(&refs(&all([0.97, 1.0]))), Verdict::Broken);
        assert_eq!(least(&refs(&all([1.01, 1.0]))), Verdict::Holds);
        assert_eq!(least(&refs(&all([1.03, 1.0]))), Verdict::Broken);
        assert_eq!(most(&refs(&all([-1.01, -1.0]))), Verdict::Holds, "of negatives");
        assert_eq!(rising(&[], 0.0), Verdict::NotJudged);
    }

    #[test]
    fn orders_are_judged_run_by_run() {
        // Runs differ more than the two do; in each of them the order is the same.
        let [low, high] = [sampled(&[1.0, 5.0, 9.0]), sampled(&[1.1, 5.1, 9.1])];
        assert_eq!(rising(&[&low, &high], 0.0), Verdict::Holds);
        let noisy = sampled(&[1.4, 4.9, 9.1]);
        assert_eq!(rising(&[&low, &noisy], 0.0), Verdict::Undecided);
    }
}
