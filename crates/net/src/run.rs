//! The event loop of all endpoints: wake up, process received datagrams and due timers, send,
//! sleep.

use freshline_core::unit::Time;
use mio::Events;
use mio::event::Event;

use crate::clock::Clock;
use crate::sleeper::Sleeper;
use crate::stop::Stop;
use crate::system::SystemError;

/// The maximum number of events processed per turn; the others follow in the next turn.
const EVENTS_A_TURN: usize = 256;

/// The result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// All input was processed.
    Idle,
    /// There may be more input, which the poll does not report again: the next turn follows at
    /// once.
    Busy,
    /// The endpoint has ended.
    Over,
}

impl Turn {
    pub(crate) fn busy_if(is_busy: bool) -> Self {
        if is_busy { Self::Busy } else { Self::Idle }
    }
}

/// An endpoint with its sockets.
pub(crate) trait Driven {
    /// Why it cannot continue.
    type Error: From<SystemError>;

    /// The clock and the sleeper.
    fn sleeper(&mut self) -> (Clock, &mut Sleeper);

    /// Handles an event of the poll.
    fn on_ready(&mut self, _event: &Event) {}

    /// Processes received datagrams and due timers, and sends due datagrams.
    fn turn(&mut self) -> Result<Turn, Self::Error>;

    /// When the next turn is due, even if no event arrives.
    fn poll_timeout(&mut self) -> Option<Time>;

    /// Sends a close to its peers.
    fn close(&mut self, now: Time);
}

/// Runs an endpoint until `stop`, until the time `until`, or until it has ended.
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

/// Turns of an endpoint in a caller's event loop, which waits for the descriptor of its
/// [`Sleeper`].
pub(crate) struct Turns {
    events: Events,
}

impl Turns {
    /// Starts without a turn; the first is due at once.
    pub(crate) fn new<D: Driven>(driven: &mut D) -> Result<Self, D::Error> {
        let (clock, sleeper) = driven.sleeper();
        let now = clock.now();
        sleeper.ring(now, Some(now))?;
        Ok(Self { events: Events::with_capacity(EVENTS_A_TURN) })
    }

    /// Processes received datagrams and due timers, and makes the descriptor readable when the next
    /// turn is due. Returns `false` when the endpoint has ended. It does not block.
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
