//! A source with a thread of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use freshline_core::dscp::Dscp;
use freshline_core::path::SchedulerConfig;
use freshline_core::session::{self, Reach, SourceParams, TopicKind, TopicParams};
use freshline_core::source::{LawConfig, Limits};
use freshline_core::unit::{BitRate, Span, Time, UpdateRate};
use freshline_core::wire::{AckMark, StreamId};
use freshline_net::dial::Remote;
use freshline_net::quic::Fingerprint;
use freshline_net::source::spool::new_stream;
use freshline_net::source::{
    self as driver, LinkEvent, SourceConfig, SourcePaths, SourceReport, States, Transport,
};
use freshline_net::stop::Stop;
use freshline_net::via::ViaPath;

#[cfg(feature = "status")]
use crate::checks::check_status;
use crate::checks::{check_keep_alive, check_max_state};
use crate::clock::Clock;
use crate::dialling::Dialling;
use crate::error::{Error, UnknownTopic};
use crate::events::{Events, SourceEvent};
#[cfg(feature = "monitor")]
use crate::max_ages::MaxAges;
use crate::put_error::PutError;
#[cfg(feature = "monitor")]
use crate::receiving::Receiving;
use crate::running::Running;
use crate::topic::{self, Topic};
use crate::url::{BadUrl, Url};

/// A running source. It keeps a monitor fresh until it is closed or dropped.
///
/// ```
/// # fn main() -> Result<(), freshline::Error> {
/// let source = freshline::Source::builder("udp://127.0.0.1:3774").name("robot-7").topic("pose").spawn()?;
/// let pose = source.topic("pose").expect("it was named above");
/// let replaced = pose.put(b"x=1.0 y=2.0").expect("it is short, and the source runs");
/// assert_eq!(replaced, None);
/// source.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Source {
    topics: Vec<Topic>,
    shared: Arc<Shared>,
    running: Running<SourceReport>,
    #[cfg(feature = "monitor")]
    receiving: Option<Receiving>,
}

/// The parts of a [`Source`].
#[cfg(feature = "sim")]
pub(crate) struct Parts {
    pub(crate) topics: Vec<Topic>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) running: Running<SourceReport>,
    pub(crate) receiving: Option<Receiving>,
}

/// State that the network thread shares.
#[derive(Debug)]
pub(crate) struct Shared {
    clock: Clock,
    /// The bits of the rate, in updates per second.
    rate: AtomicU64,
    /// In ns; 0 while the monitor has nothing.
    delivered: AtomicU64,
    is_open: AtomicU64,
    pub(crate) events: Events<SourceEvent>,
}

/// Settings of a [`Source`]; each has a default but the URL.
#[derive(Debug)]
#[must_use = "it does nothing before `spawn` or `build`"]
pub struct SourceBuilder {
    pub(crate) url: Result<Url, BadUrl>,
    dialling: Dialling,
    /// The contents of the files of `dialling` when they were read.
    dialled: Option<Dialled>,
    pub(crate) paths: SourcePaths,
    pub(crate) params: SourceParams,
    pub(crate) law: LawConfig,
    pub(crate) topics: Vec<TopicParams>,
    /// The interval of [`SourceBuilder::status`].
    #[cfg(feature = "status")]
    pub(crate) status: Option<Span>,
    /// The maximum ages of received topics, if topics are received.
    #[cfg(feature = "monitor")]
    pub(crate) receiving: Option<MaxAges>,
}

/// A monitor, how it is reached, and the token to show there.
#[derive(Debug)]
struct Dialled {
    monitor: Remote,
    transport: Transport,
    token: Vec<u8>,
}

impl Source {
    /// A source for the monitor at `url`, such as `quic://monitor.example` or
    /// `udp://127.0.0.1:3774`. A URL that cannot be understood is an error of
    /// [`SourceBuilder::spawn`].
    pub fn builder(url: &str) -> SourceBuilder {
        SourceBuilder::new(url.parse())
    }

    #[cfg(feature = "monitor")]
    pub(crate) fn receiving(&self) -> Option<&Receiving> {
        self.receiving.as_ref()
    }

    /// The handle of a topic.
    ///
    /// # Errors
    /// [`UnknownTopic`] if it was not named when the source was built.
    pub fn topic(&self, name: &str) -> Result<Topic, UnknownTopic> {
        find(&self.topics, name)
    }

