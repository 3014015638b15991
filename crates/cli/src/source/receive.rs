//! How a source handles states that its monitor sends: `freshline source --receive`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use freshline::driver::Waker;
use freshline::driver::clock::Clock;
use freshline::driver::monitor::Incoming;
use freshline::driver::monitor::output::{OutFormat, Outputs};
use freshline::driver::source::sampler::{Need, Sampler, Take};
use freshline::driver::source::{Receive, States, Topic};
use freshline_core::session::{MaxAge, MonitorParams, TopicParams};
use freshline_core::unit::{Span, Time};
use miette::{IntoDiagnostic, miette};

use crate::failure::Failure;

/// Outputs of received states.
#[derive(Debug, clap::Args)]
pub(super) struct ReceiveArgs {
    /// Receive the topics that the monitor sends (`freshline monitor --topic`), over the connection
    /// of this source. Without --out and --exec, states go to standard output, one line of JSON
    /// each. A source that only receives needs no state of its own, and runs until it is stopped; a
    /// source with states ends with them, as at the end of the standard input of --latest -, and
    /// then stops receiving.
    #[arg(long, help_heading = "Return direction")]
    receive: bool,
    /// Write every received state to this file as a line of JSON; `-` is standard output.
    #[arg(long, value_name = "FILE", requires = "receive", help_heading = "Return direction")]
    out: Option<PathBuf>,
    /// Run this shell command for received states, like --exec of `freshline monitor`. It gets the
    /// state on its standard input, with FRESHLINE_TOPIC and FRESHLINE_AGE_MS in its environment.
    /// Its output goes to standard error.
    #[arg(long, value_name = "CMD", requires = "receive", help_heading = "Return direction")]
    exec: Option<String>,
    /// End a command of --exec that runs for longer than this.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10s",
        requires = "exec",
        help_heading = "Return direction"
    )]
    exec_timeout: Span,
    /// Hand out received states of matching topics only while they are younger than this, like
    /// --max-age of `freshline monitor`. SOURCE in the pattern is the monitor's --name.
    #[arg(
        long,
        value_name = "PATTERN=TIME",
        requires = "receive",
        help_heading = "Return direction"
    )]
    max_age: Vec<MaxAge>,
}

impl ReceiveArgs {
    /// Whether a shell command gets the states.
    pub(super) fn runs_commands(&self) -> bool {
        self.exec.is_some()
    }

    /// The file that gets the states.
    pub(super) fn file(&self) -> Option<&Path> {
        self.out.as_deref().filter(|path| path.as_os_str() != "-")
    }

    /// The states of a source without its own ones: its updates are empty, and keep the session
    /// alive.
    pub(super) fn alone(&self) -> Result<States, Failure> {
        if !self.receive {
            let flags = "--sample, --read, --latest, --topic or --size";
            return Err(Failure::Usage(miette!("no state to send: give {flags}, or --receive")));
        }
        let params = TopicParams::new("none");
        Ok(States::Topics(vec![Topic { params, sampler: Box::new(Nothing) }]))
    }

    /// The receiver of states, if any; `is_taken` if standard output has other data.
    pub(super) fn incoming(
        &self,
        is_taken: bool,
    ) -> Result<Option<Box<dyn Receive + Send>>, Failure> {
        if !self.receive {
            return Ok(None);
        }
        let mut outputs = Outputs::new();
        match (&self.out, &self.exec) {
            (Some(path), _) if path.as_os_str() != "-" => {
                let appended = outputs.append_states(path, OutFormat::Json);
                appended.into_diagnostic().map_err(Failure::Usage)?;
            }
            (None, Some(_)) => {}
            _ if is_taken => {
                let message = "--json has standard output: give --receive an --out FILE or --exec";
                return Err(Failure::Usage(miette!("{message}")));
            }
            _ => outputs.write_states(Box::new(io::stdout()), OutFormat::Json),
        }
        outputs.limit_ages(self.max_age.clone());
        if let Some(command) = &self.exec {
            outputs.run_command_to_stderr(command.clone(), self.exec_timeout);
        }
        let params = MonitorParams { max_age: self.max_age.clone(), ..MonitorParams::default() };
        let incoming = Incoming::new(params, outputs);
        let incoming = incoming.into_diagnostic().map_err(Failure::Runtime)?;
        Ok(Some(Box::new(incoming.with_end(|outputs, stop| Ok(outputs.finish(stop)?)))))
    }
}

/// A sampler that never has a state.
struct Nothing;

impl Sampler for Nothing {
    fn start(&mut self, _clock: Clock, _waker: Arc<Waker>) -> std::io::Result<()> {
        Ok(())
    }

    fn take(&mut self, _now: Time, _need: Need, _into: &mut Vec<u8>) -> Take {
        Take::NotYet
    }
}
