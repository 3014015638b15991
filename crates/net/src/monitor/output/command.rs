//! A command that is run for fresh states.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};

use freshline_core::session::{Alarm, SourceKey};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::KeyText;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use super::groups::Groups;
use super::handover::Handover;
use super::held::{Held, shown_source};
use super::job_key::Key;
use super::jobs::{Ended, Job, Jobs, Task};
use super::records::{Given, RETRY, Ticket};
use crate::clock::Clock;

/// Maximum number of commands that run at the same time, each for another source: a slow command
/// does not delay those of other sources.
const RUNNERS: usize = 8;

/// Maximum number of bytes of pending states: as many as a monitor holds in parts by default. Beyond it the
/// longest pending state is dropped, so that sources with small states keep theirs.
const PENDING_BYTES: usize = 256 << 20;

/// How long running commands may go on after a signal ends the monitor.
const GRACE: Span = Span::from_secs(2);

/// How often running commands are checked for an earlier end.
const LOOK: Span = Span::from_millis(100);

/// Runs the command for fresh states: per source for one state after the other, each time for the
/// newest. The last state of a source that has left is handed on, too, unless another source has
/// taken its place. A command that exceeds its time limit is killed.
pub(super) struct Command {
    jobs: Arc<Handover<Jobs>>,
    runners: Vec<JoinHandle<()>>,
    limit: Span,
    /// Makes keys from the names in alarms.
    names: RandomState,
}

impl Command {
    /// Runs `command` by `sh -c`, each time for no longer than `limit`. Its output goes to standard
    /// output, or to standard error.
    pub(super) fn new(command: String, limit: Span, to_stderr: bool) -> Self {
        let jobs: Arc<Handover<Jobs>> = Arc::default();
        let command: Arc<str> = command.into();
        let runner = |_| {
            let (jobs, command) = (Arc::clone(&jobs), Arc::clone(&command));
            std::thread::spawn(move || {
                while let Some(Task { key, job, until }) = jobs.next() {
                    let limit = until.map_or(limit, |at| limit.min(at.since(Clock::new().now())));
                    let ending = Arc::clone(&jobs);
                    let deadline = move || ending.put(|jobs| jobs.until);
                    let ran = run(&command, &job, limit, deadline, to_stderr, &RUNNING);
                    if let Err(error) = &ran {
                        tracing::warn!("cannot run `{command}`: {error}");
                    }
                    let ended = ran.unwrap_or_default();
                    // A signal may be ending the monitor, too, which does not know it yet.
                    if ended.is_none()
                        && job.ticket.as_ref().is_some_and(|ticket| !ticket.is_over())
                    {
                        thread::sleep(RETRY);
                    }
                    jobs.put(|jobs| jobs.end(key, job, ended));
                }
            })
        };
        let runners = (0..RUNNERS).map(runner).collect();
        Self { runners, jobs, limit, names: RandomState::new() }
    }

    /// Returns the indices of the sources whose pending states were replaced by another one.
    pub(super) fn fresh(
        &mut self,
        now: Time,
        source: SourceKey,
        held: Held<'_>,
        fresh_until: Option<Time>,
    ) -> Vec<usize> {
        let job = Job {
            source: held.source(),
            topic: held.topic_name().map(str::to_owned),
            environment: vec![
                ("FRESHLINE_KEY", held.key().unwrap_or_default()),
                ("FRESHLINE_REMOVED", if held.is_removed() { "1" } else { "" }.to_owned()),
                ("FRESHLINE_SEQ", held.record.newest_seq.to_string()),
            ],
            generated_at: held.generated_at(),
            age: held.age(now),
            received_at: now,
            fresh_until,
            payload: held.payload().unwrap_or_default().to_vec(),
            ticket: None,
        };
        let key = Key { source: source.index(), which: held.which() };
        self.jobs.put(|jobs| jobs.insert(key, job, PENDING_BYTES))
    }

    /// A record: it runs after the records of its source that were given before. Returns the same
    /// as [`Command::fresh`].
    pub(super) fn record(&mut self, now: Time, given: &Given<'_>, ticket: Ticket) -> Vec<usize> {
        let Given { record, topic, taken, .. } = *given;
        let source = given.source_name();
        // A source that comes back under another index continues after its earlier records. States
        // have turns of their own.
        let stream = record.name.is_empty().then_some(taken.cursor.stream.0);
        let hash = self.names.hash_one((&*record.name, stream, "records")) as usize / 2;
        let job = Job {
            source,
            topic: Some(topic.to_owned()),
            environment: vec![
                ("FRESHLINE_RECORD", taken.number.to_string()),
                ("FRESHLINE_SEQ", record.newest_seq.to_string()),
            ],
            generated_at: taken.generated_at,
            age: taken.age.map(|age| age.estimate),
            received_at: now,
            fresh_until: None,
            payload: taken.bytes.clone(),
            ticket: Some(ticket),
        };
        let key = Key { source: hash, which: given.which() };
        self.jobs.put(|jobs| jobs.insert(key, job, PENDING_BYTES))
    }

