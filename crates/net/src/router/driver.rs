//! The event loop of a router.

use std::io;
use std::sync::Arc;

use freshline_core::router::RouterReport;
use freshline_core::unit::{Span, Time};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::control::{ControlSocket, Serving};
use super::gate::Gate;
use super::order::{Desk, Orders};
use super::shaper::Shaper;
use super::watchdog::Watchdog;
use super::{RouterError, system};
use crate::alarm::Alarm;
use crate::clock::Clock;
use crate::notify::Notifier;
use crate::stop::Stop;
use crate::waker::Waker;

const GATE: Token = Token(0);
const ALARM: Token = Token(1);
const WAKER: Token = Token(2);

/// Drives a shaper by the clock and by other wake-ups.
pub(super) struct Driver<G: Gate> {
    shaper: Shaper<G>,
    poll: Poll,
    alarm: Alarm,
    waker: Arc<Waker>,
    desk: Desk,
    _serving: Serving,
}

impl<G: Gate> Driver<G> {
    /// The time limit for sending the queued packets when the router ends.
    const LINGER: Span = Span::from_secs(1);
    /// The maximum number of flows in a report.
    const FLOWS: usize = 20;

    /// Starts with the shaper's gate open; orders arrive on `control`.
    pub(super) fn new(shaper: Shaper<G>, control: ControlSocket) -> Result<Self, RouterError> {
        let (poll, alarm, waker) = wakeups(&shaper).map_err(system("wait for packets"))?;
        let desk = Desk::new(Arc::clone(&waker));
        let serving = control.serve(desk.orders()).map_err(system("listen for orders"))?;
        Ok(Self { shaper, poll, alarm, waker, desk, _serving: serving })
    }

    /// A handle with which other threads give orders.
    pub(super) fn orders(&self) -> Orders {
        self.desk.orders()
    }

    /// See [`Router::run`](super::Router::run).
    pub(super) fn run(
        mut self,
        stop: &Stop,
        until: Option<Time>,
    ) -> Result<RouterReport, RouterError> {
        stop.wakes(Arc::clone(&self.waker));
        let clock = Clock::new();
        let mut events = Events::with_capacity(16);
        let mut last = None;
        let mut watchdog = Watchdog::new(self.shaper.gate().lease(), Notifier::from_env());
        loop {
            if last.is_none() {
                watchdog.turn(clock.awake(), self.shaper.gate_mut());
            }
            self.shaper.turn();
            self.shaper.check_bypass();
            self.desk.attend(|order| {
                self.shaper.obey(order)?;
                Ok(self.shaper.report(Self::FLOWS))
            });
            if self.shaper.is_gone() {
                return Err(RouterError::DeviceGone(self.shaper.device().to_owned()));
            }
            let now = clock.now();
            if last.is_none() && (stop.is_stopped() || until.is_some_and(|until| now >= until)) {
                self.shaper.close();
                watchdog.end();
                last = Some(now + Self::LINGER);
                continue;
            }
            if last.is_some_and(|last| now >= last || self.shaper.is_empty()) {
                return Ok(self.shaper.report(Self::FLOWS));
            }
            let at_once = self.shaper.is_busy().then_some(now);
            let sign = watchdog.wait(clock.awake()).filter(|_| last.is_none());
            let sign = sign.map(|wait| now + wait);
            let wake = Time::earliest([at_once, self.shaper.poll_timeout(), last.or(until), sign]);
            let timeout = self.alarm.poll_until(now, wake).map_err(system("set a timer"))?;
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled.map_err(system("wait for packets"))?,
            }
            if events.iter().any(|event| event.token() == GATE) {
                self.shaper.wake();
            }
        }
    }
}

fn wakeups<G: Gate>(shaper: &Shaper<G>) -> io::Result<(Poll, Alarm, Arc<Waker>)> {
    let poll = Poll::new()?;
    let mut alarm = Alarm::new()?;
    let readable = shaper.gate().readable();
    poll.registry().register(&mut SourceFd(&readable), GATE, Interest::READABLE)?;
    poll.registry().register(&mut alarm, ALARM, Interest::READABLE)?;
    let waker = Arc::new(Waker::of_poll(poll.registry(), WAKER)?);
    Ok((poll, alarm, waker))
}