    /// The handle of the first topic, or of the one state of a source without topics.
    pub fn first_topic(&self) -> Topic {
        self.topics[0].clone()
    }

    /// Sets the newest state of the first topic, or of a source without topics; see [`Topic::put`].
    ///
    /// # Errors
    /// Those of [`Topic::put`].
    pub fn put(&self, state: impl Into<Vec<u8>>) -> Result<Option<Vec<u8>>, PutError> {
        self.topics[0].put(state)
    }

    /// The age of the newest acknowledged state: an upper bound of the age at the monitor. `None`
    /// before the first ack. With several topics it is the age of the state that was acknowledged
    /// last.
    pub fn age(&self) -> Option<Duration> {
        let delivered = Time::from_nanos(self.shared.delivered.load(Ordering::Relaxed));
        (delivered > Time::ZERO).then(|| self.shared.clock.now().since(delivered).into())
    }

    /// The current rate of the law, in updates per second.
    pub fn rate(&self) -> f64 {
        f64::from_bits(self.shared.rate.load(Ordering::Relaxed))
    }

    /// Whether the session is open.
    pub fn is_open(&self) -> bool {
        self.shared.is_open.load(Ordering::Relaxed) > 0
    }

    /// Its events.
    pub fn events(&self) -> &Events<SourceEvent> {
        &self.shared.events
    }

    /// Whether its thread has ended because of an error, which [`Source::close`] returns.
    pub fn has_ended(&self) -> bool {
        self.running.has_ended()
    }

    /// Accepts no further states, and ends by itself once the monitor has the newest state of each
    /// topic and all records. [`Events::ended`] waits for that end, and [`Source::close`] does not.
    pub fn drain(&self) {
        self.topics.iter().for_each(Topic::finish);
    }

    /// Waits until it has ended, such as after [`Source::drain`], for `patience` at most; whether
    /// it has.
    pub fn wait(&self, patience: Duration) -> bool {
        self.running.wait(patience)
    }

    /// Begins to end, as [`Source::close`] does, without waiting for the end ([`Events::ended`]).
    pub fn stop(&self) {
        self.running.stop();
    }

    /// Waits until the monitor has the newest state of each topic and all records, for `patience`
    /// at most, then closes the session and returns a report of the run. Topics accept no further
    /// states.
    ///
    /// # Errors
    /// [`Error::Undelivered`] if the monitor does not have all of them; in a simulation, always if
    /// it does not have them yet. Otherwise as [`Source::close`].
    pub fn finish(mut self, patience: Duration) -> Result<SourceReport, Error> {
        self.drain();
        let is_over = self.wait(patience);
        let report = self.running.end()?;
        if is_over { Ok(report) } else { Err(Error::Undelivered) }
    }

    /// Closes the session, and returns a report of the run. Unsent states and undelivered records
    /// are lost; see [`Source::finish`].
    ///
    /// # Errors
    /// [`Error`], if it could not go on.
    pub fn close(mut self) -> Result<SourceReport, Error> {
        self.running.end()
    }

    #[cfg(feature = "sim")]
    pub(crate) fn of(parts: Parts) -> Self {
        let Parts { topics, shared, running, receiving } = parts;
        Self { topics, shared, running, receiving }
    }
}

/// The handle of a topic by its name.
pub(crate) fn find(topics: &[Topic], name: &str) -> Result<Topic, UnknownTopic> {
    let found = topics.iter().find(|topic| topic.name() == name);
    found.cloned().ok_or_else(|| UnknownTopic {
        name: name.to_owned(),
        known: topics.iter().map(|topic| topic.name().to_owned()).collect(),
    })
}

impl SourceBuilder {
    /// A source for the monitor at this URL.
    pub fn new(url: Result<Url, BadUrl>) -> Self {
        Self {
            url,
            dialling: Dialling::default(),
            dialled: None,
            paths: SourcePaths::default(),
            params: SourceParams::default(),
            law: LawConfig::default(),
            topics: Vec::new(),
            #[cfg(feature = "status")]
            status: None,
            #[cfg(feature = "monitor")]
            receiving: None,
        }
    }

