//! Contests of laws as a table: a line per family of paths.

use std::io::{self, Write};

use freshline_lab::contest::{Contested, Entry};
use freshline_lab::scenario::Half;

/// The maximum ratio of a law's age to that of the best fixed rate in nearly all families.
const NEAR: f64 = 1.10;
/// The maximum ratio in every family.
const FAR: f64 = 1.30;
/// The maximum ratio to the better one of ACP+ and Lazy.
const OLDER: f64 = 1.05;
/// The minimum of Jain's index of equal sources.
const FAIR: f64 = 0.95;

/// Two header lines for the contests, with the laws of the first one.
pub(super) fn head(first: &Contested, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "true age, ms: mean and 99th percentile over time")?;
    let names: String = first.laws.iter().map(|law| format!("{:^21}", law.law)).collect();
    writeln!(out, "{:43}{names}{:^28}{:>8}{:>10}{:>7}", "", "best fixed rate", "over", "over", "")?;
    let columns = "     mean ±      p99 ".repeat(first.laws.len());
    writeln!(
        out,
        "{:43}{columns}     mean     p99     rate   {:>8}{:>10}{:>7}",
        "", "best", "acp+,lazy", "jain"
    )
}

pub(super) fn line(name: &str, contest: &Contested, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{name:33} {:9}", contest.half.name())?;
    for Entry { age_mean, age_ci95, age_p99, .. } in &contest.laws {
        let ci95 = age_ci95.map_or(String::new(), |half| format!("{:.1}", half * 1e3));
        write!(out, "{:9.2} {ci95:>4} {:6.1}", age_mean * 1e3, age_p99 * 1e3)?;
    }
    let Entry { age_mean, age_p99, updates, .. } = &contest.best;
    write!(out, "{:9.2} {:7.1} {:8.1}/s", age_mean * 1e3, age_p99 * 1e3, updates)?;
    let published = or_dash(contest.over_published());
    let jain = or_dash(contest.laws[0].jain);
    writeln!(out, "{:8.3}{published:>10}{jain:>7}", contest.over_best())
}

fn or_dash(figure: Option<f64>) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.3}"))
}

/// Prints families with TCP: its goodput with each law, and the best fixed rate that leaves it as
/// much as Lazy does.
pub(super) fn alongside_tcp(named: &[(&str, &Contested)], out: &mut impl Write) -> io::Result<()> {
    let all: Vec<_> = named.iter().filter(|(_, it)| it.best.tcp.is_some()).collect();
    let Some((_, first)) = all.first() else { return Ok(()) };
    let law = &first.laws[0].law;
    writeln!(
        out,
        "\ngoodput of TCP, Mbit/s; polite: the best fixed rate that leaves it as much as lazy does"
    )?;
    let names: String = first.laws.iter().map(|law| format!("{:>9}", law.law)).collect();
    writeln!(
        out,
        "{:43}{names} {:>10} {:>14} {:>22} {:>12}",
        "",
        "best fixed",
        format!("{law}/lazy"),
        "polite fixed, age, ms",
        format!("{law}/polite")
    )?;
    for (name, contest) in all {
        write!(out, "{name:33} {:9}", contest.half.name())?;
        let goodput = |entry: &Entry| entry.tcp.unwrap_or(0.0) / 1e6;
        for law in &contest.laws {
            write!(out, "{:9.3}", goodput(law))?;
        }
        let polite = contest.polite.as_ref();
        let age = polite.map(|it| format!("{:.1}/s {:9.2}", it.updates, it.age_mean * 1e3));
        writeln!(
            out,
            " {:>10.3} {:>14} {:>22} {:>12}",
            goodput(&contest.best),
            or_dash(contest.tcp_over_lazy()),
            age.unwrap_or("-".to_owned()),
            or_dash(polite.map(|_| contest.over_polite()))
        )?;
    }
    Ok(())
}

/// A target for a number of each family.
struct Target {
    what: String,
    /// The number; `None` if it does not apply.
    figure: fn(&Contested) -> Option<f64>,
    bound: f64,
    /// Whether the bound is a maximum, not a minimum.
    is_ceiling: bool,
}

fn targets(law: &str) -> [Target; 5] {
    let age = |bound, of: &str, figure: fn(&Contested) -> Option<f64>| Target {
        what: format!("within {bound:.2} of {of}"),
        figure,
        bound,
        is_ceiling: true,
    };
    let polite: fn(&Contested) -> Option<f64> = |contest| Some(contest.over_polite());
    let floor = |bound, what: String, figure| Target { what, figure, bound, is_ceiling: false };
    [
        age(NEAR, "the best fixed rate", polite),
        age(FAR, "the best fixed rate", polite),
        age(OLDER, "the better of acp+ and lazy", Contested::over_published),
        floor(FAIR, format!("Jain's index from {FAIR}"), |contest| contest.laws[0].jain),
        floor(1.0, format!("TCP has with {law} as much as with lazy"), Contested::tcp_over_lazy),
    ]
}

/// The number of families of each half that meet each target, and the families that do not.
pub(super) fn summary(named: &[(&str, &Contested)], out: &mut impl Write) -> io::Result<()> {
    for half in [Half::Training, Half::HeldOut] {
        let mut of_half = named.iter().filter(|(_, contest)| contest.half == half).peekable();
        let Some((_, first)) = of_half.peek() else { continue };
        let law = first.laws[0].law.clone();
        let of_half: Vec<_> = of_half.collect();
        writeln!(out, "\n{law}, {}: {} families", half.name(), of_half.len())?;
        for Target { what, figure, bound, is_ceiling } in targets(&law) {
            let known: Vec<_> =
                of_half.iter().filter_map(|(name, it)| Some((*name, figure(it)?))).collect();
            let mut missed = known.clone();
            missed.retain(|(_, figure)| (*figure > bound) == is_ceiling && *figure != bound);
            missed
                .sort_by(|(_, a), (_, b)| if is_ceiling { b.total_cmp(a) } else { a.total_cmp(b) });
            writeln!(out, "  {:>3} of {:>3} {what}", known.len() - missed.len(), known.len())?;
            for (name, figure) in missed {
                writeln!(out, "             {figure:7.3} {name}")?;
            }
        }
    }
    if named.iter().any(|(_, contest)| contest.polite.is_some()) {
        writeln!(
            out,
            "\nAlongside TCP the fixed rate is the polite one, if any leaves TCP as much as lazy does."
        )?;
    }
    Ok(())
}
