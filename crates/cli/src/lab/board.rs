//! Contests of laws as a table: a line a family of paths.

use std::io::{self, Write};

use freshline_lab::contest::{Contested, Entry, LAWS};

/// How far a law may be above the best fixed rate in nearly all families.
const NEAR: f64 = 1.10;
/// And in every one.
const FAR: f64 = 1.30;
/// How far above the better one of the other laws.
const OLDER: f64 = 1.05;
/// What Jain's index of equal sources shall be at least.
const FAIR: f64 = 0.99;

pub(super) fn head(out: &mut impl Write) -> io::Result<()> {
    let of = |law: &str| format!("{law:^21}");
    let laws: Vec<_> = LAWS.into_iter().map(of).collect();
    writeln!(out, "true age, ms: mean and what 99 % of the time does not exceed")?;
    let names = laws.join("");
    writeln!(out, "{:32}{names}{:^28}{:>8}{:>8}{:>7}", "", "best fixed rate", "over", "over", "")?;
    let columns = "     mean ±      p99 ".repeat(LAWS.len());
    writeln!(
        out,
        "{:32}{columns}     mean     p99     rate   {:>8}{:>8}{:>7}",
        "", "best", "others", "jain"
    )
}

pub(super) fn line(name: &str, contest: &Contested, out: &mut impl Write) -> io::Result<()> {
    write!(out, "{name:32}")?;
    for Entry { age_mean, age_ci95, age_p99, .. } in &contest.laws {
        let ci95 = age_ci95.map_or(String::new(), |half| format!("{:.1}", half * 1e3));
        write!(out, "{:9.2} {ci95:>4} {:6.1}", age_mean * 1e3, age_p99 * 1e3)?;
    }
    let Entry { age_mean, age_p99, updates, .. } = &contest.best;
    write!(out, "{:9.2} {:7.1} {:8.1}/s", age_mean * 1e3, age_p99 * 1e3, updates)?;
    let jain = contest.laws[0].jain.map_or("-".to_owned(), |jain| format!("{jain:.3}"));
    writeln!(out, "{:8.3}{:8.3}{jain:>7}", contest.over_best(), contest.over_others())
}

/// How many families meet what the law is held to.
pub(super) fn summary(contests: &[&Contested], out: &mut impl Write) -> io::Result<()> {
    let all = contests.len();
    let count = |holds: &dyn Fn(&Contested) -> bool| {
        contests.iter().filter(|contest| holds(contest)).count()
    };
    let law = LAWS[0];
    let near = count(&|contest| contest.over_best() <= NEAR);
    let far = count(&|contest| contest.over_best() <= FAR);
    let older = count(&|contest| contest.over_others() <= OLDER);
    let jains = || contests.iter().filter_map(|contest| contest.laws[0].jain);
    let (alike, fair) = (jains().count(), jains().filter(|jain| *jain >= FAIR).count());
    writeln!(
        out,
        "\n{law} of {all}: {near} within {NEAR:.2} of the best fixed rate, {far} within {FAR:.2};"
    )?;
    writeln!(
        out,
        "{older} not more than {OLDER:.2} of the better other law; \
         {fair} of {alike} with sources alike have a Jain's index from {FAIR} on"
    )
}