    /// The source's name at the monitor, at most 63 bytes; empty by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.params.name = name.into();
        self
    }

    /// Adds a topic: a name, or [`TopicParams`] with its weight, deadline, kind and rates. All
    /// topics share the session and its rate. Without topics the source has one state, without a
    /// name.
    pub fn topic(mut self, topic: impl Into<TopicParams>) -> Self {
        self.topics.push(topic.into());
        self
    }

    /// The law that decides when to send; `acp+d` by default.
    pub fn law(mut self, law: impl Into<LawConfig>) -> Self {
        self.law = law.into();
        self
    }

    /// Limits of rate and bandwidth, whatever the law.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.params.limits = limits;
        self
    }

    /// Maximum mean bandwidth, including all headers from IP on.
    pub fn max_bandwidth(mut self, rate: BitRate) -> Self {
        self.params.limits.max_bandwidth = Some(rate);
        self
    }

    /// Maximum rate of states.
    pub fn max_rate(mut self, rate: UpdateRate) -> Self {
        self.params.limits.max_rate = Some(rate);
        self
    }

    /// Maximum length of a state in bytes; 8 MiB by default. A state that exceeds a datagram is
    /// sent in several.
    pub fn max_state(mut self, bytes: usize) -> Self {
        self.params.max_state = bytes;
        self
    }

    /// Interval of keep-alive updates while no new state is put, at least 1 ms; 20 s by default.
    pub fn keep_alive(mut self, interval: impl Into<Span>) -> Self {
        self.params.keep_alive = interval.into();
        self
    }

    /// Sends the state of the law and of the paths at this interval (at least 100 ms), as JSON in a
    /// topic of its own: [`STATUS_TOPIC`](crate::driver::source::STATUS_TOPIC). The browser page
    /// shows it. A source without topics cannot have it.
    #[cfg(feature = "status")]
    pub fn status(mut self, interval: impl Into<Span>) -> Self {
        self.status = Some(interval.into());
        self
    }

    /// Skips states that are equal to the monitor's.
    pub fn on_change(mut self, is_on: bool) -> Self {
        self.params.on_change = is_on;
        self
    }

    /// Trusts the monitor with this certificate (`quic://`); call it again to trust further ones.
    pub fn pin(mut self, fingerprint: Fingerprint) -> Self {
        (self.dialling, self.dialled) = (self.dialling.pin(fingerprint), None);
        self
    }

    /// Trusts monitors whose certificate an authority of this file has signed (`quic://`).
    pub fn ca_file(mut self, pem: impl Into<PathBuf>) -> Self {
        (self.dialling, self.dialled) = (self.dialling.ca_file(pem), None);
        self
    }

    /// Shows this certificate to the monitor (`quic://`).
    pub fn identity_files(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        (self.dialling, self.dialled) = (self.dialling.identity_files(cert, key), None);
        self
    }

    /// Shows this token to the monitor (`quic://`).
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        (self.dialling, self.dialled) = (self.dialling.token(token), None);
        self
    }

    /// Replaces trust, certificate and token.
    pub fn dialling(mut self, dialling: Dialling) -> Self {
        (self.dialling, self.dialled) = (dialling, None);
        self
    }

    /// Adds a path by this interface or local address.
    pub fn via(mut self, path: ViaPath) -> Self {
        self.paths.vias.push(path);
        self
    }

    /// Replaces the paths and the scheduler.
    pub fn paths(mut self, paths: SourcePaths) -> Self {
        self.paths = paths;
        self
    }

    /// The scheduler for several paths; `freshest` by default.
    pub fn scheduler(mut self, scheduler: SchedulerConfig) -> Self {
        self.paths.scheduler = scheduler;
        self
    }

    /// The code points (DSCP) of updates and of acks; by default 0 for updates, and the monitor's
    /// choice for acks.
    pub fn marks(mut self, updates: Dscp, acks: Option<AckMark>) -> Self {
        (self.params.dscp, self.params.ack_mark) = (updates, acks);
        self
    }

    /// Receives the topics that the monitor sends
    /// ([`MonitorBuilder::topic`](crate::MonitorBuilder::topic)).
    #[cfg(feature = "monitor")]
    pub fn receive(mut self) -> Self {
        self.receiving.get_or_insert_with(MaxAges::default);
        self
    }

    /// Maximum age of received topics that match the pattern, such as `monitor/cmd`: older states
    /// are not delivered. Implies [`SourceBuilder::receive`].
    #[cfg(feature = "monitor")]
    pub fn max_age(mut self, pattern: &str, limit: Duration) -> Self {
        let limit = session::MaxAge::new(pattern, limit.into());
        self.receiving.get_or_insert_with(MaxAges::default).add(limit);
        self
    }

    /// Reads the files of certificates and tokens now instead of in `spawn`, for processes that
    /// drop privileges in between.
    ///
    /// # Errors
    /// As [`SourceBuilder::spawn`].
    pub fn read_files(mut self) -> Result<Self, Error> {
        self.dialled = Some(self.dial()?);
        Ok(self)
    }

    fn dial(&self) -> Result<Dialled, Error> {
        let url = self.url.clone()?;
        let (transport, token) = (self.dialling.transport(&url)?, self.dialling.shown_token(&url)?);
        Ok(Dialled { monitor: url.remote(), transport, token })
    }

    /// Opens the sockets, and runs the source on a thread of its own.
    ///
    /// # Errors
    /// [`Error`] describes an invalid setting or a failed system call. An unreachable monitor is
    /// not an error.
    pub fn spawn(self) -> Result<Source, Error> {
        let (mut driver, ended) = self.prepare()?;
        let Ended { topics, shared, .. } = &ended;
        let (topics, shared, stop) = (topics.clone(), Arc::clone(shared), Stop::new());
        #[cfg(feature = "monitor")]
        let receiving = ended.receiving.clone();
        let (reported, stopped_by) = (Arc::clone(&shared), stop.clone());
        let run = move || {
            let _ended = ended;
            driver.run(&stopped_by, None, &mut Watch(reported))?;
            Ok(driver.report())
        };
        let running = Running::spawn("freshline source", stop, run)?;
        Ok(Source {
            topics,
            shared,
            running,
            #[cfg(feature = "monitor")]
            receiving,
        })
    }

    /// The driver with its sockets, and the application's end of it.
    pub(crate) fn prepare(mut self) -> Result<(driver::Source, Ended), Error> {
        let clock = Clock::real();
        let topics = self.make_topics(&clock, random()?);
        #[cfg(feature = "monitor")]
        let receiving = self.take_receiving(&clock);
        let states = states(&self.topics, &topics);
        let driver = self.build_with(states)?;
        #[cfg(feature = "monitor")]
        let driver = match &receiving {
            Some(receiving) => driver.receiving(receiving.incoming()?),
            None => driver,
        };
        let ended = Ended {
            topics,
            shared: Arc::new(Shared::new(clock)),
            #[cfg(feature = "monitor")]
            receiving,
        };
        Ok((driver, ended))
    }

    /// Builds a source without a thread and without [`Topic`] handles; see
    /// [`driver`](crate::driver). For an event loop, use [`SourceBuilder::polled`].
    ///
    /// # Errors
    /// As [`SourceBuilder::spawn`], and [`Error::Setting`] with a [`SourceBuilder::topic`] or
    /// [`SourceBuilder::receive`], which `states` and [`driver::Source::receiving`] take the place
    /// of.
    pub fn build(self, states: States) -> Result<driver::Source, Error> {
        #[cfg(feature = "monitor")]
        let receives = self.receiving.is_some();
        #[cfg(not(feature = "monitor"))]
        let receives = false;
        if !self.topics.is_empty() || receives {
            let why = "`build` takes the states as an argument; use `spawn` or `polled`";
            return Err(Error::Setting { setting: "`topic` or `receive`", why });
        }
        self.build_with(states)
    }

    /// The received states, if receiving is enabled.
    #[cfg(feature = "monitor")]
    pub(crate) fn take_receiving(&mut self, clock: &Clock) -> Option<Receiving> {
        self.receiving.take().map(|max_ages| Receiving::new(clock.clone(), max_ages))
    }

    fn build_with(mut self, states: States) -> Result<driver::Source, Error> {
        check_keep_alive(self.params.keep_alive)?;
        let dialled = self.dialled.take();
        let Dialled { monitor, transport, token } = dialled.map_or_else(|| self.dial(), Ok)?;
        let params = SourceParams { token, ..self.params };
        let given = params.max_state;
        let driver = driver::Source::new(SourceConfig {
            monitor,
            transport,
            paths: self.paths,
            params,
            law: self.law.build(),
            states,
        })?;
        check_max_state(driver.session(), given)?;
        #[cfg(feature = "status")]
        if let Some(interval) = self.status {
            check_status(driver.session(), interval)?;
            return Ok(driver.with_status(interval));
        }
        Ok(driver)
    }

    /// Handles for the topics, or for the one state without a name. `stream` is a random number of
    /// this source, which distinguishes its records from those of others.
    pub(crate) fn make_topics(&mut self, clock: &Clock, stream: u64) -> Vec<Topic> {
        let max_state = self.params.max_state;
        let limits = || topic::Limits { max_state, clock: clock.clone() };
        for (number, topic) in (1..).zip(&mut self.topics) {
            // Of the source's session alone: its records live as long as it does.
            if let TopicKind::Every { stream: id @ StreamId(0), .. } = &mut topic.kind {
                *id = StreamId(stream.wrapping_add(number).max(1));
            }
        }
        let made = self
            .topics
            .iter()
            .map(|topic| Topic::new(&topic.name, &topic.kind, topic.is_urgent, limits()));
        match self.topics.is_empty() {
            true => vec![Topic::new("", &TopicKind::Latest, false, limits())],
            false => made.collect(),
        }
    }
}

