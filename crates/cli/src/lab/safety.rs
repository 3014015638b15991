//! Safety sweeps as a table: a line per violation, and their numbers by category and law.

use std::io::{self, Write};

use freshline_lab::safety::{Figures, Judged, Safety, Violation};

/// Prints a line per violation: the point, the law and the value beyond its bound.
pub(super) fn violations(safety: &Safety, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "seed {}, {} points", safety.seed, safety.points.len())?;
    writeln!(
        out,
        "{:>5} {:<9} {:<12} {:<8} {:<9} {:>9}  paths",
        "point", "half", "category", "law", "violation", "figure"
    )?;
    for Judged { point, laws } in &safety.points {
        for law in laws {
            for violation in &law.violations {
                let figure = violation.figure(law).unwrap_or(f64::NAN);
                writeln!(
                    out,
                    "{:>5} {:<9} {:<12} {:<8} {:<9} {figure:>9.3}  {}",
                    point.number,
                    point.half.name(),
                    point.category,
                    law.law,
                    violation.name(),
                    point.describe()
                )?;
            }
        }
    }
    Ok(())
}

/// For each law and category: the number of points, and of each kind of violation the count and the
/// worst value; then the same for the load over the whole measured time.
pub(super) fn summary(safety: &Safety, out: &mut impl Write) -> io::Result<()> {
    let [overload, slowest, jain] = Violation::ALL.map(|it| match it {
        Violation::Overload => format!("overload > {}", it.bound()),
        Violation::Slowest | Violation::Jain => format!("{} < {}", it.name(), it.bound()),
    });
    let kept = format!("load > {}", Violation::Overload.bound());
    writeln!(
        out,
        "\n{:<8} {:<12} {:>6} {:>8} {overload:>20} {slowest:>20} {jain:>20} {kept:>20}",
        "law", "category", "points", "violated"
    )?;
    let Some(first) = safety.points.first() else { return Ok(()) };
    let mut categories: Vec<&str> = Vec::new();
    for Judged { point, .. } in &safety.points {
        if categories.last() != Some(&&*point.category) {
            categories.push(&point.category);
        }
    }
    for (law, named) in first.laws.iter().enumerate() {
        for category in categories.iter().copied().map(Some).chain([None]) {
            let points = safety.points.iter();
            let meant = points.filter(|it| category.is_none_or(|name| name == it.point.category));
            let figures: Vec<&Figures> = meant.map(|it| &it.laws[law]).collect();
            let violated = figures.iter().filter(|it| !it.violations.is_empty()).count();
            write!(
                out,
                "{:<8} {:<12} {:>6} {violated:>8}",
                named.law,
                category.unwrap_or("all"),
                figures.len()
            )?;
            for violation in Violation::ALL {
                write!(out, " {:>20}", worst(violation, &figures))?;
            }
            writeln!(out, " {:>20}", worst_load(&figures))?;
        }
    }
    Ok(())
}

/// The number of points that violate a bound, and the worst value of all of them.
fn worst(violation: Violation, figures: &[&Figures]) -> String {
    let count = figures.iter().filter(|it| it.violations.contains(&violation)).count();
    let all = figures.iter().filter_map(|it| violation.figure(it));
    count_and_worst(count, all.reduce(|a, b| if violation.is_worse(b, a) { b } else { a }))
}

/// The number of points that are overloaded over the whole measured time, and the maximum load.
fn worst_load(figures: &[&Figures]) -> String {
    let loads = || figures.iter().filter_map(|it| it.load);
    let count =
        loads().filter(|load| Violation::Overload.is_worse(*load, Violation::Overload.bound()));
    count_and_worst(count.count(), loads().reduce(f64::max))
}

fn count_and_worst(count: usize, worst: Option<f64>) -> String {
    worst.map_or("-".to_owned(), |worst| format!("{count}, worst {worst:.3}"))
}
