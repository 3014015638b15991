//! A command that is run for fresh states.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Bound;
use std::process::Stdio;
use std::sync::Arc;
use std::thread::JoinHandle;

use freshline_core::session::SourceKey;
use freshline_core::unit::Time;

use super::Record;
use super::handover::{Handover, Pending};

/// Runs the command for one state after the other, each time for the newest of a source. Also the
/// last state of a source that has left is handed on, unless another source has taken its place.
pub(super) struct Command {
    jobs: Arc<Handover<Jobs>>,
    runner: JoinHandle<()>,
}

#[derive(Default)]
struct Jobs {
    /// By the sources' indices.
    newest: BTreeMap<usize, Job>,
    /// Whose turn was last; the next is of the source after it.
    last: Option<usize>,
}

struct Job {
    source: String,
    seq: u64,
    age_ms: Option<f64>,
    payload: Vec<u8>,
}

impl Command {
    pub(super) fn new(command: String) -> Self {
        let jobs = Arc::default();
        let theirs: Arc<Handover<Jobs>> = Arc::clone(&jobs);
        let runner = std::thread::spawn(move || {
            while let Some(job) = theirs.next() {
                if let Err(error) = run(&command, &job) {
                    tracing::warn!("cannot run `{command}`: {error}");
                }
            }
        });
        Self { jobs, runner }
    }

    /// Whether a state that waited was replaced.
    pub(super) fn fresh(&mut self, now: Time, source: SourceKey, record: &Record) -> bool {
        let session = || record.session.to_string();
        let job = Job {
            source: if record.name.is_empty() { session() } else { record.name.to_string() },
            seq: record.newest_seq,
            age_ms: record.age.age(now).map(|age| age.as_millis_f64()),
            payload: record.payload.clone(),
        };
        self.jobs.put(|jobs| jobs.newest.insert(source.index(), job)).is_some()
    }

    pub(super) fn finish(self) {
        self.jobs.finish();
        let _ = self.runner.join();
    }
}

impl Pending for Jobs {
    type Item = Job;

    /// The newest state of one source after the other, so that a fast source holds up no other.
    fn take(&mut self) -> Option<Job> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.newest.range((after, Bound::Unbounded)).chain(&self.newest).next();
        self.last = next.map(|(index, _)| *index);
        self.newest.remove(&self.last?)
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
