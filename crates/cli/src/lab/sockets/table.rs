//! The comparison as a table in Markdown, a row per family.

use std::io::{self, Write};

use super::order::{Compared, Figure, Figures, Order, Pair, Verdict};

pub(super) fn head(laws: &[&str], out: &mut impl Write) -> io::Result<()> {
    write!(out, "| family | sources |")?;
    for law in laws {
        write!(out, " {law}: lab | sockets |")?;
    }
    writeln!(out, " order | late, ms |")?;
    write!(out, "|---|---:|")?;
    laws.iter().try_for_each(|_| write!(out, "---:|---:|"))?;
    writeln!(out, "---|---:|")
}

pub(super) fn row(compared: &Compared, out: &mut impl Write) -> io::Result<()> {
    let name = compared.family.rsplit('/').next().unwrap_or_default();
    write!(out, "| {name} | {} |", compared.sources)?;
    for Figures { lab, sockets, .. } in &compared.laws {
        write!(out, " {} | {} |", age(lab), age(sockets))?;
    }
    writeln!(out, " {} | {:.2} |", order(&compared.pairs), compared.late_p99_ms)
}

/// The number of pairs of laws with each order.
pub(super) fn sum(pairs: &[Pair], out: &mut impl Write) -> io::Result<()> {
    let count = |verdict| pairs.iter().filter(|pair| pair.verdict == verdict).count();
    writeln!(
        out,
        "\nMean true ages in ms. {} pairs of laws: {} in the lab's order, {} ties, {} in the other order.",
        pairs.len(),
        count(Verdict::Same),
        count(Verdict::Tie),
        count(Verdict::Differs)
    )
}

fn age(figure: &Figure) -> String {
    let ci95 = figure.age_ci95_ms.map_or(String::new(), |half| format!(" ± {half:.1}"));
    format!("{:.1}{ci95}", figure.age_mean_ms)
}

/// `same`, or the pairs with another order.
fn order(pairs: &[Pair]) -> String {
    let other = pairs.iter().filter_map(|pair| {
        let [first, second] = pair.laws;
        let what = match (pair.verdict, pair.lab, pair.sockets) {
            (Verdict::Same, ..) => return None,
            (Verdict::Differs, Order::First, _) => "differs, the first is fresher in the lab",
            (Verdict::Differs, ..) => "differs, the second is fresher in the lab",
            (Verdict::Tie, Order::Tie, Order::Tie) => "tie",
            (Verdict::Tie, Order::Tie, _) => "tie in the lab",
            (Verdict::Tie, ..) => "tie over sockets",
        };
        Some(format!("{first}, {second}: {what}"))
    });
    let other: Vec<_> = other.collect();
    if other.is_empty() { "same".to_owned() } else { other.join("; ") }
}
