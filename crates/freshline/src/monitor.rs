//! A monitor with a thread of its own.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use freshline_core::session::{MaxAge, MonitorParams, SourceParams, TopicKind, TopicParams};
use freshline_core::source::{self, LawConfig};
use freshline_core::unit::Span;
use freshline_core::wire::AckMark;
use freshline_net::credentials::{Reloader, Right};
use freshline_net::monitor::{
    self as driver, MonitorConfig, MonitorReport, ReturnConfig, ReturnTopic, SourceStatus,
};
use freshline_net::quic::{Fingerprint, Limits};
use freshline_net::source::sampler::Shared;
use freshline_net::stop::Stop;

use crate::clock::Clock;
use crate::error::{Error, UnknownTopic};
use crate::events::Events;
use crate::listening::{Listening, Quic};
use crate::max_ages::MaxAges;
use crate::monitor_event::MonitorEvent;
use crate::running::Running;
use crate::source::find;
use crate::state::State;
use crate::store::Board;
use crate::subscription::Subscription;
use crate::topic::{self, Topic};
use crate::url::{BadUrl, Url};

/// A monitor that runs: it holds the freshest state of many sources until it is closed or dropped. Dropping it is
/// as [`Monitor::close`], without its report.
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
    address: SocketAddr,
    quic: Option<Quic>,
    /// What is read again by [`Monitor::reload`].
    listening: Listening,
    /// `None` in a simulation.
    reloader: Option<Reloader>,
    board: Board,
    topics: Vec<Topic>,
    ask: Ask,
    running: Running<MonitorReport>,
}

/// Asks for this number of sources.
pub(crate) type Ask = Box<dyn Fn(usize) -> Result<Vec<SourceStatus>, driver::Gone> + Send + Sync>;

/// What a [`Monitor`] is made of.
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
    listening: Listening,
    pub(crate) params: MonitorParams,
    pub(crate) max_ages: MaxAges,
    pub(crate) detailed: usize,
    forget: Span,
    returning: SourceParams,
    law: LawConfig,
    topics: Vec<TopicParams>,
}

impl Monitor {
    /// A monitor that listens at `url`, such as `quic://0.0.0.0:3774`, or `udp://127.0.0.1:0` for a free port. A
    /// URL that cannot be understood is an error of [`MonitorBuilder::spawn`].
    pub fn builder(url: &str) -> MonitorBuilder {
        MonitorBuilder::new(url.parse())
    }

    /// Where it listens; tells the port that was chosen for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as a URL, for a source on this host; a monitor that listens at all addresses is reached by any.
    pub fn url(&self) -> String {
        let scheme = if self.quic.is_some() { "quic" } else { "udp" };
        format!("{scheme}://{}", self.address)
    }