    /// A topic has become stale, or fresh again. Both run if both are pending, in their order.
    pub(super) fn alarm(&mut self, now: Time, alarm: &Alarm) {
        let source = shown_source(&alarm.name, alarm.label);
        let number = if alarm.topic.is_empty() { alarm.number } else { 0 };
        let hash = self.names.hash_one((&source, number, &alarm.topic, &alarm.key));
        // Half of all numbers, so that each has a successor.
        let key = Key::of_alarm(hash as usize / 2, alarm.is_stale);
        let state = if alarm.is_stale { "stale" } else { "fresh" };
        let ms = |span: Span| format!("{:.3}", span.as_millis_f64());
        let job = Job {
            source,
            topic: Some(alarm.topic.to_string()),
            environment: vec![
                ("FRESHLINE_KEY", KeyText(&alarm.key).to_string()),
                ("FRESHLINE_STATE", state.to_owned()),
                (
                    "FRESHLINE_UNCERTAINTY_MS",
                    alarm.age.map(|age| ms(age.uncertainty)).unwrap_or_default(),
                ),
                ("FRESHLINE_MAX_AGE_MS", ms(alarm.max_age)),
            ],
            generated_at: now,
            age: alarm.age.map(|age| age.estimate),
            received_at: now,
            fresh_until: None,
            payload: Vec::new(),
            ticket: None,
        };
        self.jobs.put(|jobs| jobs.insert_alarm(key, job));
    }

    /// Runs pending jobs, all together within the limit of one command, and drops the rest. Has no
    /// effect after it or [`Command::abandon`] was called.
    pub(super) fn finish(&self) {
        let until = Clock::new().now() + self.limit;
        self.jobs.put(|jobs| _ = jobs.until.get_or_insert(until));
        self.jobs.finish();
    }

    /// Drops pending jobs, and ends running commands once [`GRACE`] is over.
    pub(super) fn abandon(&self) {
        let until = Clock::new().now() + GRACE;
        self.jobs.put(|jobs| {
            jobs.until = Some(jobs.until.map_or(until, |before| before.min(until)));
            jobs.drop_pending();
        });
        self.jobs.finish();
    }

