//! A source on real clocks and sockets: takes samples at the moment of sending, at the times of its
//! law.
//!
//! ```text
//!   sampler ──► session::Source ──► link (UDP or QUIC), or one of several ──► monitor
//!                     ▲  what, when and by which                                 │
//!                     └────────────────────────── acks ◄─────────────────────────┘
//! ```
//!
//! One thread, one `mio` poll, one timer. All protocol logic is in [`freshline_core::session`], and
//! `feed` decides which state is sent; this module owns the socket and the clock.

pub(crate) mod engine;
pub(crate) mod feed;
pub(crate) mod paths;
mod polled;
mod receive;
mod report;
pub mod sampler;
pub mod spool;
#[cfg(test)]
mod spooled;
#[cfg(feature = "status")]
mod status;
mod unbound;

use std::error::Error;
use std::sync::Arc;

use freshline_core::path::PathId;
use freshline_core::session::{
    self, KeyError, PathsError, RecordError, SourceEvent, SourceParams, TopicError, TopicId,
    TopicParams,
};
use freshline_core::source::RateLaw;
#[cfg(feature = "status")]
use freshline_core::unit::Span;
use freshline_core::unit::Time;
use freshline_core::wire::OpeningTooLong;
use mio::Token;

use crate::clock::Clock;
use crate::dial::Remote;
use crate::link::LinkError;
use crate::quic;
use crate::run::{self, Driven, Turn};
use crate::sleeper::Sleeper;
use crate::stop::Stop;
use crate::system::{SystemError, system};
use crate::via::SeenBy;
use crate::waker::Waker;
use feed::{Feed, Trouble};
use sampler::{Sampler, StampError, Supply};

pub use crate::link::{LinkEvent, Transport};
pub use crate::via::Via;
pub use paths::SourcePaths;
pub use polled::Polled;
pub use receive::Receive;
pub use report::{KeyReport, PathReport, RecordsReport, SourceReport, TopicReport};
#[cfg(feature = "status")]
pub use status::{MIN_STATUS_INTERVAL, STATUS_TOPIC};
pub use unbound::{UnboundConfig, UnboundSource};

use engine::Engine;
use paths::Place;

const ALARM: Token = Token(1);
const WAKER: Token = Token(2);

/// The configuration of a source.
pub struct SourceConfig {
    /// The monitor: a name, whose addresses are all tried, or one address.
    pub monitor: Remote,
    /// How datagrams are carried.
    pub transport: Transport,
    /// The network interfaces to use.
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
    /// Of one kind, without topics.
    Of(Box<dyn Sampler>),
    /// Of several topics, which share the session and the rate.
    Topics(Vec<Topic>),
    /// Of topics that are discovered while the source runs.
    Found(Box<dyn Supply>),
}

impl States {
    /// The known topics, if there are any, and the origin of the states: the samplers are in the
    /// same order.
    fn split(self) -> (Vec<TopicParams>, Inputs) {
        match self {
            Self::Of(sampler) => (Vec::new(), Inputs::Samplers(vec![sampler])),
            Self::Topics(topics) => {
                let (topics, samplers) =
                    topics.into_iter().map(|topic| (topic.params, topic.sampler)).unzip();
                (topics, Inputs::Samplers(samplers))
            }
            Self::Found(supply) => (Vec::new(), Inputs::Supply(supply)),
        }
    }
}

/// The origin of a source's states.
enum Inputs {
    Samplers(Vec<Box<dyn Sampler>>),
    Supply(Box<dyn Supply>),
}

impl Inputs {
    /// The feed of a session, with its samplers started.
    fn feed(
        self,
        session: &session::Source,
        clock: Clock,
        waker: &Arc<Waker>,
    ) -> Result<Feed, SourceError> {
        match self {
            Self::Supply(supply) => Ok(Feed::supplied_by(supply)),
            Self::Samplers(mut samplers) => {
                for sampler in &mut samplers {
                    let started = sampler.start(clock, Arc::clone(waker));
                    started.map_err(system("start a thread for states"))?;
                }
                Ok(Feed::new(samplers, session))
            }
        }
    }
}

/// One topic of a source.
pub struct Topic {
    /// Its name, weight and limits.
    pub params: TopicParams,
    /// What to send: for a topic with keys, for example [`sampler::Keys`]; for a topic of records,
    /// [`sampler::Records`].
    pub sampler: Box<dyn Sampler>,
}

