//! Age against rate in plain text: the bowl.

use std::fmt;

const COLUMNS: usize = 64;
const ROWS: usize = 14;

/// Ages above this multiple of the minimum are drawn at the upper edge: they come from queues, and
/// their height would flatten the rest.
const TALLEST: f64 = 2.0;

/// The kind of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Rate,
    Best,
    Law,
}

impl Mark {
    fn symbol(self) -> char {
        match self {
            Self::Rate => '·',
            Self::Best => 'o',
            Self::Law => '+',
        }
    }
}

/// A drawn chart: rates on a logarithmic scale from left to right, ages upwards.
#[derive(Debug)]
pub(super) struct Chart {
    rows: Vec<Vec<char>>,
    /// The ages at the lower and upper edge, in ms.
    ages: (f64, f64),
    /// The rates at the left and right edge, in updates/s.
    rates: (f64, f64),
}

impl Chart {
    /// Draws (updates/s, ms, mark); later marks cover earlier ones. `None` without marks.
    pub(super) fn of(marks: &[(f64, f64, Mark)]) -> Option<Self> {
        let bounds = |values: &mut dyn Iterator<Item = f64>| {
            values.fold(None, |bounds: Option<(f64, f64)>, value| {
                let (low, high) = bounds.unwrap_or((value, value));
                Some((low.min(value), high.max(value)))
            })
        };
        let rates = bounds(&mut marks.iter().map(|mark| mark.0))?;
        let (lowest, highest) = bounds(&mut marks.iter().map(|mark| mark.1))?;
        let top = highest.min(lowest * TALLEST);
        let mut rows = vec![vec![' '; COLUMNS]; ROWS];
        for (rate, age, mark) in marks {
            let x = place(rate.ln(), (rates.0.ln(), rates.1.ln()), COLUMNS);
            let y = place(age.min(top), (lowest, top), ROWS);
            rows[ROWS - 1 - y][x] = if *age > top { '^' } else { mark.symbol() };
        }
        Some(Self { rows, ages: (lowest, top), rates })
    }
}

/// The cell of `cells` in which `value` lies.
fn place(value: f64, (low, high): (f64, f64), cells: usize) -> usize {
    let fraction = if high > low { (value - low) / (high - low) } else { 0.5 };
    ((fraction * (cells - 1) as f64).round() as usize).min(cells - 1)
}

impl fmt::Display for Chart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "mean age     · a fixed rate   o the best of them   + a law   ^ beyond")?;
        for (index, row) in self.rows.iter().enumerate() {
            let label = match index {
                0 => format!("{:.1} ms", self.ages.1),
                index if index == ROWS - 1 => format!("{:.1} ms", self.ages.0),
                _ => String::new(),
            };
            let row: String = row.iter().collect();
            writeln!(f, "{label:>11} |{}", row.trim_end())?;
        }
        writeln!(f, "{:>11} +{}", "", "-".repeat(COLUMNS))?;
        let (left, right) = (format!("{:.1}/s", self.rates.0), format!("{:.1}/s", self.rates.1));
        writeln!(f, "{:>12} {left}{right:>width$}", "", width = COLUMNS - left.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_lies_at_the_bottom_and_queues_at_the_top() {
        let marks = [
            (10.0, 70.0, Mark::Rate),
            (100.0, 40.0, Mark::Best),
            (1000.0, 900.0, Mark::Rate),
            (90.0, 41.0, Mark::Law),
        ];
        let drawn = Chart::of(&marks).unwrap().to_string();
        let lines: Vec<_> = drawn.lines().collect();
        assert!(lines[1].starts_with("    80.0 ms |") && lines[1].ends_with('^'), "{drawn}");
        let bottom = lines[ROWS];
        assert!(bottom.starts_with("    40.0 ms |") && bottom.ends_with("+ o"), "{drawn}");
        assert!(lines[ROWS + 2].ends_with("1000.0/s"), "{drawn}");
    }

    #[test]
    fn one_point_is_a_chart_and_none_is_not() {
        assert!(Chart::of(&[]).is_none());
        let chart = Chart::of(&[(1.0, 0.0, Mark::Best)]).unwrap();
        assert!(chart.to_string().contains('o'));
    }
}