    /// Whether all commands have ended.
    pub(super) fn is_over(&self) -> bool {
        self.runners.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all commands have ended.
    pub(super) fn join(self) {
        for runner in self.runners {
            let _ = runner.join();
        }
        let (dropped, too_old) = self.jobs.put(|jobs| (jobs.dropped, jobs.too_old));
        if too_old > 0 {
            tracing::warn!("{too_old} states became too old before the command could take them");
        }
        if dropped > 0 {
            tracing::warn!("the newest states of {dropped} sources did not reach the command");
        }
    }
}

/// The process groups of all running commands.
static RUNNING: Groups = Groups::new();

/// Kills all running commands of this process's monitors, and starts no more: for a process that
/// exits without waiting for them.
pub fn end_all() {
    RUNNING.end();
}

/// Signals that end a command from outside before its work is done.
const KILLED: [i32; 4] =
    [Signal::SIGTERM as i32, Signal::SIGINT as i32, Signal::SIGHUP as i32, Signal::SIGKILL as i32];

/// Runs a command for no longer than `limit`, and until `deadline` once that is set.
fn run(
    command: &str,
    job: &Job,
    limit: Span,
    deadline: impl Fn() -> Option<Time> + Send + 'static,
    to_stderr: bool,
    groups: &'static Groups,
) -> io::Result<Option<Ended>> {
    // If the system has no thread for the watchdog, the command is not started.
    let (started, group) = channel();
    let (ended, end) = channel::<()>();
    let watchdog = thread::Builder::new().spawn(move || {
        let Ok(group) = group.recv() else { return Ended::Itself };
        let clock = Clock::new();
        let last = clock.now() + limit;
        loop {
            let now = clock.now();
            let deadline = deadline();
            let last = deadline.map_or(last, |deadline| deadline.min(last));
            if now >= last {
                let ended = if deadline.is_some() { Ended::ByEnd } else { Ended::ByLimit };
                return if groups.kill(group) { ended } else { Ended::Itself };
            }
            if end.recv_timeout(last.since(now).min(LOOK).into()) != Err(RecvTimeoutError::Timeout)
            {
                return Ended::Itself;
            }
        }
    })?;
    let age = job.age.map(|age| age + Clock::new().now().since(job.received_at));
    let age_ms = age.map_or(String::new(), |age| format!("{:.3}", age.as_millis_f64()));
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", command])
        .env("FRESHLINE_SOURCE", &job.source)
        .env("FRESHLINE_TOPIC", job.topic.as_deref().unwrap_or_default())
        .envs(job.environment.iter().map(|(name, value)| (name, value)))
        .env("FRESHLINE_AGE_MS", age_ms)
        .stdin(Stdio::piped())
        .stdout(if to_stderr { Stdio::from(io::stderr()) } else { Stdio::inherit() });
    let (mut child, group) = groups.start(&mut shell)?;
    let _ = started.send(group);
    if let Some(mut stdin) = child.stdin.take() {
        // A command need not read its input.
        let _ = stdin.write_all(&job.payload);
    }
    // The wait does not release its number yet.
    let waited = waitid(Id::Pid(group), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
    groups.remove(group);
    let _ = ended.send(());
    waited?;
    let status = child.wait()?;
    let ended = watchdog.join().unwrap_or(Ended::Itself);
    if ended != Ended::Itself {
        tracing::warn!("`{command}` for {} exceeded its time limit and was ended", job.source);
    } else if !status.success() {
        tracing::warn!("`{command}` failed with {status} for {}", job.source);
    }
    let is_killed =
        ended == Ended::Itself && status.signal().is_some_and(|it| KILLED.contains(&it));
    Ok((!is_killed).then_some(ended))
}

#[cfg(test)]
impl Command {
    /// Queues states of `count` sources.
    pub(super) fn put_test_states(&self, count: usize) {
        self.jobs.put(|jobs| {
            jobs.newest.extend(
                (0..count)
                    .map(|index| (super::jobs::tests::key(index), super::jobs::tests::job(1))),
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::jobs::tests::{job, key};
    use super::*;

    #[test]
    fn the_age_is_that_at_the_commands_start_and_a_command_that_hangs_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("age");
        let late = Job { received_at: Clock::new().now() - Span::from_secs(3), ..job(1) };
        let command = format!("echo $FRESHLINE_AGE_MS > {}; sleep 30 & sleep 30", file.display());
        let began_at = Clock::new().now();
        run(&command, &late, Span::from_secs(3), || None, false, &RUNNING).unwrap();
        assert!(Clock::new().now().since(began_at) < Span::from_secs(25), "it was ended");
        let age: f64 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        assert!((3_005.0..25_000.0).contains(&age), "{age}");
    }

    #[test]
    fn the_end_takes_no_longer_than_one_command_however_many_states_are_pending() {
        let limit = Span::from_secs(1);
        let command = Command::new("sleep 60".into(), limit, false);
        command.jobs.put(|jobs| jobs.newest.extend((0..1_000).map(|index| (key(index), job(1)))));
        let began_at = Clock::new().now();
        command.finish();
        command.join();
        // One after the other they would take 125 s.
        assert!(Clock::new().now().since(began_at) < Span::from_secs(25));
    }

    #[test]
    fn a_pending_state_is_run_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("states");
        let words = format!("echo $FRESHLINE_SEQ >> {}", file.display());
        let command = Command::new(words, Span::from_secs(60), false);
        command.jobs.put(|jobs| jobs.newest.extend((0..20).map(|index| (key(index), job(1)))));
        command.finish();
        command.join();
        assert_eq!(std::fs::read_to_string(file).unwrap().lines().count(), 20);
    }

    #[test]
    fn a_monitor_that_a_signal_ends_drops_pending_states_and_ends_commands_soon() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("states");
        let words = format!("echo $FRESHLINE_SEQ >> {}; sleep 60", file.display());
        let command = Command::new(words, Span::from_secs(120), false);
        let lines = || std::fs::read_to_string(&file).unwrap_or_default().lines().count();
        command.jobs.put(|jobs| jobs.newest.extend((0..20).map(|index| (key(index), job(1)))));
        // The others of the runners wake one after the other.
        for _ in 0..RUNNERS {
            command.jobs.put(|_| ());
        }
        while lines() == 0 {
            thread::sleep(std::time::Duration::from_millis(5));
        }
        let jobs = Arc::clone(&command.jobs);
        let began_at = Clock::new().now();
        command.abandon();
        command.join();
        assert!(Clock::new().now().since(began_at) < Span::from_secs(50), "they were ended");
        let dropped = jobs.put(|jobs| jobs.dropped);
        assert!(dropped >= 20 - RUNNERS && dropped + lines() == 20, "{dropped} dropped");
    }

    #[test]
    fn a_forced_exit_ends_commands_with_all_that_they_started() {
        static GROUPS: Groups = Groups::new();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("began");
        let command = format!("echo > {}; sleep 60 & sleep 60", file.display());
        let began_at = Clock::new().now();
        let running = thread::spawn(move || {
            run(&command, &job(1), Span::from_secs(60), || None, false, &GROUPS)
        });
        while !file.exists() {
            assert!(Clock::new().now().since(began_at) < Span::from_secs(25), "it does not begin");
            thread::sleep(std::time::Duration::from_millis(5));
        }
        GROUPS.end();
        running.join().unwrap().unwrap();
        assert!(Clock::new().now().since(began_at) < Span::from_secs(50), "it was ended");
        let error = run("true", &job(1), Span::from_secs(60), || None, false, &GROUPS).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted, "none starts any more");
    }
}