/// Why a source cannot run, or cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The operating system refused something that the source needs.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The system gave no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
    /// The name or the token is too long.
    #[error(transparent)]
    Opening(#[from] OpeningTooLong),
    /// The topics are invalid.
    #[error(transparent)]
    Topics(#[from] TopicError),
    /// The monitor cannot be dialled by QUIC.
    #[error(transparent)]
    Dial(#[from] quic::DialError),
    /// The paths are invalid.
    #[error(transparent)]
    Paths(#[from] PathsError),
    /// The sampler has failed permanently.
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

/// An event of a running source.
#[derive(Debug)]
pub enum Event<'a> {
    /// The session changed.
    Session(SourceEvent),
    /// The transport changed, of one of its paths.
    Link(&'a LinkEvent),
    /// The interface of a path has appeared or disappeared.
    Path {
        /// The path.
        path: PathId,
        /// Whether the interface exists.
        is_there: bool,
    },
    /// No sample could be taken; it is retried.
    NoSample(&'a str),
    /// A state is too long and was left out; the next one may be shorter.
    TooLarge(TooLarge),
    /// A state of a key was left out, or its removal.
    KeyRefused {
        /// The topic.
        topic: TopicId,
        /// Why.
        why: &'a KeyError,
    },
    /// A record was left out, or several.
    RecordRefused {
        /// The topic.
        topic: TopicId,
        /// Why.
        why: &'a RecordError,
    },
    /// A generation time that the application wrote was not used: the state counts as generated
    /// when it was read. Only the first of each kind is an event; all are counted.
    InvalidStamp {
        /// The topic; `None` for a source without topics.
        topic: Option<TopicId>,
        /// Why.
        why: &'a StampError,
    },
    /// One of several topics has no more states; the others continue.
    TopicOver {
        /// The topic.
        topic: TopicId,
        /// Why its stream cannot be read; `None` if it has ended.
        why: Option<&'a str>,
    },
}

impl<'a> From<&'a Trouble> for Event<'a> {
    fn from(trouble: &'a Trouble) -> Self {
        match trouble {
            Trouble::NoSample(why) => Self::NoSample(why),
            Trouble::TooLarge(state) => Self::TooLarge(*state),
            Trouble::Key { topic, why } => Self::KeyRefused { topic: *topic, why },
            Trouble::Record { topic, why } => Self::RecordRefused { topic: *topic, why },
            Trouble::Stamp { topic, why } => Self::InvalidStamp { topic: *topic, why },
            Trouble::TopicOver { topic, why } => {
                Self::TopicOver { topic: *topic, why: why.as_deref() }
            }
        }
    }
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
    /// The maximum length of a state: [`SourceParams::max_state`], or less if the state would have
    /// too many parts.
    pub max: usize,
}

/// Receives events. Every method has an empty default implementation.
pub trait Watch {
    /// An event has occurred.
    fn event(&mut self, _now: Time, _source: &session::Source, _event: &Event<'_>) {}
    /// The means by which the queue of each path's device is read, in the order of the paths;
    /// called before each [`Watch::turn`] if there are several paths.
    fn queues(&mut self, _seen_by: &mut dyn Iterator<Item = Option<SeenBy>>) {}
    /// A turn of the loop has ended; called after every wake-up.
    fn turn(&mut self, _now: Time, _source: &session::Source) {}
}

impl Watch for () {}

/// A source that is ready to run.
pub struct Source {
    engine: Engine,
    sleeper: Sleeper,
    /// A run has ended, and the session with it.
    has_ended: bool,
}

impl Source {
    /// Opens the socket and starts the session.
    ///
    /// # Errors
    /// [`SourceError`] names the cause.
    pub fn new(config: SourceConfig) -> Result<Self, SourceError> {
        let sleeper = Sleeper::new([ALARM, WAKER])?;
        let engine = Engine::new(config, &Place::alone(&sleeper))?;
        Ok(Self { engine, sleeper, has_ended: false })
    }

    /// Also receives data that the monitor sends to clients of the return direction. To be called
    /// before it runs.
    #[must_use]
    pub fn receiving(mut self, incoming: Box<dyn Receive + Send>) -> Self {
        self.engine.receive(incoming);
        self
    }

    /// Also reports the state of its law and its paths, as JSON in the topic [`STATUS_TOPIC`], once
    /// per `interval`, at least [`MIN_STATUS_INTERVAL`]. Requires topics. To be called before it
    /// runs.
    #[cfg(feature = "status")]
    #[must_use]
    pub fn with_status(mut self, interval: Span) -> Self {
        self.engine.report_status(interval);
        self
    }

    /// After a run: hands out the received data that is still held, as [`Receive::finish`].
    ///
    /// # Errors
    /// Why some of the data is lost.
    pub fn finish_incoming(&mut self, stop: &Stop) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.engine.finish_incoming(stop)
    }

    /// The session, for reports.
    pub fn session(&self) -> &session::Source {
        self.engine.session()
    }

    /// A summary of the run until now.
    pub fn report(&self) -> SourceReport {
        self.engine.report()
    }

    /// Runs until `stop`, until the time `until`, or until the sampler has no more states. A source
    /// runs once: at the end it closes its session and its connections.
    ///
    /// # Errors
    /// [`SourceError`] if it cannot continue, and [`SourceError::Ended`] for another run. Network
    /// problems are not errors: the source tries again.
    pub fn run(
        &mut self,
        stop: &Stop,
        until: Option<Time>,
        watch: &mut dyn Watch,
    ) -> Result<(), SourceError> {
        if self.has_ended {
            return Err(SourceError::Ended);
        }
        self.engine.forget_sleep();
        run::run(&mut Watched { source: self, watch }, stop, until)
    }
}

/// A running source, and the receiver of its events.
struct Watched<'a> {
    source: &'a mut Source,
    watch: &'a mut dyn Watch,
}

impl Driven for Watched<'_> {
    type Error = SourceError;

    fn sleeper(&mut self) -> (Clock, &mut Sleeper) {
        (self.source.engine.clock(), &mut self.source.sleeper)
    }

    fn on_ready(&mut self, event: &mio::event::Event) {
        if event.token() == WAKER {
            self.source.engine.on_woken();
        }
    }

    fn turn(&mut self) -> Result<Turn, SourceError> {
        let Source { engine, sleeper, .. } = &mut *self.source;
        engine.turn(sleeper.registry(), self.watch)
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        self.source.engine.poll_timeout()
    }

    fn close(&mut self, now: Time) {
        self.source.has_ended = true;
        self.source.engine.close(now);
    }
}
