//! A command that is run for every update.

use std::io::{self, Read};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use freshline_core::unit::{Span, Time};

use super::{Need, RETRY, Sampler, Take};
use crate::clock::Clock;
use crate::framing::beyond;
use crate::waker::Waker;

/// Runs a shell command for each update, on its own thread, so that acks are processed while it
/// runs. The state counts as old as the command's start. If the monitor may not have the last
/// state, the command is run again, instead of repeating its old output. A command that hangs
/// delays only its own updates: when it has run for longer than 1 s, the last state is repeated.
pub struct Command {
    command: String,
    max_state: usize,
    /// Requests runs and receives their results; set by the start.
    worker: Option<(Sender<()>, Receiver<Run>)>,
    /// When the pending run was requested.
    asked_at: Option<Time>,
    /// The last state, which is repeated while the command hangs.
    newest: Option<(Time, Vec<u8>)>,
    /// Whether the last output was too old to be sent.
    dropped: bool,
}

/// The source does not wait for a command that runs longer than this, if the monitor needs a state.
const HANGS: Span = Span::from_secs(1);

/// An output that was not taken for longer than this, and longer than the command takes, is old:
/// the command is run again. A shorter delay is the source's own lateness.
const OLD: Span = Span::from_millis(100);

/// One run of the command.
pub(crate) struct Run {
    pub(crate) generated_at: Time,
    pub(crate) ended_at: Time,
    pub(crate) output: Result<Vec<u8>, String>,
}

impl Command {
    /// Runs `command` by `sh -c`. At most one byte more than `max_state` of its output is read, so
    /// that the source leaves a longer state out.
    pub fn new(command: String, max_state: usize) -> Self {
        let (worker, asked_at, newest) = (None, None, None);
        Self { command, max_state, worker, asked_at, newest, dropped: false }
    }

    /// A command that the test runs: returns the receiver of run requests and the sender of
    /// results.
    #[cfg(test)]
    pub(crate) fn by_hand() -> (Self, Receiver<()>, Sender<Run>) {
        let ((ask, asked), (answer, answers)) = (channel(), channel());
        let worker = Some((ask, answers));
        (Self { worker, ..Self::new(String::new(), usize::MAX) }, asked, answer)
    }
}

impl Sampler for Command {
    fn start(&mut self, clock: Clock, waker: Arc<Waker>) -> io::Result<()> {
        let (ask, asked) = channel::<()>();
        let (answer, answers) = channel();
        let (command, max_state) = (self.command.clone(), self.max_state);
        super::spawn(move || {
            while asked.recv().is_ok() {
                let generated_at = clock.now();
                let output = run(&command, max_state);
                let run = Run { generated_at, ended_at: clock.now(), output };
                if answer.send(run).is_err() || waker.wake().is_err() {
                    return; // the source has ended
                }
            }
        })?;
        self.worker = Some((ask, answers));
        Ok(())
    }

    fn take(&mut self, now: Time, need: Need, into: &mut Vec<u8>) -> Take {
        let Some((ask, answers)) = &self.worker else {
            return Take::Failed("the sampler was not started".into());
        };
        match answers.try_recv() {
            Ok(Run { generated_at, ended_at, output: Ok(output) }) => {
                self.asked_at = None;
                let is_old = now.since(ended_at) > ended_at.since(generated_at).max(OLD);
                // Not twice in a row: on a busy machine every output would be old.
                if !is_old || self.dropped {
                    self.dropped = false;
                    into.extend_from_slice(&output);
                    self.newest = Some((generated_at, output));
                    return Take::Sample { generated_at };
                }
                self.dropped = true;
                self.newest = Some((generated_at, output));
            }
            Ok(Run { output: Err(why), .. }) => {
                self.asked_at = None;
                return Take::RetryAt(now + RETRY, why);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Take::Failed("the thread that runs the command has died".into());
            }
        }
        if self.asked_at.is_none() && ask.send(()).is_ok() {
            self.asked_at = Some(now);
        }
        let hangs_at = self.asked_at.map_or(now, |at| at + HANGS);
        match &self.newest {
            Some((generated_at, output)) if need == Need::Newest && hangs_at <= now => {
                into.extend_from_slice(output);
                Take::Sample { generated_at: *generated_at }
            }
            Some(_) if need == Need::Newest => Take::NotBefore(hangs_at),
            _ => Take::NotYet,
        }
    }
}

