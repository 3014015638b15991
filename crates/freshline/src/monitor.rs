//! A monitor with a thread of its own.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use freshline_core::session::{MaxAge, MonitorParams, SourceParams, TopicParams};
use freshline_core::source::{self, LawConfig};
use freshline_core::unit::Span;
use freshline_core::wire::AckMark;
use freshline_net::credentials::Right;
use freshline_net::monitor::{
    self as driver, MonitorConfig, MonitorReport, ReturnConfig, SourceStatus,
};
use freshline_net::quic::{Fingerprint, Limits};
use freshline_net::stop::Stop;

use crate::clock::Clock;
use crate::error::{Error, UnknownTopic};
use crate::events::Events;
use crate::listening::{Listening, Quic, Served};
use crate::max_ages::MaxAges;
use crate::monitor_event::MonitorEvent;
use crate::running::Running;
use crate::source::find;
use crate::state::State;
use crate::store::Board;
use crate::subscription::Subscription;
use crate::topic::{self, Topic};
use crate::url::{BadUrl, Url};

/// A running monitor. It holds the freshest states of many sources until it is closed or dropped.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let monitor = freshline::Monitor::builder("udp://127.0.0.1:0").spawn()?;
/// let source = freshline::Source::builder(&monitor.url()).name("robot-7").topic("pose").spawn()?;
/// source.topic("pose")?.put(b"x=1.0 y=2.0")?;
/// let state = monitor.subscribe("robot-7/*").next_state().expect("the monitor runs");
/// assert_eq!((&*state.name(), state.text()), ("robot-7/pose", Some("x=1.0 y=2.0")));
/// assert_eq!(monitor.latest("robot-7/pose").expect("it has come").payload(), state.payload());
/// # Ok(())
/// # }
/// ```
pub struct Monitor {
    served: Served,
    board: Board,
    topics: Vec<Topic>,
    ask: Ask,
    running: Running<MonitorReport>,
}

/// Asks for this number of sources.
pub(crate) type Ask = Box<dyn Fn(usize) -> Result<Vec<SourceStatus>, driver::Gone> + Send + Sync>;

/// The parts of a [`Monitor`].
#[cfg(feature = "sim")]
pub(crate) struct Parts {
    pub(crate) address: SocketAddr,
    pub(crate) board: Board,
    pub(crate) topics: Vec<Topic>,
    pub(crate) ask: Ask,
    pub(crate) running: Running<MonitorReport>,
}

/// Settings of a [`Monitor`]; each has a default.
#[derive(Debug)]
#[must_use = "it does nothing before `spawn` or `build`"]
pub struct MonitorBuilder {
    pub(crate) url: Result<Url, BadUrl>,
    pub(crate) listening: Listening,
    pub(crate) params: MonitorParams,
    pub(crate) max_ages: MaxAges,
    pub(crate) detailed: usize,
    forget: Span,
    returning: SourceParams,
    law: LawConfig,
    topics: Vec<TopicParams>,
}

impl Monitor {
    /// A monitor that listens at `url`, such as `quic://0.0.0.0:3774`, or `udp://127.0.0.1:0` for a
    /// free port. A URL that cannot be understood is an error of [`MonitorBuilder::spawn`].
    pub fn builder(url: &str) -> MonitorBuilder {
        MonitorBuilder::new(url.parse())
    }

    /// The address that it listens on, with the actual port if the URL had port 0.
    pub fn address(&self) -> SocketAddr {
        self.served.address
    }

    /// The URL for sources. For a wildcard address, replace the host with an address of this host.
    pub fn url(&self) -> String {
        self.served.url()
    }

