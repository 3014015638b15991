//! A command that is run for fresh states.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::ops::Bound::{Excluded, Included};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};

use freshline_core::session::{Alarm, SourceKey};
use freshline_core::unit::{Span, Time};
use freshline_core::wire::KeyText;
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use super::groups::Groups;
use super::handover::{Handover, Pending};
use super::held::{Held, shown_source};
use super::job_key::Key;
use crate::clock::Clock;
use crate::monitor::which::Which;

/// Maximum number of commands that run at the same time, each for another source: a slow one does not
/// hold up the others.
const RUNNERS: usize = 8;

/// Maximum number of bytes of pending states: as many as a monitor holds in parts by default. Beyond it the
/// longest pending state is dropped, so that sources with small states keep theirs.
const PENDING_BYTES: usize = 256 << 20;

/// Maximum number of pending states, and of alarms: beyond it one of the same source, or the alarm, is dropped.
const PENDING: usize = 1 << 16;

/// How long commands that run may go on once a signal ends the monitor.
const GRACE: Span = Span::from_secs(2);

/// How often it is looked whether a command has to end before its time.
const LOOK: Span = Span::from_millis(100);

/// Runs the command for fresh states, for one state of a source after the other, each time for its
/// newest. Also the last state of a source that has left is handed on, unless another source has
/// taken its place. A command that takes too long is killed.
pub(super) struct Command {
    jobs: Arc<Handover<Jobs>>,
    runners: Vec<JoinHandle<()>>,
    limit: Span,
    /// Makes keys of the names in alarms.
    names: RandomState,
}

#[derive(Default)]
struct Jobs {
    newest: BTreeMap<Key, Job>,
    /// The sum of the lengths of their states.
    bytes: usize,
    /// States that became too old before their turn.
    too_old: usize,
    /// Sources whose commands run.
    running: BTreeSet<usize>,
    /// Whose turn was last; the next is of the source after it.
    last: Option<usize>,
    /// The topic of each source whose turn was last.
    last_topics: BTreeMap<usize, Which>,
    /// When the monitor ends: all commands are over by then.
    until: Option<Time>,
    /// Jobs that were dropped since the monitor ended before their turn.
    dropped: usize,
}

struct Job {
    source: String,
    /// The topic's name, of a source with topics.
    topic: Option<String>,
    /// Further variables of the environment.
    environment: Vec<(&'static str, String)>,
    /// When the state was sampled, on the source's clock.
    generated_at: Time,
    /// The age of the state when it came, or when its age became known, and when that was.
    age: Option<Span>,
    received_at: Time,
    /// Until when it is fresh enough; `None` if for ever.
    fresh_until: Option<Time>,
    payload: Vec<u8>,
}

impl Command {
    /// Runs `command` by `sh -c`, each time for no longer than `limit`. What it prints
    /// goes to standard output, or to standard error.
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
                    if let Err(error) = run(&command, &job, limit, deadline, to_stderr, &RUNNING) {
                        tracing::warn!("cannot run `{command}`: {error}");
                    }
                    jobs.put(|jobs| jobs.end(key));
                }
            })
        };
        let runners = (0..RUNNERS).map(runner).collect();
        Self { runners, jobs, limit, names: RandomState::new() }
    }

    /// Gives the indices of the sources whose pending states were replaced by another one.
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
        };
        let key = Key { source: source.index(), which: held.which() };
        self.jobs.put(|jobs| jobs.insert(key, job, PENDING_BYTES))
    }

    /// A topic has become stale, or fresh again. Both run if both are pending, in their order.
    pub(super) fn alarm(&mut self, now: Time, alarm: &Alarm) {
        let source = shown_source(&alarm.name, alarm.label);
        let number = if alarm.topic.is_empty() { alarm.number } else { 0 };
        let hash = self.names.hash_one((&source, number, &alarm.topic, &alarm.key));
        // Half of all numbers, so that each has a next one.
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
        };
        self.jobs.put(|jobs| jobs.insert_alarm(key, job));
    }

    /// Runs what is pending, all together within the limit of one command, and drops the rest. Without
    /// effect after it or [`Command::abandon`] was called.
    pub(super) fn finish(&self) {
        let until = Clock::new().now() + self.limit;
        self.jobs.put(|jobs| _ = jobs.until.get_or_insert(until));
        self.jobs.finish();
    }

    /// Drops what is pending, and ends commands that run once [`GRACE`] is over.
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
            tracing::warn!("the newest states of {dropped} sources did not get to the command");
        }
    }
}

