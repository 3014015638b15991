//! The topics that a monitor sends to sources with `--receive`: `freshline monitor --topic`.

use freshline::driver::framing::Framing;
use freshline::driver::monitor::{ReturnConfig, ReturnConfigError, ReturnTopic};
use freshline::driver::source::sampler::Shared;
use freshline_core::session::{SourceParams, TopicKind};

use super::sampler;
use super::topic::{Input, TopicArg};
use crate::failure::Failure;
use crate::law::LawArgs;

/// The maximum size of a state that a monitor sends, in bytes.
const MAX_STATE: usize = 8 << 20;

/// Topics that go from the monitor to its sources.
#[derive(Debug, clap::Args)]
pub(crate) struct ReturnArgs {
    /// Send the states of this topic to each source that runs with --receive; may be given up to
    /// 256 times. The words are those of `freshline source --topic`, of the default kind:
    /// cmd,latest=- sends the newest line of standard input. --law sets the rate to each source.
    #[arg(long, value_name = "NAME,…", help_heading = "Return direction")]
    topic: Vec<TopicArg>,
    /// Use this name of the monitor in sources with --receive.
    #[arg(long, default_value = "monitor", requires = "topic", help_heading = "Return direction")]
    name: String,
    #[command(flatten)]
    law: LawArgs,
}

impl ReturnArgs {
    /// Whether a shell command supplies states.
    pub(crate) fn runs_commands(&self) -> bool {
        self.topic.iter().any(|topic| matches!(topic.input, Input::Sample(_)))
    }

    /// The files that supply states.
    pub(crate) fn files(&self) -> impl Iterator<Item = Option<&std::path::Path>> {
        self.topic.iter().map(|topic| topic.input.file())
    }

    /// The topics to send, if any.
    pub(crate) fn config(&self) -> Result<Option<ReturnConfig>, Failure> {
        if self.topic.is_empty() {
            return Ok(None);
        }
        let params = SourceParams {
            name: self.name.clone(),
            limits: self.law.limits()?,
            max_state: MAX_STATE,
            ..SourceParams::default()
        };
        let topics = self.topic.iter().map(|topic| {
            let TopicArg { params, input, stamp } = topic.clone();
            if stamp.is_some() {
                let message =
                    "a monitor sends states whose age counts from their reading: leave stamp out of";
                return Err(Failure::Usage(miette::miette!("{message} {}", params.name)));
            }
            if params.kind != TopicKind::Latest {
                let error = ReturnConfigError::Kind(params.name);
                return Err(Failure::Usage(miette::Report::msg(error)));
            }
            let states = sampler(&input, Framing::Lines, MAX_STATE, None)?;
            Ok(ReturnTopic { params, states: Shared::new(states) })
        });
        let topics = topics.collect::<Result<_, Failure>>()?;
        Ok(Some(ReturnConfig { params, law: self.law.config()?, topics }))
    }
}
