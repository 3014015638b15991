//! A source on real clocks and sockets: samples at the moment of sending, and sends when its law
//! says so.
//!
//! ```text
//!   sampler ──► session::Source ──► link (UDP or QUIC), or one of several ──► monitor
//!                     ▲  what, when and by which                                 │
//!                     └────────────────────────── acks ◄─────────────────────────┘
//! ```
//!
//! One thread, one `mio` poll, one timer. All protocol logic is in [`freshline_core::session`], and
//! `feed` decides which state is sent; here are the socket and the clock.

pub(crate) mod feed;
mod paths;
mod report;
pub mod sampler;

use freshline_core::path::PathId;
use freshline_core::session::{
    self, Datagram, PathsError, Secret, SourceEvent, SourceParams, TopicError, TopicParams,
    TransportState,
};
use freshline_core::source::RateLaw;
use freshline_core::unit::{Bytes, Span, Time};
use freshline_core::wire::OpeningTooLong;
use mio::Token;

use crate::clock::Clock;
use crate::dial::Remote;
use crate::link::{LinkError, SendStatus};
use crate::quic;
use crate::run::{self, Driven, Turn};
use crate::sleeper::Sleeper;
use crate::stop::Stop;
use crate::system::SystemError;
use crate::via::SeenBy;
use feed::{Feed, Trouble};
use sampler::Sampler;

pub use crate::link::{LinkEvent, Transport};
pub use crate::via::Via;
pub use paths::SourcePaths;
pub use report::{PathReport, SourceReport, TopicReport};

use paths::{Change, Links};

const ALARM: Token = Token(1);
const WAKER: Token = Token(2);

/// Datagrams taken from the socket before the timers are looked at again.
const RECEIVES_A_TURN: usize = 256;

/// What a source needs to run.
pub struct SourceConfig {
    /// The monitor: a name, of which every address is tried, or one address.
    pub monitor: Remote,
    /// How datagrams are carried.
    pub transport: Transport,
    /// By which interfaces.
    pub paths: SourcePaths,
    /// The session: name, token, patience.
    pub params: SourceParams,
    /// When to send.
    pub law: Box<dyn RateLaw>,
    /// What to send.
    pub states: States,
}

/// The states of a source.
pub enum States {
    /// Of one kind.
    Of(Box<dyn Sampler>),
    /// Of several topics, which share the session and the rate.
    Topics(Vec<Topic>),
}

/// One topic of a source.
pub struct Topic {
    /// Its name, weight and limits.
    pub params: TopicParams,
    /// What to send.
    pub sampler: Box<dyn Sampler>,
}

/// Why a source cannot run, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The operating system refused something that the source needs.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The system gave no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
    /// Name or token do not fit.
    #[error(transparent)]
    Opening(#[from] OpeningTooLong),
    /// There are no such topics.
    #[error(transparent)]
    Topics(#[from] TopicError),
    /// The monitor cannot be dialled by QUIC.
    #[error(transparent)]
    Dial(#[from] quic::DialError),
    /// There are no such paths.
    #[error(transparent)]
    Paths(#[from] PathsError),
    /// The sampler has failed for good.
    #[error("{0}")]
    Sampler(String),
    /// Its session has ended with a run.
    #[error("this source has ended its session, and cannot run again: make another one")]
    Ended,
}

impl From<LinkError> for SourceError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::System(error) => Self::System(error),
            LinkError::Dial(error) => Self::Dial(error),
        }
    }
}

/// What happens to a running source.
#[derive(Debug)]
pub enum Event<'a> {
    /// The session changed.
    Session(SourceEvent),
    /// The transport changed, of one of its paths.
    Link(&'a LinkEvent),
    /// An interface by which a path leaves is there, or is gone.
    Path {
        /// The path.
        path: PathId,
        /// Whether it is there.
        is_there: bool,
    },
    /// No sample could be taken; it is tried again.
    NoSample(&'a str),
    /// A state is too long and was left out; the next one may be shorter.
    TooLarge(TooLarge),
}

/// A state that is longer than the source sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a state of {given} bytes or more is longer than the limit of {max} bytes: send less, or raise \
     --max-state, and --max-payload of the monitor"
)]
pub struct TooLarge {
    /// Its length in bytes, as far as it was read: at least one more than `max`.
    pub given: usize,
    /// The length of the longest state that is sent: [`SourceParams::max_state`], or less where so many
    /// parts are too many.
    pub max: usize,
}

