//! Axes as plotters takes them: linear, logarithmic, or with labels at places.

use std::ops::Range;

use plotters::coord::ranged1d::{
    KeyPointHint, KeyPointWeight, NoDefaultFormatting, Ranged, ValueFormatter,
};

use crate::figure::{Axis, Scale};
use crate::number::{linear_ticks, log_ticks, scaled, short};

/// From how large a range on an axis is logarithmic by itself.
const LOG_FROM: f64 = 50.0;

/// The ends of an interval around a value, for [`Fitted::new`]. Where it reaches below zero and the value does not, the
/// value is its lower end, so that the axis can be logarithmic.
pub(super) fn ends_of(value: f64, half: f64) -> [f64; 2] {
    let low = value - half;
    [if low <= 0.0 && value > 0.0 { value } else { low }, value + half]
}

/// An axis that is ready to draw. Its values have been divided by [`factor`](Self::factor).
#[derive(Debug, Clone)]
pub(super) struct Fitted {
    pub(super) factor: f64,
    /// The name with the unit.
    pub(super) name: String,
    from: f64,
    to: f64,
    is_log: bool,
    ticks: Vec<f64>,
    labels: Vec<String>,
}

impl Fitted {
    /// Fits an axis to `values`, about `ticks` of which are marked. A linear axis starts at zero if `from_zero`,
    /// unless there are negative values.
    pub(super) fn new(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        from_zero: bool,
        ticks: usize,
    ) -> Self {
        if !axis.labels.is_empty() {
            return Self::of_labels(axis);
        }
        let values: Vec<_> = values.filter(|value| value.is_finite()).collect();
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (min, max) = if values.is_empty() { (0.0, 1.0) } else { (min, max) };
        let (factor, unit) = scaled(&axis.unit, max.abs().max(min.abs()));
        let (min, max) = (min / factor, max / factor);
        let is_log = match axis.scale {
            Scale::Linear => false,
            Scale::Log => min > 0.0,
            Scale::Auto => min > 0.0 && max / min >= LOG_FROM,
        };
        let (from, to) = if is_log {
            let room = (max / min).max(1.2).powf(0.04);
            (min / room, max * room)
        } else {
            let starts_at_zero = from_zero && min >= 0.0;
            let min = if starts_at_zero { 0.0 } else { min };
            let size = if max > min { max - min } else { max.abs().max(1.0) };
            let room = 0.05 * size;
            let is_natural = starts_at_zero || min == 0.0;
            let to = if max > min { max + room } else { min + size };
            (if is_natural { 0.0 } else { min - room }, to)
        };
        let ticks = if is_log { log_ticks(from, to, ticks) } else { linear_ticks(from, to, ticks) };
        // "Dropped packets (packets)" would say it twice.
        let unit =
            if axis.name.to_lowercase().contains(unit) && unit.len() > 4 { "" } else { unit };
        let is_logarithmic = if is_log { ", logarithmic" } else { "" };
        let name = match (unit, is_logarithmic) {
            ("" | "1", "") => axis.name.clone(),
            ("" | "1", _) => format!("{} (logarithmic)", axis.name),
            (unit, behind) => format!("{} ({unit}{behind})", axis.name),
        };
        Self { factor, name, from, to, is_log, ticks, labels: Vec::new() }
    }

    fn of_labels(axis: &Axis) -> Self {
        let count = axis.labels.len();
        Self {
            factor: 1.0,
            name: axis.name.clone(),
            from: -0.5,
            to: count as f64 - 0.5,
            is_log: false,
            ticks: (0..count).map(|place| place as f64).collect(),
            labels: axis.labels.clone(),
        }
    }

    /// Where it begins and ends.
    pub(super) fn ends(&self) -> [f64; 2] {
        [self.from, self.to]
    }

    /// A value within the axis.
    pub(super) fn clamped(&self, value: f64) -> f64 {
        value.clamp(self.from, self.to)
    }

    /// The labels of the ticks.
    pub(super) fn tick_labels(&self) -> impl Iterator<Item = String> {
        self.ticks.iter().map(|tick| self.label(*tick))
    }

    pub(super) fn label(&self, at: f64) -> String {
        if self.labels.is_empty() {
            return short(at);
        }
        self.labels.get(at.round().max(0.0) as usize).cloned().unwrap_or_default()
    }

    fn share(&self, value: f64) -> f64 {
        if self.is_log {
            let place = |value: f64| value.max(f64::MIN_POSITIVE).ln();
            (place(value) - place(self.from)) / (place(self.to) - place(self.from))
        } else {
            (value - self.from) / (self.to - self.from)
        }
    }
}

impl Ranged for Fitted {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        start + (self.share(*value).clamp(-1.0, 2.0) * f64::from(end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight() {
            KeyPointWeight::Bold => self.ticks.clone(),
            KeyPointWeight::Any => Vec::new(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Fitted {
    fn format_ext(&self, value: &f64) -> String {
        self.label(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitted(unit: &str, scale: Scale, values: &[f64]) -> Fitted {
        let axis = Axis { scale, ..Axis::new("age", unit) };
        Fitted::new(&axis, values.iter().copied(), true, 6)
    }

    #[test]
    fn an_axis_is_logarithmic_where_that_is_asked_for_or_needed() {
        assert_eq!(fitted("s", Scale::Auto, &[0.01, 0.02]).name, "age (ms)");
        assert_eq!(fitted("s", Scale::Auto, &[0.01, 0.9]).name, "age (ms, logarithmic)");
        assert_eq!(fitted("1", Scale::Log, &[1.0, 2.0]).name, "age (logarithmic)");
        let with_zero = fitted("1", Scale::Log, &[0.0, 2.0]);
        assert_eq!((with_zero.name.as_str(), with_zero.from), ("age", 0.0));
    }

    #[test]
    fn values_are_placed_in_order_and_ends_are_ends() {
        for scale in [Scale::Linear, Scale::Log] {
            let axis = fitted("1", scale, &[1.0, 10.0, 100.0]);
            let places = [1.0, 10.0, 100.0].map(|value| axis.map(&value, (0, 1000)));
            assert!(places.is_sorted() && places[0] >= 0 && places[2] <= 1000, "{places:?}");
            assert_eq!(axis.map(&axis.ends()[1], (0, 1000)), 1000);
        }
        let same = fitted("1", Scale::Auto, &[3.0, 3.0]);
        assert!(same.from < 3.0 && same.to > 3.0, "{same:?}");
    }
}