    /// The fingerprint of its certificate, for [`SourceBuilder::pin`](crate::SourceBuilder::pin);
    /// none on `udp://`.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.served.fingerprint()
    }

    /// The newest state of the topic `source/topic`, or of a source without topics. For a topic
    /// with keys, the key that changed last. `None` if no state has arrived, if it is older than
    /// [`MonitorBuilder::max_age`], after the session has ended, and if several sources have a
    /// topic of this full name.
    pub fn latest(&self, name: &str) -> Option<State> {
        self.board.latest(name)
    }

    /// The newest state of a key.
    pub fn latest_key(&self, name: &str, key: impl AsRef<[u8]>) -> Option<State> {
        self.board.latest_key(name, key.as_ref())
    }

    /// The newest states of all keys of a topic, in the order of the keys.
    pub fn keys(&self, name: &str) -> Vec<State> {
        self.board.keys(name)
    }

    /// Subscribes to all topics whose full names match; `*` matches any characters. The
    /// subscription begins with the current states.
    pub fn subscribe(&self, pattern: &str) -> Subscription {
        self.board.subscribe(pattern)
    }

    /// Subscribes as [`Monitor::subscribe`], to look only, as displays do. Records are states: a
    /// slow reader receives the newest one, and reading one does not acknowledge it to its source.
    /// When a session ends, a removal ([`State::is_removed`]) follows for each topic and key that
    /// it had.
    pub fn observe(&self, pattern: &str) -> Subscription {
        self.board.observe(pattern)
    }

    /// Ages and counters of the sources, for `max` sources at most.
    ///
    /// # Errors
    /// [`Error::Ended`], and [`Error::OwnThread`].
    pub fn sources(&self, max: usize) -> Result<Vec<SourceStatus>, Error> {
        self.running.check_thread()?;
        (self.ask)(max).map_err(|_| Error::Ended)
    }

    /// Reloads the files of credentials and authorities, closes the sessions that they no longer
    /// permit, and returns the number of closed sessions. If a file is invalid, nothing changes.
    ///
    /// # Errors
    /// [`Error`] says which file cannot be used; [`Error::Ended`], and [`Error::OwnThread`].
    pub fn reload(&self) -> Result<usize, Error> {
        self.running.check_thread()?;
        self.served.reload()
    }

    /// Its events.
    pub fn events(&self) -> &Events<MonitorEvent> {
        self.board.events()
    }

    /// The handle of a topic that it sends to its sources ([`MonitorBuilder::topic`]).
    ///
    /// # Errors
    /// [`UnknownTopic`] if it was not named when the monitor was built.
    pub fn topic(&self, name: &str) -> Result<Topic, UnknownTopic> {
        find(&self.topics, name)
    }

    /// Whether its thread has ended because of an error, which [`Monitor::close`] returns.
    pub fn has_ended(&self) -> bool {
        self.running.has_ended()
    }

    /// Begins to end, as [`Monitor::close`] does, without waiting for the end ([`Events::ended`]).
    pub fn stop(&self) {
        self.running.stop();
    }

    /// Closes all sessions, and returns a report of the run.
    ///
    /// # Errors
    /// [`Error`], if it could not go on.
    pub fn close(mut self) -> Result<MonitorReport, Error> {
        self.running.end()
    }

    #[cfg(feature = "sim")]
    pub(crate) fn of(parts: Parts) -> Self {
        let Parts { address, board, topics, ask, running } = parts;
        let (quic, listening, reloader) = (None, Listening::default(), None);
        let served = Served { address, quic, listening, reloader };
        Self { served, board, topics, ask, running }
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Monitor").field(&self.served).finish()
    }
}

impl MonitorBuilder {
    /// A monitor that listens at this URL.
    pub fn new(url: Result<Url, BadUrl>) -> Self {
        Self {
            url,
            listening: Listening::default(),
            params: MonitorParams::default(),
            max_ages: MaxAges::default(),
            detailed: 100,
            forget: MonitorConfig::FORGET,
            returning: SourceParams { name: "monitor".into(), ..SourceParams::default() },
            law: LawConfig::default(),
            topics: Vec::new(),
        }
    }