/// Receives events. Every method has an empty default implementation.
pub trait Watch {
    /// Something has happened.
    fn event(&mut self, _now: Time, _source: &session::Source, _event: &Event<'_>) {}
    /// By which means the queue of each path's device is seen, the first path first; comes before
    /// each [`Watch::turn`] where there are several paths.
    fn queues(&mut self, _seen_by: &mut dyn Iterator<Item = Option<SeenBy>>) {}
    /// A turn of the loop has ended; comes after every wake-up.
    fn turn(&mut self, _now: Time, _source: &session::Source) {}
}

impl Watch for () {}

/// A source that is ready to run.
pub struct Source {
    clock: Clock,
    /// How long the machine had slept when that was last looked at.
    slept: Span,
    sleeper: Sleeper,
    links: Links,
    session: session::Source,
    feed: Feed,
    began_at: Time,
    /// A run has ended, and with it the session.
    has_ended: bool,
    datagram: Vec<u8>,
}

impl Source {
    /// Opens the socket and starts the session.
    ///
    /// # Errors
    /// [`SourceError`] says what is missing.
    pub fn new(config: SourceConfig) -> Result<Self, SourceError> {
        let clock = Clock::new();
        let now = clock.now();
        let sleeper = Sleeper::new([ALARM, WAKER])?;
        let max_datagram = config.transport.max_datagram();
        let (source_paths, monitor) = (&config.paths, &config.monitor);
        let paths = source_paths.paths()?;
        let links = Links::open(source_paths, config.transport, monitor, &sleeper, clock)?;
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(SourceError::Random)?;
        let params = SourceParams { max_datagram, ..config.params };
        let session = session::Source::new(params, Secret::new(random), config.law, now)?;
        let (topics, mut samplers) = match config.states {
            States::Of(sampler) => (Vec::new(), vec![sampler]),
            States::Topics(topics) => {
                topics.into_iter().map(|topic| (topic.params, topic.sampler)).unzip()
            }
        };
        let session = session.with_topics(topics)?;
        samplers.iter_mut().for_each(|sampler| sampler.start(clock, sleeper.waker()));
        let mut source = Self {
            clock,
            slept: clock.slept(),
            sleeper,
            feed: Feed::new(samplers, &session),
            session: session.over(paths),
            began_at: now,
            has_ended: false,
            datagram: Vec::new(),
            links,
        };
        source.mark_what_is_not_ready(now);
        Ok(source)
    }

    /// The session, for reports.
    pub fn session(&self) -> &session::Source {
        &self.session
    }

    /// A summary of the run until now.
    pub fn report(&self) -> SourceReport {
        let now = self.clock.now();
        SourceReport::of(&self.session, &self.links, self.began_at, now)
    }

    /// Runs until `stop`, or until `until` has come, or the sampler has no more to give. A source runs
    /// once: at the end it closes its session and its connections.
    ///
    /// # Errors
    /// [`SourceError`] where it cannot go on, and [`SourceError::Ended`] for another run. Trouble with the
    /// network is not an error: the source tries again.
    pub fn run(
        &mut self,
        stop: &Stop,
        until: Option<Time>,
        watch: &mut dyn Watch,
    ) -> Result<(), SourceError> {
        if self.has_ended {
            return Err(SourceError::Ended);
        }
        self.slept = self.clock.slept();
        run::run(&mut Watched { source: self, watch }, stop, until)
    }

    /// Tells the session which of its paths can carry nothing (yet).
    fn mark_what_is_not_ready(&mut self, now: Time) {
        for id in self.links.ids().filter(|id| !self.links.is_ready(*id)) {
            let state = match self.links.is_dialling(id) {
                true => TransportState::Connecting,
                false => TransportState::Down,
            };
            self.session.handle_transport(now, id, state);
        }
    }

    /// Reports to the session what has left.
    fn count_bytes(&mut self) {
        let bytes = self.links.take_wire_bytes();
        if bytes > Bytes::ZERO {
            self.session.handle_wire_bytes(self.clock.now(), bytes);
        }
    }

    /// Sends what may leave.
    fn transmit(&mut self) -> Result<(), SourceError> {
        // The sample may have taken its time.
        let now = self.clock.now();
        while let Some(transmit) = self.session.poll_transmit(now, &mut self.datagram) {
            let datagram = &self.datagram[..transmit.len];
            let sent =
                self.links.send(transmit.path, now, transmit.dscp, datagram, transmit.seq)?;
            if sent == SendStatus::Replaced {
                self.session.handle_replaced(&transmit);
            }
        }
        self.count_bytes();
        Ok(())
    }
}

/// A source that runs, and who hears of it.
struct Watched<'a> {
    source: &'a mut Source,
    watch: &'a mut dyn Watch,
}

