//! A command that is run for every update.

use std::io::{self, Read};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use freshline_core::unit::Time;
use mio::Waker;

use super::{MAX_SAMPLE, Need, RETRY, Sampler, Take};
use crate::clock::Clock;

/// Runs a shell command for each update, on a thread of its own, so that acks are heard while it
/// runs. The state counts as old as the command's start. A command that hangs holds back its own
/// updates only.
pub struct Command {
    command: String,
    clock: Clock,
    /// To ask for a run, and where its result comes; after the start.
    worker: Option<(Sender<()>, Receiver<Run>)>,
    running: bool,
    /// The last state, which is repeated while the monitor does not have it.
    newest: Option<(Time, Vec<u8>)>,
}

struct Run {
    generated_at: Time,
    output: Result<Vec<u8>, String>,
}

impl Command {
    /// Runs `command` by `sh -c`.
    pub fn new(command: String) -> Self {
        Self { command, clock: Clock::new(), worker: None, running: false, newest: None }
    }
}

impl Sampler for Command {
    fn start(&mut self, clock: Clock, waker: Arc<Waker>) {
        let (ask, asked) = channel::<()>();
        let (answer, answers) = channel();
        let command = self.command.clone();
        std::thread::spawn(move || {
            while asked.recv().is_ok() {
                let generated_at = clock.now();
                let output = run(&command);
                if answer.send(Run { generated_at, output }).is_err() || waker.wake().is_err() {
                    return; // the source has ended
                }
            }
        });
        self.worker = Some((ask, answers));
    }

    fn take(&mut self, need: Need, into: &mut Vec<u8>) -> Take {
        let Some((ask, answers)) = &self.worker else {
            return Take::Failed("the sampler was not started".into());
        };
        if !self.running {
            self.running = ask.send(()).is_ok();
        }
        match answers.try_recv() {
            Ok(Run { generated_at, output: Ok(output) }) => {
                self.running = false;
                into.extend_from_slice(&output);
                self.newest = Some((generated_at, output));
                Take::Sample { generated_at }
            }
            Ok(Run { output: Err(why), .. }) => {
                self.running = false;
                Take::RetryAt(self.clock.now() + RETRY, why)
            }
            Err(TryRecvError::Empty) => match &self.newest {
                Some((generated_at, output)) if need == Need::Newest => {
                    into.extend_from_slice(output);
                    Take::Sample { generated_at: *generated_at }
                }
                _ => Take::NotYet,
            },
            Err(TryRecvError::Disconnected) => {
                Take::Failed("the thread that runs the command has died".into())
            }
        }
    }
}

/// The standard output of a command that succeeds.
fn run(command: &str) -> Result<Vec<u8>, String> {
    let failed = |error: io::Error| format!("cannot run `{command}`: {error}");
    let mut child = std::process::Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(failed)?;
    let output = read_output(&mut child);
    let status = child.wait().map_err(failed)?;
    let output = output.map_err(failed)?;
    match status.success() {
        true => Ok(output),
        false => Err(format!("`{command}` failed with {status}; see its own message above")),
    }
}

fn read_output(child: &mut Child) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // What is longer cannot be sent; closing the pipe ends a command that never stops.
        stdout.take(MAX_SAMPLE as u64).read_to_end(&mut output)?;
    }
    Ok(output)
}