    /// The fingerprint of its certificate, for [`SourceBuilder::pin`](crate::SourceBuilder::pin); none on `udp://`.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.quic.as_ref().map(Quic::fingerprint)
    }

    /// The newest state of a topic by its name, `source/topic`, or the source's alone where it has no topics. Of a
    /// topic with keys it is that of the key which changed last. `None` if there is none, or none that is young
    /// enough ([`MonitorBuilder::max_age`]), and once the source has ended or has been silent for
    /// [`MonitorBuilder::idle`].
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

    /// The states of the topics whose names match, as they come; `*` stands for any characters. It begins with the
    /// states that are held.
    pub fn subscribe(&self, pattern: &str) -> Subscription {
        self.board.subscribe(pattern)
    }

    /// The sources that it holds, at most `max`, with their ages and counts.
    ///
    /// # Errors
    /// [`Error::Ended`], and [`Error::OwnThread`].
    pub fn sources(&self, max: usize) -> Result<Vec<SourceStatus>, Error> {
        self.running.check_thread()?;
        (self.ask)(max).map_err(|_| Error::Ended)
    }

    /// Reads the files of credentials and authorities again, and ends the sessions that they do not permit any more;
    /// gives how many. If one of the files cannot be used, nothing changes.
    ///
    /// # Errors
    /// [`Error`] says which file cannot be used; [`Error::Ended`], and [`Error::OwnThread`].
    pub fn reload(&self) -> Result<usize, Error> {
        self.running.check_thread()?;
        let Some(reloader) = &self.reloader else { return Ok(0) };
        let change = self.listening.read_again(Right::Publish, self.quic.as_ref())?;
        reloader.replace(change).map_err(|_| Error::Ended)
    }

    /// What has happened to it.
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

    /// Whether its thread has ended, which it does by itself only if it cannot go on; [`Monitor::close`] says why.
    pub fn has_ended(&self) -> bool {
        self.running.has_ended()
    }

    /// Says goodbye to all sources, and reports on the run.
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
        Self { address, quic, listening, reloader, board, topics, ask, running }
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Monitor").field(&self.address).finish()
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

    /// Where a certificate of one's own making is kept; by default the user's state directory.
    pub fn state_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.listening = self.listening.state_dir(dir);
        self
    }

    /// Shows this certificate (`quic://`), in place of one of its own making.
    pub fn identity_files(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.listening = self.listening.identity_files(cert, key);
        self
    }

    /// Takes only sources whose certificate an authority of this file has signed (`quic://`).
    pub fn client_ca_file(mut self, pem: impl Into<PathBuf>) -> Self {
        self.listening = self.listening.client_ca_file(pem);
        self
    }

    /// Takes a source only under names that its certificate lists.
    pub fn certified_names(mut self) -> Self {
        self.listening = self.listening.certified_names();
        self
    }

    /// Takes only sources with a token that this file permits, under the names that it permits (`quic://`).
    pub fn credentials_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.listening = self.listening.credentials_file(file);
        self
    }

    /// Takes only sources with this token, under any name (`quic://`); call it again for further ones.
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.listening = self.listening.token(token);
        self
    }

    /// Certificates, credentials and authorities at once, in place of those before.
    pub fn listening(mut self, listening: Listening) -> Self {
        self.listening = listening;
        self
    }

    /// Lets `udp://` listen where other hosts can reach it, for networks that are trusted.
    pub fn insecure(mut self) -> Self {
        self.listening = self.listening.insecure();
        self
    }

    /// All settings of sessions at once, in place of those before; maximum ages are those of
    /// [`MonitorBuilder::max_age`].
    pub fn params(mut self, params: MonitorParams) -> Self {
        self.params = params;
        self
    }

    /// Names at most this many sources in reports and metrics, and forgets a silent one of them after `forget`; 100
    /// and a day by default.
    pub fn detailed(mut self, sources: usize, forget: impl Into<Span>) -> Self {
        (self.detailed, self.forget) = (sources, forget.into());
        self
    }

    /// Hands out states of topics that match, such as `robot/cmd` or `*/cmd`, only while they are younger than
    /// this; [`MonitorEvent::Stale`] says when a topic has none. The first pattern that matches counts.
    pub fn max_age(mut self, pattern: &str, limit: Duration) -> Self {
        self.max_ages.add(MaxAge::new(pattern, limit.into()));
        self
    }

    /// The same limit as a value, such as one that was read from text (`robot/cmd=200ms`).
    pub fn max_age_of(mut self, limit: MaxAge) -> Self {
        self.max_ages.add(Ok(limit));
        self
    }

    /// Holds at most this many sources, at least 1; 10,000 by default.
    pub fn max_sources(mut self, sources: usize) -> Self {
        self.params.max_sources = sources;
        self
    }

    /// Takes states of at most this many bytes; 8 MiB by default.
    pub fn max_state(mut self, bytes: usize) -> Self {
        self.params.max_payload = bytes;
        self
    }

    /// Ends the session of a source that has been silent for this long; 60 s by default.
    pub fn idle(mut self, silence: impl Into<Span>) -> Self {
        self.params.idle = silence.into();
        self
    }

    /// The code point of acks; by default as each source asks.
    pub fn ack_mark(mut self, mark: AckMark) -> Self {
        self.params.ack_mark = Some(mark);
        self
    }

    /// Sends the states of this topic to each source that receives
    /// ([`SourceBuilder::receive`](crate::SourceBuilder::receive)): a name, or [`TopicParams`] of the default kind.
    pub fn topic(mut self, topic: impl Into<TopicParams>) -> Self {
        self.topics.push(topic.into());
        self
    }

    /// The name under which sources see the topics that it sends; `monitor` by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.returning.name = name.into();
        self
    }

    /// The law that decides when its own topics are sent, for each source by itself; `acp+d` by default.
    pub fn law(mut self, law: impl Into<LawConfig>) -> Self {
        self.law = law.into();
        self
    }

    /// Bounds of what is sent to each source.
    pub fn limits(mut self, limits: source::Limits) -> Self {
        self.returning.limits = limits;
        self
    }

    /// Opens the socket, and runs the monitor on a thread of its own.
    ///
    /// # Errors
    /// [`Error`] says what is wrong, or what the system refused.
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
        let (address, asker, reloader) = (driver.local_addr()?, driver.asker(), driver.reloader());
        let stop = Stop::new();
        let ask: Ask = Box::new(move |max| asker.sources(max));
        let ended = Ended { topics: topics.clone(), board: board.clone() };
        let (mut store, stopped_by) = (board.store(max_ages), stop.clone());
        let run = move || {
            let _ended = ended;
            driver.run(&stopped_by, None, &mut store)?;
            Ok(driver.report(&store))
        };
        let named = thread::Builder::new().name("freshline monitor".into());
        let running = Running::thread(stop, named.spawn(run).map_err(Error::Thread)?);
        let reloader = Some(reloader);
        Ok(Monitor { address, quic, listening, reloader, board, topics, ask, running })
    }

    /// Handles for the topics that it sends, and what sends them.
    pub(crate) fn make_topics(&mut self, clock: &Clock) -> (Vec<Topic>, ReturnConfig) {
        let limits = || topic::Limits { max_state: self.returning.max_state, clock: clock.clone() };
        let topics: Vec<_> = self
            .topics
            .iter()
            .map(|topic| Topic::new(&topic.name, &TopicKind::Latest, topic.is_urgent, limits()))
            .collect();
        let sent = self.topics.drain(..).zip(&topics);
        let sent = sent
            .map(|(params, topic)| ReturnTopic { params, states: Shared::new(topic.sampler()) })
            .collect();
        let returning =
            ReturnConfig { params: self.returning.clone(), law: self.law, topics: sent };
        (topics, returning)
    }

    /// The monitor without a thread, for a caller's own loop, with what it shows on `quic://`. It sends no topics of
    /// its own before [`driver::Monitor::returning`].
    ///
    /// # Errors
    /// As [`MonitorBuilder::spawn`].
    pub fn build(self) -> Result<(driver::Monitor, Option<Quic>), Error> {
        let (config, quic) = self.config()?;
        Ok((driver::Monitor::bind(config)?, quic))
    }

    pub(crate) fn listening_of(&self) -> Listening {
        self.listening.clone()
    }

    /// What a driver needs.
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

/// Tells the application that the thread has ended, also by a panic.
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