/// The standard output of a successful command, or the beginning of an output that is too long.
fn run(command: &str, max_state: usize) -> Result<Vec<u8>, String> {
    let failed = |error: io::Error| format!("cannot run `{command}`: {error}");
    let mut child = std::process::Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(failed)?;
    let output = read_output(&mut child, max_state);
    let status = child.wait().map_err(failed)?;
    let output = output.map_err(failed)?;
    match status.success() || output.len() > max_state {
        true => Ok(output),
        false => Err(format!("`{command}` failed with {status}; see its own message above")),
    }
}

fn read_output(child: &mut Child, max_state: usize) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // Closing the pipe ends a command that never stops.
        stdout.take(beyond(max_state)).read_to_end(&mut output)?;
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use mio::{Events, Poll, Token};

    use super::*;

    /// A started sampler, and the poll of its waker.
    fn started(command: &str) -> (Command, Poll) {
        let poll = Poll::new().unwrap();
        let waker = Arc::new(Waker::of_poll(poll.registry(), Token(0)).unwrap());
        let mut sampler = Command::new(command.into(), 100);
        sampler.start(Clock::new(), waker).unwrap();
        (sampler, poll)
    }

    #[test]
    fn a_state_that_may_be_lost_is_sampled_again_and_not_repeated() {
        let (mut sampler, mut poll) = started("echo state");
        let mut last = None;
        for need in [Need::Newer, Need::Newest, Need::Newest] {
            let asked_at = Clock::new().now();
            let mut state = Vec::new();
            let waits = sampler.take(asked_at, need, &mut state);
            assert!(matches!(waits, Take::NotYet | Take::NotBefore(_)), "{need:?}: {waits:?}");
            // On a busy machine, an output that was taken late is dropped, and the command runs again.
            let generated_at = loop {
                poll.poll(&mut Events::with_capacity(1), None).unwrap();
                match sampler.take(Clock::new().now(), need, &mut state) {
                    Take::Sample { generated_at } => break generated_at,
                    Take::NotYet | Take::NotBefore(_) => {}
                    other => panic!("{need:?}: {other:?}"),
                }
            };
            assert_eq!(state, b"state\n");
            assert!(generated_at >= asked_at && Some(generated_at) > last, "{need:?}");
            last = Some(generated_at);
        }
    }

    #[test]
    fn an_output_without_an_end_is_too_long_and_not_a_failure() {
        assert_eq!(run("yes", 99_999).map(|output| output.len()), Ok(100_000));
        assert_eq!(
            run("head -c 100000 /dev/zero", 100_000).map(|output| output.len()),
            Ok(100_000)
        );
    }

    #[test]
    fn the_last_state_is_repeated_while_the_command_hangs() {
        // It ends with the test, so that no process keeps the test's output open.
        let lock = tempfile::NamedTempFile::new().unwrap();
        let path = lock.path().display();
        let command = format!("while [ -e '{path}' ]; do sleep 0.1; done");
        let (mut sampler, _poll) = started(&command);
        sampler.newest = Some((Time::ZERO, b"old".to_vec()));
        let (now, mut state) = (Clock::new().now(), Vec::new());
        let Take::NotBefore(at) = sampler.take(now, Need::Newest, &mut state) else {
            panic!("it is waited for")
        };
        assert!(at.since(now) <= HANGS && state.is_empty());
        sampler.asked_at = Some(at - HANGS - HANGS);
        let taken = sampler.take(now, Need::Newest, &mut state);
        assert_eq!((taken, &state[..]), (Take::Sample { generated_at: Time::ZERO }, &b"old"[..]));
        assert_eq!(sampler.take(now, Need::Newer, &mut Vec::new()), Take::NotYet);
    }
}
