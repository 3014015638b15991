//! The one loop in which endpoints run: wake up, take in what came, do what is due, send, sleep.

use freshline_core::unit::Time;
use mio::Events;
use mio::event::Event;

use crate::clock::Clock;
use crate::sleeper::Sleeper;
use crate::stop::Stop;
use crate::system::SystemError;

/// Events of the poll that are taken in one turn; the others come in the next.
const EVENTS_A_TURN: usize = 256;

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// All that has come was taken in.
    Idle,
    /// There may be more, of which the poll does not report again: the next turn follows at once.
    Busy,
    /// There is nothing more to do.
    Over,
}

impl Turn {
    pub(crate) fn busy_if(is_busy: bool) -> Self {
        if is_busy { Self::Busy } else { Self::Idle }
    }
}

/// An endpoint with its sockets.
pub(crate) trait Driven {
    /// Why it cannot go on.
    type Error: From<SystemError>;

    /// The clock, and what it sleeps by.
    fn sleeper(&mut self) -> (Clock, &mut Sleeper);

    /// Something that the poll watches has an event.
    fn on_ready(&mut self, _event: &Event) {}

    /// Takes in what has come, does what is due, and sends what may leave.
    fn turn(&mut self) -> Result<Turn, Self::Error>;

    /// When the next turn is due although nothing comes.
    fn poll_timeout(&mut self) -> Option<Time>;

    /// Says goodbye to its peers.
    fn close(&mut self, now: Time);
}

/// Runs an endpoint until `stop`, until `until` has come, or until it is over.
pub(crate) fn run<D: Driven>(
    driven: &mut D,
    stop: &Stop,
    until: Option<Time>,
) -> Result<(), D::Error> {
    stop.wakes(driven.sleeper().1.waker());
    let mut events = Events::with_capacity(EVENTS_A_TURN);
    loop {
        for event in &events {
            driven.on_ready(event);
        }
        let turn = driven.turn()?;
        let now = driven.sleeper().0.now();
        if turn == Turn::Over || stop.is_stopped() || until.is_some_and(|end| now >= end) {
            driven.close(now);
            return Ok(());
        }
        let at_once = (turn == Turn::Busy).then_some(now);
        let wake = Time::earliest([at_once, driven.poll_timeout(), until]);
        let (clock, sleeper) = driven.sleeper();
        sleeper.sleep(clock.now(), wake, &mut events)?;
    }
}

/// Turns of an endpoint in a caller's own loop, which waits for the descriptor of its [`Sleeper`].
pub(crate) struct Turns {
    events: Events,
}

impl Turns {
    /// None yet; the first is due at once.
    pub(crate) fn new<D: Driven>(driven: &mut D) -> Result<Self, D::Error> {
        let (clock, sleeper) = driven.sleeper();
        let now = clock.now();
        sleeper.ring(now, Some(now))?;
        Ok(Self { events: Events::with_capacity(EVENTS_A_TURN) })
    }

    /// Takes in what has come, does what is due, and lets the descriptor be readable when the next turn is due; whether
    /// there is one. It does not wait.
    pub(crate) fn turn<D: Driven>(&mut self, driven: &mut D) -> Result<bool, D::Error> {
        let (clock, sleeper) = driven.sleeper();
        let now = clock.now();
        sleeper.sleep(now, Some(now), &mut self.events)?;
        for event in &self.events {
            driven.on_ready(event);
        }
        let turn = driven.turn()?;
        let now = driven.sleeper().0.now();
        if turn == Turn::Over {
            driven.close(now);
            return Ok(false);
        }
        let at_once = (turn == Turn::Busy).then_some(now);
        let wake = Time::earliest([at_once, driven.poll_timeout()]);
        let (clock, sleeper) = driven.sleeper();
        sleeper.ring(clock.now(), wake)?;
        Ok(true)
    }
}
