//! `freshline monitor --web`: states in browsers.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use freshline::driver::monitor::output::Outputs;
use freshline::driver::monitor::{Asker, Both, Monitor, MonitorError, ReturnConfig, ReturnTopic};
use freshline::driver::stop::Stop;
use freshline::{
    LawConfig, LawName, MaxAge, Readers, SourceStatus, Subscription, Topic, TopicParams,
};
use freshline_core::session::SourceParams;
use freshline_core::unit::{Time, UpdateRate};
use freshline_web::{Config, Gateway, GatewayError, Hub, HubError, Identity, Token};
use miette::{IntoDiagnostic, WrapErr, miette};

use crate::failure::Failure;

/// The maximum length of a command, in bytes.
const MAX_COMMAND: usize = 64 << 10;

/// The page for browsers.
#[derive(Debug, clap::Args)]
pub(crate) struct WebArgs {
    /// Show sources, topics and states in browsers, at http://ADDR: the page and a WebSocket over TCP, and
    /// WebTransport over UDP of the same port. Needs --web-cert or --web-insecure if ADDR is not loopback.
    #[arg(long, value_name = "ADDR", help_heading = "Browsers")]
    web: Option<SocketAddr>,
    /// Require browsers to show the token in this file of one line. By default a new token is made;
    /// the printed URL contains it.
    #[arg(long, value_name = "FILE", requires = "web", help_heading = "Browsers")]
    web_token_file: Option<PathBuf>,
    /// Serve the page by https:// with this certificate chain, which browsers must trust. Pages
    /// that are loaded neither by https:// nor from this host cannot use WebTransport.
    #[arg(long, value_name = "PEM", requires_all = ["web", "web_key"], help_heading = "Browsers")]
    web_cert: Option<PathBuf>,
    /// Use the private key of --web-cert.
    #[arg(long, value_name = "PEM", requires = "web_cert", help_heading = "Browsers")]
    web_key: Option<PathBuf>,
    /// Serve browsers at an address that other hosts can reach. The page is not encrypted, so a
    /// host on the path can read the token: for trusted networks, or behind a proxy that encrypts.
    #[arg(long, requires = "web", help_heading = "Browsers")]
    web_insecure: bool,
    /// Decide by this law when to send an update to a browser.
    #[arg(
        long,
        value_name = "LAW",
        default_value = "acp+d",
        requires = "web",
        help_heading = "Browsers"
    )]
    web_law: LawName,
    /// Limit the updates to each browser to this rate; each carries the newest states that fit.
    #[arg(
        long,
        value_name = "RATE",
        default_value = "250/s",
        requires = "web",
        help_heading = "Browsers"
    )]
    web_max_rate: UpdateRate,
    /// Let browsers send states in this topic to each source that runs with --receive; may be given
    /// several times.
    #[arg(long, value_name = "TOPIC", requires = "web", help_heading = "Browsers")]
    web_command: Vec<String>,
}

/// The gateway for browsers, if `--web` asks for one.
#[derive(Default)]
pub(crate) struct Web {
    config: Option<Config>,
    readers: Readers,
    commands: Vec<Topic>,
    /// The topics of commands, for the monitor.
    returned: Vec<ReturnTopic>,
}

