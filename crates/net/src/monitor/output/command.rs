//! A command that is run for fresh states.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Bound;
use std::process::Stdio;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use freshline_core::session::SourceKey;
use freshline_core::unit::Time;

use super::{Record, Replaced, add_one};

/// Runs the command for one state after the other, each time for the newest of a source. Also the
/// last state of a source that has left is handed on, unless another source has taken its place.
pub struct Command {
    shared: Arc<Shared>,
    runner: JoinHandle<()>,
    replaced: Replaced,
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

#[derive(Default)]
struct Jobs {
    /// By the sources' indices.
    newest: BTreeMap<usize, Job>,
    /// Whose turn was last; the next is of the source after it.
    last: Option<usize>,
    finished: bool,
}

struct Job {
    source: String,
    seq: u64,
    age_ms: Option<f64>,
    payload: Vec<u8>,
}

impl Command {
    pub(super) fn new(command: String, replaced: Replaced) -> Self {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let runner = std::thread::spawn(move || {
            while let Some(job) = theirs.next() {
                if let Err(error) = run(&command, &job) {
                    tracing::warn!("cannot run `{command}`: {error}");
                }
            }
        });
        Self { shared, runner, replaced }
    }

    pub(super) fn fresh(&mut self, now: Time, source: SourceKey, record: &Record) {
        let session = || record.session.to_string();
        let job = Job {
            source: if record.name.is_empty() { session() } else { record.name.to_string() },
            seq: record.newest_seq,
            age_ms: record.age.age(now).map(|age| age.as_millis_f64()),
            payload: record.payload.clone(),
        };
        if self.shared.change(|jobs| jobs.newest.insert(source.index(), job)).is_some() {
            add_one(&self.replaced);
        }
    }

    pub(super) fn finish(self) {
        self.shared.change(|jobs| jobs.finished = true);
        let _ = self.runner.join();
    }
}

impl Jobs {
    /// The newest state of one source after the other, so that a fast source holds up no other.
    fn take(&mut self) -> Option<Job> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.newest.range((after, Bound::Unbounded)).chain(&self.newest).next();
        self.last = next.map(|(index, _)| *index);
        self.newest.remove(&self.last?)
    }
}

impl Shared {
    fn change<T>(&self, change: impl FnOnce(&mut Jobs) -> T) -> T {
        let changed = change(&mut self.jobs.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_one();
        changed
    }

    /// Waits for the next job; `None` when all are done and no more will come.
    fn next(&self) -> Option<Job> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match jobs.take() {
                Some(job) => return Some(job),
                None if jobs.finished => return None,
                None => jobs = self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

fn run(command: &str, job: &Job) -> std::io::Result<()> {
    let mut child = std::process::Command::new("sh")
        .args(["-c", command])
        .env("FRESHLINE_SOURCE", &job.source)
        .env("FRESHLINE_SEQ", job.seq.to_string())
        .env("FRESHLINE_AGE_MS", job.age_ms.map_or(String::new(), |age| format!("{age:.3}")))
        .stdin(Stdio::piped())
        .stdout(Stdio::inherit())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input is welcome to.
        let _ = stdin.write_all(&job.payload);
    }
    let status = child.wait()?;
    if !status.success() {
        tracing::warn!("`{command}` failed with {status} for {}", job.source);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_source_does_not_hold_up_the_others() {
        let job = |seq| Job { source: String::new(), seq, age_ms: None, payload: Vec::new() };
        let mut jobs = Jobs::default();
        let mut taken = Vec::new();
        for index in [1, 2, 3] {
            jobs.newest.insert(index, job(index as u64));
        }
        for _ in 0..6 {
            taken.extend(jobs.take().map(|job| job.seq));
            jobs.newest.insert(1, job(1));
        }
        assert_eq!(taken, [1, 2, 3, 1, 1, 1]);
    }
}