/// A command to run.
struct Task {
    key: Key,
    job: Job,
    /// When it has to be over, if the monitor ends.
    until: Option<Time>,
}

impl Jobs {
    /// Gives the indices of the sources whose states were replaced, or dropped as there are more than `room`
    /// bytes.
    fn insert(&mut self, key: Key, job: Job, room: usize) -> Vec<usize> {
        let mut replaced = Vec::new();
        self.bytes += job.payload.len();
        let generated_at = job.generated_at;
        if let Some(before) = self.newest.insert(key.clone(), job) {
            self.bytes -= before.payload.len();
            replaced.extend((before.generated_at != generated_at).then_some(key.source));
        }
        while self.newest.len() > PENDING {
            let first = Key::first(key.source);
            let mut others = self.newest.range(first..).chain(&self.newest).map(|(other, _)| other);
            let Some(other) = others.find(|other| **other != key).cloned() else { break };
            let Some(job) = self.newest.remove(&other) else { break };
            self.bytes -= job.payload.len();
            replaced.push(other.source);
        }
        while self.bytes > room {
            let others = self.newest.iter().filter(|(other, _)| **other != key);
            let longest = others.max_by_key(|(_, job)| job.payload.len());
            let longest = longest.map(|(other, _)| other.clone());
            let job = longest.as_ref().and_then(|longest| self.newest.remove(longest));
            let Some(job) = job else { break };
            self.bytes -= job.payload.len();
            replaced.extend(longest.map(|longest| longest.source));
        }
        replaced
    }

    /// Pending alarms of a topic are one of each kind at most. One that comes once more cancels the
    /// other, which lies between.
    fn insert_alarm(&mut self, key: Key, job: Job) {
        let other = Key::of_alarm(key.source, key != Key::of_alarm(key.source, true));
        if self.newest.contains_key(&key) {
            self.newest.remove(&other);
        } else if self.newest.len() >= PENDING {
            self.dropped += 1;
            return;
        }
        self.newest.insert(key, job);
    }

    /// A command has ended.
    fn end(&mut self, key: Key) {
        self.running.remove(&key.source);
        let all = Key::first(key.source)..Key::first(key.source + 1);
        // The first topic is next without an entry, too.
        if key.which != Which::Topic(0) && self.newest.range(all).next().is_none() {
            self.last_topics.remove(&key.source);
        }
    }

    fn drop_pending(&mut self) {
        self.dropped += self.newest.len();
        self.newest.clear();
        self.bytes = 0;
    }
}

impl Pending for Jobs {
    type Item = Task;

    /// The newest state of one source after the other, so that a fast source holds up no other, and of one
    /// of its topics after the other.
    fn take(&mut self) -> Option<Task> {
        let now = Clock::new().now();
        if self.until.is_some_and(|until| now >= until) {
            self.drop_pending();
        }
        let (pending, bytes) = (self.newest.len(), &mut self.bytes);
        self.newest.retain(|_, job| {
            let is_fresh = job.fresh_until.is_none_or(|until| now <= until);
            *bytes -= if is_fresh { 0 } else { job.payload.len() };
            is_fresh
        });
        self.too_old += pending - self.newest.len();
        let mut idle = self.newest.keys().filter(|key| !self.running.contains(&key.source));
        let is_after = |key: &&&Key| self.last.is_some_and(|before| before < key.source);
        let source = idle.clone().find(|key| is_after(&key)).or_else(|| idle.next())?.source;
        let next = |from| {
            let end = Excluded(Key::first(source + 1));
            self.newest.range((from, end)).next().map(|(key, _)| key.clone())
        };
        let key = |which| Key { source, which };
        let last = self.last_topics.get(&source).cloned();
        let after = last.and_then(|last| next(Excluded(key(last))));
        let next = after.or_else(|| next(Included(key(Which::Topic(0)))))?;
        self.last = Some(source);
        self.last_topics.insert(source, next.which.clone());
        self.running.insert(source);
        let job = self.newest.remove(&next)?;
        self.bytes -= job.payload.len();
        Some(Task { key: next, job, until: self.until })
    }
}

