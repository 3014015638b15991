//! Rows of real time that a busy machine may spoil: they are measured again, and the test says so
//! if the result is undecided.

use std::{iter, thread};

/// How often a row may be measured.
pub(crate) const TRIES: usize = 3;

/// The result of a try.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Verdict {
    AsWanted,
    Otherwise,
    /// Not as wanted, by an emulator that was late.
    Unknown,
}

impl Verdict {
    /// The verdict on a try with an emulator that was `late` by this measure (the 99th percentile
    /// of the packets' lateness in ms, or a fraction of frames); beyond `timely` the emulated path
    /// was not the intended one.
    pub(crate) fn of(is_as_wanted: bool, late: f64, timely: f64) -> Self {
        match is_as_wanted {
            true => Self::AsWanted,
            false if late > timely => Self::Unknown,
            false => Self::Otherwise,
        }
    }

    /// Whether this or another try meets the requirement; also true if all tries are undecided,
    /// which is printed.
    pub(crate) fn or_again(self, again: impl FnMut() -> Self) -> bool {
        let mut tries = Vec::new();
        let all = iter::once(self).chain(iter::repeat_with(again)).take(TRIES);
        let is_ever = all.inspect(|verdict| tries.push(*verdict)).any(|one| one == Self::AsWanted);
        if !is_ever && !tries.contains(&Self::Otherwise) {
            println!("skipped: needs a machine that keeps its time, as this one did in no try");
            return true;
        }
        is_ever
    }
}

/// The rows that failed in each try. In the first try, `at_once` rows are measured at the same
/// time; rows that fail then are measured again, one at a time.
#[allow(dead_code, reason = "for tests whose rows do not disturb each other")]
pub(crate) fn failed<T: Sync>(
    rows: &[T],
    at_once: usize,
    measure: impl Fn(&T) -> Verdict + Sync,
) -> Vec<&T> {
    let together = |rows: &[T]| -> Vec<Verdict> {
        thread::scope(|scope| {
            let running: Vec<_> = rows.iter().map(|row| scope.spawn(|| measure(row))).collect();
            running.into_iter().map(|row| row.join().unwrap()).collect()
        })
    };
    let first: Vec<_> = rows.chunks(at_once).flat_map(together).collect();
    let tried = rows.iter().zip(first);
    tried.filter(|(row, first)| !first.or_again(|| measure(row))).map(|(row, _)| row).collect()
}
