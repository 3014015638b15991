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
mod report;
pub mod sampler;
mod ways;

use freshline_core::path::PathId;
use freshline_core::session::{self, PathsError, Reach, Sample, Secret, SourceEvent, SourceParams};
use freshline_core::source::RateLaw;
use freshline_core::unit::{Bytes, Time};
use freshline_core::wire::{OpeningTooLong, Update};
use mio::{Events, Token};

use crate::clock::Clock;
use crate::dial::Remote;
use crate::link::{LinkError, Sent};
use crate::quic;
use crate::sleeper::Sleeper;
use crate::stop::Stop;
use crate::system::SystemError;
use crate::via::SeenBy;
use feed::{Feed, Trouble};
use sampler::Sampler;

pub use crate::link::{LinkEvent, Transport};
pub use crate::via::Via;
pub use report::{PathReport, SourceReport};
pub use ways::Ways;

use ways::{Change, Links};

const ALARM: Token = Token(1);
const WAKER: Token = Token(2);

/// Openings without an answer after which the socket and the connection are made anew: the host
/// may have moved to another network.
const RENEW_AFTER: u32 = 3;

/// Datagrams taken from the socket before the timers are looked at again.
const RECEIVES_A_TURN: usize = 256;

/// What a source needs to run.
pub struct SourceConfig {
    /// The monitor: a name, of which every address is tried, or one address.
    pub monitor: Remote,
    /// How datagrams are carried.
    pub transport: Transport,
    /// By which interfaces.
    pub ways: Ways,
    /// The session: name, token, patience.
    pub params: SourceParams,
    /// When to send.
    pub law: Box<dyn RateLaw>,
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
    /// The monitor cannot be dialled by QUIC.
    #[error(transparent)]
    Dial(#[from] quic::DialError),
    /// There are no such paths.
    #[error(transparent)]
    Paths(#[from] PathsError),
    /// The sampler has failed for good.
    #[error("{0}")]
    Sampler(String),
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
    /// A state does not fit into a datagram and was left out; the next one may fit.
    TooLarge(TooLarge),
}

/// A state that does not fit into a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a state of {given} bytes does not fit: at most {max} bytes fit beside the header, the name and \
     the token; send less{hint}"
)]
pub struct TooLarge {
    /// Its length in bytes.
    pub given: usize,
    /// The longest that fits.
    pub max: usize,
    /// What else helps.
    pub hint: &'static str,
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
    sleeper: Sleeper,
    links: Links,
    session: session::Source,
    feed: Feed,
    began_at: Time,
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
        let overhead =
            Update::HEADER_LEN + 18 + config.params.name.len() + config.params.token.len();
        let (room, hint_for_more) =
            (config.transport.max_datagram(), config.transport.hint_for_more());
        let (paths, on_change) = (config.ways.paths()?, config.params.on_change);
        let (ways, monitor) = (&config.ways, &config.monitor);
        let links = Links::open(ways, config.transport, monitor, &sleeper, clock)?;
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(SourceError::Random)?;
        let session = session::Source::new(config.params, Secret::new(random), config.law, now)?;
        let mut session = session.over(paths);
        mark_what_is_not_ready(now, &links, &mut session);
        let mut sampler = config.sampler;
        sampler.start(clock, sleeper.waker());
        Ok(Self {
            clock,
            sleeper,
            session,
            feed: Feed::new(sampler, room.saturating_sub(overhead), hint_for_more)
                .on_change(on_change),
            began_at: now,
            datagram: vec![0; room],
            links,
        })
    }

    /// The session, for reports.
    pub fn session(&self) -> &session::Source {
        &self.session
    }

    /// A summary of the run until now.
    pub fn report(&self) -> SourceReport {
        let now = self.clock.now();
        let report = SourceReport::of(&self.session, &self.links, self.began_at, now);
        SourceReport { too_large: self.feed.too_large(), ..report }
    }

    /// Runs until `stop`, or until `until` has come, or the sampler has no more to give.
    ///
    /// # Errors
    /// [`SourceError`] where it cannot go on; trouble with the network is none, it is waited out.
    pub fn run(
        &mut self,
        stop: &Stop,
        until: Option<Time>,
        watch: &mut dyn Watch,
    ) -> Result<(), SourceError> {
        stop.wakes(self.sleeper.waker());
        let mut events = Events::with_capacity(16);
        let mut slept = self.clock.slept();
        loop {
            if self.clock.slept() > slept {
                slept = self.clock.slept();
                // Before acks are read that came just before the sleep, and would count as a round trip.
                self.session.on_wake(self.clock.now());
            }
            let busy = self.receive(watch)?;
            let now = self.clock.now();
            if let Some(event) = self.session.handle_timeout(now) {
                watch.event(now, &self.session, &Event::Session(event));
            }
            self.send_what_is_due(watch)?;
            if self.links.are_several() {
                watch.queues(&mut self.links.seen_by());
            }
            watch.turn(now, &self.session);
            if self.feed.is_over()
                || stop.is_stopped()
                || until.is_some_and(|end| self.clock.now() >= end)
            {
                self.links.close(self.clock.now(), &self.session.close());
                return Ok(());
            }
            // The poll does not tell again of what was left in the socket.
            let at_once = busy.then_some(now);
            let wake_at = self.poll_timeout().into_iter().chain(until).chain(at_once).min();
            if self.sleep(&mut events, wake_at)? {
                self.feed.on_woken();
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let update = self.feed.poll_timeout(self.next_update_at());
        let timer = self.session.poll_timeout().map(|(at, _why)| at);
        Time::earliest([update, timer, self.links.poll_timeout()])
    }

    /// When the session wants to send, unless its links are still being dialled.
    fn next_update_at(&self) -> Option<Time> {
        if self.links.is_dialling() {
            return None;
        }
        Feed::due_at(&self.session)
    }

    /// Sleeps until `wake_at` or until something comes; whether the sampler's waker was it.
    fn sleep(&mut self, events: &mut Events, wake_at: Option<Time>) -> Result<bool, SourceError> {
        self.sleeper.sleep(self.clock.now(), wake_at, events)?;
        Ok(events.iter().any(|event| event.token() == WAKER))
    }

    /// Takes in what has come, and lets the links look at the time; whether there may be more.
    fn receive(&mut self, watch: &mut dyn Watch) -> Result<bool, SourceError> {
        self.look_around(watch)?;
        let mut busy = false;
        for id in self.links.ids() {
            busy |= self.receive_by(id, watch)?;
        }
        // Of QUIC's handshakes and acknowledgements.
        self.count_bytes();
        Ok(busy)
    }

    /// Looks which interfaces there are, and begins what is due to be dialled.
    fn look_around(&mut self, watch: &mut dyn Watch) -> Result<(), SourceError> {
        let Self { links, session, sleeper, clock, .. } = self;
        let now = clock.now();
        links.look_around(now, sleeper.registry(), |path, change| {
            let is_there = matches!(change, Change::There);
            if !is_there {
                session.on_transport_lost(now, path);
            }
            watch.event(now, session, &Event::Path { path, is_there });
        })?;
        Ok(())
    }

    fn receive_by(&mut self, id: PathId, watch: &mut dyn Watch) -> Result<bool, SourceError> {
        let mut busy = true;
        for _ in 0..RECEIVES_A_TURN {
            let Self { links, session, .. } = self;
            let on_left = |seq, wait| session.on_left(id, seq, wait);
            let Some((datagram, dscp)) = links.receive(id, on_left)? else {
                busy = false;
                break;
            };
            let now = self.clock.now();
            if let Ok(event) = self.session.on_marked_datagram(now, id, dscp, datagram) {
                watch.event(now, &self.session, &Event::Session(event));
            }
        }
        let now = self.clock.now();
        self.links.handle_timeout(id, now)?;
        while let Some(event) = self.links.poll_event(id) {
            match event {
                LinkEvent::Ready => self.session.on_transport_ready(now, id),
                LinkEvent::Lost(_) => self.session.on_transport_lost(now, id),
                LinkEvent::Unreachable | LinkEvent::Waiting(_) => {}
            }
            watch.event(now, &self.session, &Event::Link(&event));
        }
        Ok(busy)
    }

    /// Samples and sends if an update is due.
    fn send_what_is_due(&mut self, watch: &mut dyn Watch) -> Result<(), SourceError> {
        let now = self.clock.now();
        if !self.feed.is_due(now, self.next_update_at()) {
            return Ok(());
        }
        // Before the opening and not after it: its answer comes to the socket that it left from.
        if self.session.reach() != Reach::Open {
            let all = self.are_links_in_doubt();
            self.links.renew(now, self.sleeper.registry(), all)?;
            mark_what_is_not_ready(now, &self.links, &mut self.session);
        }
        if self.session.paths().up().next().is_none() {
            self.session.on_attempt(now);
            return Ok(());
        }
        let next = self.feed.next(now, &self.session).map_err(SourceError::Sampler)?;
        if let Some(trouble) = next.trouble {
            let event = match &trouble {
                Trouble::NoSample(why) => Event::NoSample(why),
                Trouble::TooLarge(state) => Event::TooLarge(*state),
            };
            watch.event(now, &self.session, &event);
        }
        if next.is_unchanged {
            self.session.on_unchanged(now);
        }
        next.generated_at.map_or(Ok(()), |generated_at| self.send(generated_at))
    }

    /// Whether openings have gone without an answer for so long that the links may be to blame; not
    /// where a challenge, or a connection that is ready, asks for the next one.
    fn are_links_in_doubt(&self) -> bool {
        let is_due = matches!(self.session.reach(), Reach::Opening { attempts }
            if attempts > 0 && attempts % RENEW_AFTER == 0);
        is_due && !self.session.is_prompted()
    }

    /// Reports to the session what has left.
    fn count_bytes(&mut self) {
        let bytes = self.links.take_wire_bytes();
        if bytes > Bytes::ZERO {
            self.session.on_bytes(self.clock.now(), bytes);
        }
    }

    /// Sends the feed's state.
    fn send(&mut self, generated_at: Time) -> Result<(), SourceError> {
        let before = self.session.last_seq();
        let result = self.send_payload(generated_at);
        let seq = self.session.last_seq().filter(|seq| Some(*seq) != before);
        self.feed.on_sent(generated_at, seq);
        self.count_bytes();
        result
    }

    fn send_payload(&mut self, generated_at: Time) -> Result<(), SourceError> {
        // The sample may have taken its time.
        let now = self.clock.now();
        self.links.show_queues(now, &mut self.session);
        let Some(route) = self.session.route(now) else { return Ok(()) };
        let sample = Sample { generated_at, payload: self.feed.payload() };
        let dscp = self.session.mark();
        for path in route.all() {
            let out = &mut self.datagram;
            let is_first = path == route.first;
            let written = match is_first {
                true => self.session.write_update(now, path, sample, out),
                false => self.session.write_copy(now, path, sample, out),
            };
            let Some(len) = written else { return Ok(()) };
            let seq = self.session.last_seq();
            let sent = self.links.send(path, now, dscp, &self.datagram[..len], seq)?;
            if is_first && sent == Sent::Replaced {
                self.session.on_replaced();
            }
        }
        Ok(())
    }
}

/// Tells a session which of its paths can carry nothing (yet).
fn mark_what_is_not_ready(now: Time, links: &Links, session: &mut session::Source) {
    for id in links.ids().filter(|id| !links.is_ready(*id)) {
        session.on_transport_lost(now, id);
    }
}