/// The process groups of all commands that run.
static RUNNING: Groups = Groups::new();

/// Kills all commands that run for monitors of this process, and starts no more: for a process that
/// exits without waiting for them.
pub fn end_all() {
    RUNNING.end();
}

/// Runs a command for no longer than `limit`, and until `deadline` if that comes to be.
fn run(
    command: &str,
    job: &Job,
    limit: Span,
    deadline: impl Fn() -> Option<Time> + Send + 'static,
    to_stderr: bool,
    groups: &'static Groups,
) -> io::Result<()> {
    // A system that is short of threads has none for the watchdog: then nothing is started.
    let (started, group) = channel();
    let (ended, end) = channel::<()>();
    let watchdog = thread::Builder::new().spawn(move || {
        let Ok(group) = group.recv() else { return false };
        let clock = Clock::new();
        let last = clock.now() + limit;
        loop {
            let now = clock.now();
            let last = deadline().map_or(last, |deadline| deadline.min(last));
            if now >= last {
                return groups.kill(group);
            }
            if end.recv_timeout(last.since(now).min(LOOK).into()) != Err(RecvTimeoutError::Timeout)
            {
                return false;
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
    // Does not release its number yet.
    let waited = waitid(Id::Pid(group), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
    groups.remove(group);
    let _ = ended.send(());
    waited?;
    let status = child.wait()?;
    if watchdog.join().unwrap_or(false) {
        tracing::warn!("`{command}` ran for too long for {} and was ended", job.source);
    } else if !status.success() {
        tracing::warn!("`{command}` failed with {status} for {}", job.source);
    }
    Ok(())
}

#[cfg(test)]
impl Command {
    /// Has states pending, of as many sources.
    pub(super) fn put_test_states(&self, count: usize) {
        self.jobs.put(|jobs| {
            jobs.newest.extend((0..count).map(|index| (tests::key(index), tests::job(1))));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn job(seq: u64) -> Job {
        let age = Some(Span::from_millis(5));
        let received_at = Clock::new().now();
        let generated_at = Time::from_nanos(seq);
        Job {
            source: "it".into(),
            topic: None,
            environment: vec![("FRESHLINE_SEQ", seq.to_string())],
            generated_at,
            age,
            received_at,
            fresh_until: None,
            payload: Vec::new(),
        }
    }

    fn seq(job: &Job) -> u64 {
        job.generated_at.as_nanos()
    }

    pub(super) fn key(source: usize) -> Key {
        Key::first(source)
    }

    #[test]
    fn a_fast_source_does_not_hold_up_the_others() {
        let mut jobs = Jobs::default();
        let mut taken = Vec::new();
        for index in [1, 2, 3] {
            jobs.newest.insert(key(index), job(index as u64));
        }
        for _ in 0..6 {
            taken.extend(jobs.take().map(|Task { key, job, .. }| {
                jobs.running.remove(&key.source);
                seq(&job)
            }));
            jobs.newest.insert(key(1), job(1));
        }
        assert_eq!(taken, [1, 2, 3, 1, 1, 1]);
    }

    #[test]
    fn a_source_with_many_topics_has_one_turn_as_others_and_its_topics_take_turns() {
        let mut jobs = Jobs::default();
        let mut taken = Vec::new();
        for _ in 0..6 {
            for topic in 0..3 {
                jobs.newest.insert(Key { source: 1, which: Which::Topic(topic) }, job(1));
            }
            jobs.newest.insert(key(2), job(2));
            let task = jobs.take().expect("one is pending");
            jobs.running.remove(&task.key.source);
            taken.push((task.key.source, task.key.which));
        }
        let expected = [(1, 0), (2, 0), (1, 1), (2, 0), (1, 2), (2, 0)];
        assert_eq!(taken, expected.map(|(source, topic)| (source, Which::Topic(topic))));
    }

    #[test]
    fn pending_states_take_bounded_memory_and_the_longest_other_one_gives_way() {
        let mut jobs = Jobs::default();
        let of = |len| Job { payload: vec![0; len], ..job(len as u64) };
        for (index, len) in [(1, 10), (2, 500), (3, 400)] {
            assert!(jobs.insert(key(index), of(len), 1000).is_empty());
        }
        assert_eq!(jobs.insert(key(4), of(600), 1000), [2, 3], "as many as make room");
        assert_eq!(jobs.insert(key(4), of(990), 1000), [4], "the newest of its source");
        assert_eq!((jobs.bytes, jobs.newest.len()), (1000, 2));
        while let Some(Task { key, .. }) = jobs.take() {
            jobs.running.remove(&key.source);
        }
        assert_eq!(jobs.bytes, 0);
    }

    #[test]
    fn a_pending_state_that_becomes_too_old_is_left_out() {
        let mut jobs = Jobs::default();
        let of = |index, fresh_until| {
            (key(index), Job { fresh_until, payload: vec![0; 5], ..job(index as u64) })
        };
        let now = Clock::new().now();
        for (key, job) in [of(1, Some(now)), of(2, Some(now + Span::from_secs(600)))] {
            jobs.insert(key, job, 1000);
        }
        while Clock::new().now() <= now {}
        assert_eq!(jobs.take().map(|task| task.key), Some(key(2)));
        assert_eq!((jobs.too_old, jobs.bytes), (1, 0));
    }

    #[test]
    fn alarms_of_a_topic_run_in_their_order_and_a_pair_too_much_cancels_out() {
        let mut jobs = Jobs::default();
        let alarm = |is_stale| Key::of_alarm(1, is_stale);
        let (stale, fresh) = (Some(alarm(true)), Some(alarm(false)));
        let next = |jobs: &mut Jobs| {
            let key = jobs.take().map(|task| task.key);
            key.clone().into_iter().for_each(|key| jobs.end(key));
            key
        };
        jobs.insert_alarm(alarm(true), job(1));
        assert_eq!(next(&mut jobs), stale);
        for (number, is_stale) in [(2, false), (3, true)] {
            jobs.insert_alarm(alarm(is_stale), job(number));
        }
        assert_eq!([next(&mut jobs), next(&mut jobs)], [fresh.clone(), stale]);
        for (number, is_stale) in [(4, false), (5, true), (6, false)] {
            jobs.insert_alarm(alarm(is_stale), job(number));
        }
        assert_eq!([next(&mut jobs), next(&mut jobs)], [fresh, None]);
        assert!(jobs.last_topics.is_empty(), "no memory for topics of which nothing is to come");
    }

    #[test]
    fn a_slow_command_holds_up_its_own_source_alone() {
        let mut jobs = Jobs::default();
        for index in [1, 2] {
            jobs.newest.insert(key(index), job(index as u64));
        }
        assert_eq!(jobs.take().map(|task| task.key), Some(key(1)));
        jobs.newest.insert(key(1), job(10));
        assert_eq!(jobs.take().map(|task| task.key), Some(key(2)));
        assert!(jobs.take().is_none(), "both run");
        jobs.running.remove(&1);
        assert_eq!(jobs.take().map(|task| seq(&task.job)), Some(10));
    }

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