impl Driven for Watched<'_> {
    type Error = SourceError;

    fn sleeper(&mut self) -> (Clock, &mut Sleeper) {
        (self.source.clock, &mut self.source.sleeper)
    }

    fn on_ready(&mut self, event: &mio::event::Event) {
        if event.token() == WAKER {
            self.source.feed.on_woken(&mut self.source.session);
        }
    }

    fn turn(&mut self) -> Result<Turn, SourceError> {
        let slept = self.source.clock.slept();
        if slept > self.source.slept {
            self.source.slept = slept;
            // Before acks are read that came just before the sleep, and would count as a round trip.
            self.source.session.handle_resume(self.source.clock.now());
        }
        let busy = self.receive()?;
        let now = self.source.clock.now();
        self.source.session.handle_timeout(now);
        self.attend(now)?;
        self.source.transmit()?;
        let Self { source, watch } = self;
        if source.links.are_several() {
            watch.queues(&mut source.links.seen_by());
        }
        watch.turn(now, &source.session);
        Ok(if source.session.has_finished() { Turn::Over } else { Turn::busy_if(busy) })
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        Time::earliest([self.source.session.poll_timeout(), self.source.links.poll_timeout()])
    }

    fn close(&mut self, now: Time) {
        let Source { session, links, datagram, has_ended, .. } = &mut *self.source;
        *has_ended = true;
        session.close();
        while let Some(transmit) = session.poll_transmit(now, datagram) {
            links.close(transmit.path, now, &datagram[..transmit.len]);
        }
    }
}

impl Watched<'_> {
    /// Takes in what has come, and lets the links look at the time; whether there may be more.
    fn receive(&mut self) -> Result<bool, SourceError> {
        self.look_around()?;
        let mut busy = false;
        for id in self.source.links.ids() {
            busy |= self.receive_by(id)?;
        }
        self.source.mark_what_is_not_ready(self.source.clock.now());
        // Of QUIC's handshakes and acknowledgements.
        self.source.count_bytes();
        Ok(busy)
    }

    /// Looks which interfaces there are, and begins what is due to be dialled.
    fn look_around(&mut self) -> Result<(), SourceError> {
        let Source { links, session, sleeper, clock, .. } = &mut *self.source;
        let now = clock.now();
        links.look_around(now, sleeper.registry(), |path, change| {
            let is_there = matches!(change, Change::There);
            if !is_there {
                session.handle_transport(now, path, TransportState::Down);
            }
            self.watch.event(now, session, &Event::Path { path, is_there });
        })?;
        Ok(())
    }

    fn receive_by(&mut self, id: PathId) -> Result<bool, SourceError> {
        let mut busy = true;
        for _ in 0..RECEIVES_A_TURN {
            let Source { links, session, clock, .. } = &mut *self.source;
            let on_left = |seq, wait| session.handle_departure(id, seq, wait);
            let Some((datagram, dscp)) = links.receive(id, on_left)? else {
                busy = false;
                break;
            };
            let now = clock.now();
            if session.handle_datagram(now, id, Datagram::marked(datagram, dscp)).is_ok() {
                self.attend(now)?;
            }
        }
        let now = self.source.clock.now();
        self.source.links.handle_timeout(id, now)?;
        while let Some(event) = self.source.links.poll_event(id) {
            let session = &mut self.source.session;
            match event {
                LinkEvent::Ready => session.handle_transport(now, id, TransportState::Ready),
                LinkEvent::Lost(_) => session.handle_transport(now, id, TransportState::Down),
                LinkEvent::Unreachable | LinkEvent::Waiting(_) => {}
            }
            self.watch.event(now, session, &Event::Link(&event));
        }
        Ok(busy)
    }

    /// Does what the session wants, and reports what has happened to it.
    fn attend(&mut self, now: Time) -> Result<(), SourceError> {
        while let Some(event) = self.source.session.poll_event() {
            match event {
                SourceEvent::StateWanted(need) => {
                    let Source { feed, session, .. } = &mut *self.source;
                    let troubles = feed.answer(now, need, session).map_err(SourceError::Sampler)?;
                    troubles.iter().for_each(|trouble| self.report(now, trouble));
                    // By them the update is routed that leaves next.
                    let Source { links, session, clock, .. } = &mut *self.source;
                    links.show_queues(clock.now(), session);
                }
                SourceEvent::RenewTransports { all } => {
                    let Source { links, sleeper, .. } = &mut *self.source;
                    links.renew(now, sleeper.registry(), all)?;
                    self.source.mark_what_is_not_ready(now);
                }
                event => self.watch.event(now, &self.source.session, &Event::Session(event)),
            }
        }
        Ok(())
    }

    fn report(&mut self, now: Time, trouble: &Trouble) {
        let event = match trouble {
            Trouble::NoSample(why) => Event::NoSample(why),
            Trouble::TooLarge(state) => Event::TooLarge(*state),
        };
        self.watch.event(now, &self.source.session, &event);
    }
}