/// A number that differs from that of other processes and sources.
fn random() -> Result<u64, Error> {
    let stream = new_stream();
    stream.map(|stream| stream.0).map_err(|error| Error::Random(error.to_string()))
}

/// The driver's access to the states.
pub(crate) fn states(params: &[TopicParams], topics: &[Topic]) -> States {
    match params {
        [] => States::Of(topics[0].sampler()),
        params => States::Topics(
            params
                .iter()
                .zip(topics)
                .map(|(params, topic)| driver::Topic {
                    params: params.clone(),
                    sampler: topic.sampler(),
                })
                .collect(),
        ),
    }
}

impl Shared {
    pub(crate) fn new(clock: Clock) -> Self {
        let number = || AtomicU64::new(0);
        let events = Events::new(clock.is_real());
        Self { clock, rate: number(), delivered: number(), is_open: number(), events }
    }
}

/// Notifies the application that the thread has ended, also by a panic.
pub(crate) struct Ended {
    pub(crate) topics: Vec<Topic>,
    pub(crate) shared: Arc<Shared>,
    #[cfg(feature = "monitor")]
    pub(crate) receiving: Option<Receiving>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        #[cfg(feature = "monitor")]
        self.receiving.iter().for_each(|receiving| receiving.board().close());
        self.topics.iter().for_each(Topic::close);
        self.shared.is_open.store(0, Ordering::Relaxed);
        self.shared.events.close();
    }
}

