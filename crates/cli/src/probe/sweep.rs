//! The rates to try: a series of rates, then more around the best one.

use freshline_core::source::{Fixed, Lazy};
use freshline_core::unit::{Span, UpdateRate};

use super::trial::{Probe, Timing, Trial, TrialError};

/// The series of rates.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Range {
    Given(Vec<UpdateRate>),
    /// From half an update per round trip, by [`GROWTH`], until the age is [`FAR`] times the best
    /// one.
    Found,
}

/// Six rates per decade: enough to show the minimum.
const GROWTH: f64 = 1.5;

/// Beyond twice the best age, updates queue, and a higher rate would only lengthen the queue.
const FAR: u64 = 2;

/// The maximum rate at the start of the sweep, for paths with almost no delay.
const LATEST_START: f64 = 100.0;

/// The maximum rate of the sweep; it is also the limit of the other laws.
const CEILING: f64 = 1e4;

pub(super) struct Sweep<'a> {
    pub(super) probe: &'a Probe,
    pub(super) timing: Timing,
    pub(super) range: Range,
    /// Rates to add on either side of the best.
    pub(super) refine: u32,
    /// The duration of the measurements that follow the sweep.
    pub(super) after: Span,
}

/// The result of a fixed rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) rate: UpdateRate,
    pub(super) trial: Trial,
}

impl Sweep<'_> {
    /// The points from the lowest rate to the highest; those so far, if it was interrupted.
    pub(super) fn run(&self) -> Result<Vec<Point>, TrialError> {
        let mut points = Vec::new();
        match &self.range {
            Range::Given(rates) => {
                self.try_all(rates, 2 * self.refine as usize, &mut points)?;
            }
            Range::Found => self.find(&mut points)?,
        }
        if let Some(best) = best(&points) {
            let rates: Vec<_> = points.iter().map(|point| point.rate).collect();
            self.try_all(&around(best.rate, &rates, self.refine), 0, &mut points)?;
        }
        Ok(points)
    }

    fn find(&self, points: &mut Vec<Point>) -> Result<(), TrialError> {
        let Some(first) = self.probe.run(Box::new(Lazy::new(Default::default())), self.timing)?
        else {
            return Ok(());
        };
        let start = 0.5 / first.rtt_min.as_secs_f64();
        let mut rate = UpdateRate::saturating(start.min(LATEST_START));
        while rate.per_second() <= CEILING
            && self.try_rate(rate, 2 * self.refine as usize, points)?
        {
            let age = |point: &Point| point.trial.age_mean;
            let reached = points.last().map_or(Span::ZERO, age);
            if best(points).is_some_and(|best| reached > age(best) * FAR) {
                break;
            }
            rate = rate.scaled(GROWTH);
        }
        Ok(())
    }

    /// Adds a point for each rate; at most `more` others follow.
    fn try_all(
        &self,
        rates: &[UpdateRate],
        more: usize,
        points: &mut Vec<Point>,
    ) -> Result<(), TrialError> {
        for (index, rate) in rates.iter().enumerate() {
            if !self.try_rate(*rate, rates.len() - index - 1 + more, points)? {
                break;
            }
        }
        Ok(())
    }

    /// Adds a point; `more` others are known to follow. `false` if it was interrupted.
    fn try_rate(
        &self,
        rate: UpdateRate,
        more: usize,
        points: &mut Vec<Point>,
    ) -> Result<bool, TrialError> {
        let Some(trial) = self.probe.run(Box::new(Fixed::new(rate)), self.timing)? else {
            return Ok(false);
        };
        say!(
            "{:>10.1}/s  {:>9.2} ms  about {:.0} s left",
            rate.per_second(),
            trial.age_mean.as_millis_f64(),
            self.left(more).as_secs_f64(),
        );
        let place = points.partition_point(|point| point.rate <= rate);
        points.insert(place, Point { rate, trial });
        Ok(true)
    }
}

impl Sweep<'_> {
    /// The duration of `more` rates and of the measurements after the sweep, without the time in
    /// which the path drains. If the range is found automatically, it may become longer.
    fn left(&self, more: usize) -> Span {
        (self.timing.settle + self.timing.measure) * more as u64 + self.after
    }
}

/// The point with the lowest age.
pub(super) fn best(points: &[Point]) -> Option<&Point> {
    points.iter().min_by_key(|point| point.trial.age_mean)
}

/// `steps` rates from `from` to `to`, both included, each the same factor from the next.
pub(super) fn spread(from: UpdateRate, to: UpdateRate, steps: u32) -> Vec<UpdateRate> {
    let factor = (to.per_second() / from.per_second()).powf(1.0 / f64::from(steps - 1));
    (0..steps).map(|step| from.scaled(factor.powf(step.into()))).collect()
}

/// `count` rates on either side of `best`, up to its neighbours among `rates`, which rise.
fn around(best: UpdateRate, rates: &[UpdateRate], count: u32) -> Vec<UpdateRate> {
    let below = rates.iter().rev().find(|rate| **rate < best);
    let above = rates.iter().find(|rate| **rate > best);
    let between = |from, to| spread(from, to, count + 2).into_iter().skip(1).take(count as usize);
    let lower = below.into_iter().flat_map(|below| between(*below, best));
    let upper = above.into_iter().flat_map(|above| between(best, *above));
    lower.chain(upper).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(values: &[f64]) -> Vec<UpdateRate> {
        values.iter().map(|value| UpdateRate::saturating(*value)).collect()
    }

    fn assert_near(found: &[UpdateRate], wanted: &[f64]) {
        let near =
            |(found, wanted): (&UpdateRate, &f64)| (found.per_second() / wanted - 1.0).abs() < 1e-9;
        assert!(found.len() == wanted.len() && found.iter().zip(wanted).all(near), "{found:?}");
    }

    #[test]
    fn rates_are_spread_by_equal_factors() {
        let ends = rates(&[10.0, 1000.0]);
        assert_near(&spread(ends[0], ends[1], 3), &[10.0, 100.0, 1000.0]);
        assert_near(&spread(ends[1], ends[0], 2), &[1000.0, 10.0]);
    }

    #[test]
    fn the_second_pass_lies_between_the_best_and_its_neighbours() {
        let row = rates(&[1.0, 16.0, 81.0]);
        assert_near(&around(row[1], &row, 1), &[4.0, 36.0]);
        assert_near(&around(row[0], &row, 1), &[4.0]);
        assert_near(&around(row[2], &row, 3).first().map_or(vec![], |rate| vec![*rate]), &[24.0]);
        assert!(around(row[1], &row, 0).is_empty() && around(row[1], &row[1..2], 3).is_empty());
    }
}