    /// The directory of the self-signed certificate; by default the user's state directory.
    pub fn state_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.listening = self.listening.state_dir(dir);
        self
    }

    /// Uses this certificate (`quic://`) instead of a self-signed one.
    pub fn identity_files(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.listening = self.listening.identity_files(cert, key);
        self
    }

    /// Accepts only sources with a certificate that an authority of this file has signed
    /// (`quic://`).
    pub fn client_ca_file(mut self, pem: impl Into<PathBuf>) -> Self {
        self.listening = self.listening.client_ca_file(pem);
        self
    }

    /// Accepts a source only under names that its certificate lists.
    pub fn certified_names(mut self) -> Self {
        self.listening = self.listening.certified_names();
        self
    }

    /// Accepts only sources with a token and a name that this file permits (`quic://`).
    pub fn credentials_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.listening = self.listening.credentials_file(file);
        self
    }

    /// Accepts only sources with this token of 1 to 255 bytes (`quic://`); call it again for
    /// further tokens.
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.listening = self.listening.token(token);
        self
    }

    /// Replaces certificates, credentials and authorities.
    pub fn listening(mut self, listening: Listening) -> Self {
        self.listening = listening;
        self
    }

    /// Allows `udp://` on addresses that other hosts can reach, for trusted networks.
    pub fn insecure(mut self) -> Self {
        self.listening = self.listening.insecure();
        self
    }

    /// Replaces all settings of sessions except maximum ages ([`MonitorBuilder::max_age`]).
    pub fn params(mut self, params: MonitorParams) -> Self {
        self.params = params;
        self
    }

    /// Maximum number of sources that reports and metrics list by name, and the time after which
    /// they forget a silent source; 100 and a day by default.
    pub fn detailed(mut self, sources: usize, forget: impl Into<Span>) -> Self {
        (self.detailed, self.forget) = (sources, forget.into());
        self
    }

    /// Maximum age of topics that match the pattern, such as `robot/cmd` or `*/cmd`: older states
    /// are not delivered, and [`MonitorEvent::Stale`] reports a topic without a younger state. The
    /// first matching pattern applies.
    pub fn max_age(mut self, pattern: &str, limit: Duration) -> Self {
        self.max_ages.add(MaxAge::new(pattern, limit.into()));
        self
    }

    /// [`MonitorBuilder::max_age`] with a parsed value, such as `robot/cmd=200ms`.
    pub fn max_age_of(mut self, limit: MaxAge) -> Self {
        self.max_ages.add(Ok(limit));
        self
    }

    /// Maximum number of sources, at least 1; 10,000 by default.
    pub fn max_sources(mut self, sources: usize) -> Self {
        self.params.max_sources = sources;
        self
    }

    /// Maximum length of a received state in bytes; 8 MiB by default.
    pub fn max_state(mut self, bytes: usize) -> Self {
        self.params.max_payload = bytes;
        self
    }

    /// Idle timeout of sessions; 60 s by default.
    pub fn idle(mut self, silence: impl Into<Span>) -> Self {
        self.params.idle = silence.into();
        self
    }

    /// The code point (DSCP) of acks; by default the one that the source requests.
    pub fn ack_mark(mut self, mark: AckMark) -> Self {
        self.params.ack_mark = Some(mark);
        self
    }

    /// Sends this topic to all receiving sources
    /// ([`SourceBuilder::receive`](crate::SourceBuilder::receive)): a name, or [`TopicParams`] of
    /// the default kind.
    pub fn topic(mut self, topic: impl Into<TopicParams>) -> Self {
        self.topics.push(topic.into());
        self
    }

    /// The name under which sources see the topics that it sends; `monitor` by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.returning.name = name.into();
        self
    }

    /// The rate law of sent topics, one instance per source; `acp+d` by default.
    pub fn law(mut self, law: impl Into<LawConfig>) -> Self {
        self.law = law.into();
        self
    }

    /// Limits of rate and bandwidth towards each source.
    pub fn limits(mut self, limits: source::Limits) -> Self {
        self.returning.limits = limits;
        self
    }

    /// Opens the socket, and runs the monitor on a thread of its own.
    ///
    /// # Errors
    /// [`Error`] describes an invalid setting or a failed system call.
    pub fn spawn(mut self) -> Result<Monitor, Error> {
        let max_ages = self.max_ages.get()?;
        let clock = Clock::real();
        let (topics, returning) = self.make_topics(&clock);
        let listening = self.listening.clone();
        let (mut driver, quic) = self.build()?;
        if !topics.is_empty() {
            driver = driver.returning(returning)?;
        }
        let board = Board::new(clock);
        board.set_waker(driver.waker());
        let (address, reloader) = (driver.local_addr()?, Some(driver.reloader()));
        let served = Served { address, quic, listening, reloader };
        let (asker, stop) = (driver.asker(), Stop::new());
        let ask: Ask = Box::new(move |max| asker.sources(max));
        let ended = Ended { topics: topics.clone(), board: board.clone() };
        let (mut store, stopped_by) = (board.store(max_ages), stop.clone());
        let run = move || {
            let _ended = ended;
            driver.run(&stopped_by, None, &mut store)?;
            Ok(driver.report(&store))
        };
        let running = Running::spawn("freshline monitor", stop, run)?;
        Ok(Monitor { served, board, topics, ask, running })
    }

    /// Creates handles for the topics that it sends, and the configuration for sending them.
    pub(crate) fn make_topics(&mut self, clock: &Clock) -> (Vec<Topic>, ReturnConfig) {
        let limits = || topic::Limits { max_state: self.returning.max_state, clock: clock.clone() };
        let topics = self.topics.drain(..).map(|params| Topic::returned_within(params, limits()));
        let (topics, sent) = topics.unzip();
        let returning =
            ReturnConfig { params: self.returning.clone(), law: self.law, topics: sent };
        (topics, returning)
    }

    /// Builds a monitor without a thread, and its QUIC settings; see [`driver`](crate::driver).
    ///
    /// # Errors
    /// As [`MonitorBuilder::spawn`].
    pub fn build(self) -> Result<(driver::Monitor, Option<Quic>), Error> {
        let (config, quic) = self.config()?;
        Ok((driver::Monitor::bind(config)?, quic))
    }

    /// The configuration for a driver.
    pub(crate) fn config(self) -> Result<(MonitorConfig, Option<Quic>), Error> {
        if !self.topics.is_empty() {
            let why = "a monitor sends topics with `spawn`; a relay sends none of its own";
            return Err(Error::Setting { setting: "`topic`", why });
        }
        if self.params.max_sources == 0 {
            return Err(Error::Setting { setting: "`max_sources`", why: "give at least 1" });
        }
        let url = self.url?;
        let limits = Limits {
            max_connections: Limits::connections_for(self.params.max_sources),
            idle_timeout: self.params.idle.into(),
            ..Limits::default()
        };
        let quic = self.listening.quic(&url, limits)?;
        let config = MonitorConfig {
            listen: self.listening.address(&url)?,
            quic: quic.as_ref().map(Quic::config).transpose()?,
            params: MonitorParams { max_age: self.max_ages.get()?, ..self.params },
            rules: self.listening.rules(Right::Publish)?,
            detailed: self.detailed,
            forget: self.forget,
        };
        Ok((config, quic))
    }
}

/// Notifies the application that the thread has ended, also by a panic.
pub(crate) struct Ended {
    pub(crate) topics: Vec<Topic>,
    pub(crate) board: Board,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.topics.iter().for_each(Topic::close);
        self.board.close();
    }
}