impl WebArgs {
    /// The address of the page.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.web
    }

    /// Checks everything that can be checked before the command starts.
    pub(crate) fn prepare(&self) -> Result<Web, Failure> {
        let Some(address) = self.web else { return Ok(Web::default()) };
        let files = self.web_cert.clone().zip(self.web_key.clone());
        let identity = files.map(|(chain, key)| Identity { chain, key });
        if !self.web_insecure && identity.is_none() && !address.ip().to_canonical().is_loopback() {
            return Err(Failure::Usage(miette!(
                "--web {address} can be reached by other hosts, and the page is not encrypted; listen on \
                 127.0.0.1 and forward the port by ssh, or give --web-cert, or --web-insecure"
            )));
        }
        let usage = |report: miette::Report| Failure::Usage(report);
        let mut config = Config::new(address).into_diagnostic().map_err(Failure::Runtime)?;
        config.law = LawConfig::with_defaults(self.web_law).into_diagnostic().map_err(|error| {
            usage(error.wrap_err("--web-law takes a law that finds its rate by itself"))
        })?;
        config.identity = identity;
        config.limits.max_rate = Some(self.web_max_rate);
        if let Some(file) = &self.web_token_file {
            let read = fs::read_to_string(file).into_diagnostic();
            let token = read.wrap_err_with(|| format!("cannot read {}", file.display()));
            let token = Token::new(token.map_err(usage)?.trim());
            config.token = token
                .into_diagnostic()
                .wrap_err_with(|| format!("{} has no token for browsers", file.display()))
                .map_err(usage)?;
        }
        let named = self.web_command.iter().map(|name| {
            let params = TopicParams { is_urgent: true, ..TopicParams::new(name.clone()) };
            Topic::returned(params, MAX_COMMAND)
        });
        let (commands, returned) = named.unzip();
        Ok(Web { config: Some(config), readers: Readers::new(), commands, returned })
    }
}

impl Web {
    /// Adds the topics of commands to the topics that the monitor already sends.
    pub(crate) fn add_returned(&mut self, config: Option<ReturnConfig>) -> Option<ReturnConfig> {
        if self.returned.is_empty() {
            return config;
        }
        let mut config = config.unwrap_or_else(|| ReturnConfig {
            params: SourceParams { name: "monitor".into(), ..SourceParams::default() },
            law: LawConfig::default(),
            topics: Vec::new(),
        });
        config.topics.append(&mut self.returned);
        Some(config)
    }

    /// Shows the states of the monitor from now on.
    pub(crate) fn serve(&self, monitor: &Monitor) -> Result<Option<Gateway>, Failure> {
        let Some(config) = &self.config else { return Ok(None) };
        let hub = States {
            readers: self.readers.clone(),
            asker: monitor.asker(),
            commands: self.commands.clone().into(),
        };
        let failure = |error: GatewayError| match error {
            GatewayError::Identity { .. } => Failure::Usage(miette::Report::msg(error)),
            _ => Failure::Runtime(miette::Report::msg(error)),
        };
        Gateway::spawn(config.clone(), hub).map(Some).map_err(failure)
    }

    /// Runs the monitor.
    pub(crate) fn run(
        &self,
        monitor: &mut Monitor,
        stop: &Stop,
        until: Option<Time>,
        max_ages: &[MaxAge],
        outputs: &mut Outputs,
    ) -> Result<(), MonitorError> {
        match &self.config {
            None => monitor.run(stop, until, outputs),
            Some(_) => {
                let mut readers = self.readers.watch(max_ages.to_vec());
                monitor.run(stop, until, &mut Both { first: outputs, other: &mut readers })
            }
        }
    }
}

/// The states of the monitor of this command.
struct States {
    readers: Readers,
    asker: Asker,
    commands: Arc<[Topic]>,
}

impl Hub for States {
    fn observe(&self, pattern: &str) -> Subscription {
        self.readers.observe(pattern)
    }

    fn sources(&self, max: usize) -> Result<Vec<SourceStatus>, HubError> {
        self.asker.sources(max).map_err(HubError::new)
    }

    fn commands(&self) -> Vec<String> {
        self.commands.iter().map(|topic| topic.name().to_owned()).collect()
    }

    fn command(&self, topic: &str, state: Vec<u8>) -> Result<(), HubError> {
        let found = self.commands.iter().find(|known| known.name() == topic);
        let Some(topic) = found else {
            return Err(HubError::new(format!("there is no topic {topic:?} for commands")));
        };
        topic.put(state).map(drop).map_err(HubError::new)
    }
}