/// Reports events to the application.
pub(crate) struct Watch(pub(crate) Arc<Shared>);

impl driver::Watch for Watch {
    fn event(&mut self, _: Time, _: &session::Source, event: &driver::Event<'_>) {
        use driver::Event;
        let reported = match event {
            Event::Session(session::SourceEvent::Opened) => SourceEvent::Opened,
            Event::Session(session::SourceEvent::Silent) => SourceEvent::Silent,
            Event::Session(session::SourceEvent::Closed(why)) => SourceEvent::Closed(*why),
            Event::Link(LinkEvent::Lost(why)) => SourceEvent::Unreachable(why.to_string()),
            Event::Link(LinkEvent::Unreachable) => {
                SourceEvent::Unreachable("no program listens at the monitor's address".into())
            }
            Event::Link(LinkEvent::Waiting(why)) => SourceEvent::Unreachable(why.clone()),
            Event::NoSample(why) => SourceEvent::Trouble((*why).to_owned()),
            Event::TooLarge(why) => SourceEvent::Trouble(why.to_string()),
            Event::KeyRefused { why, .. } => SourceEvent::Trouble(why.to_string()),
            Event::RecordRefused { why, .. } => SourceEvent::Trouble(why.to_string()),
            _ => return,
        };
        self.0.events.put(reported);
    }

    fn turn(&mut self, _: Time, source: &session::Source) {
        let shared = &self.0;
        shared.rate.store(source.law().rate().per_second().to_bits(), Ordering::Relaxed);
        let is_open = source.reach() == Reach::Open;
        shared.is_open.store(is_open.into(), Ordering::Relaxed);
        if let Some(acked) = source.newest_acked() {
            shared.delivered.store(acked.generated_at.as_nanos(), Ordering::Relaxed);
        }
    }
}
