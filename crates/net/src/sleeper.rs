//! The sleep of a loop's thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use freshline_core::unit::{Span, Time};
use mio::{Events, Interest, Poll, Registry, Token};

use crate::alarm::Alarm;
use crate::system::{SystemError, system};
use crate::waker::Waker;

/// A poll, a timer that ends its sleep with microsecond accuracy, and a waker for other threads.
pub(crate) struct Sleeper {
    poll: Poll,
    alarm: Alarm,
    waker: Arc<Waker>,
}

impl Sleeper {
    /// Creates a sleeper; the timer and the waker have these tokens.
    pub(crate) fn new([alarm_token, waker_token]: [Token; 2]) -> Result<Self, SystemError> {
        let poll = Poll::new().map_err(system("make a poll"))?;
        let registry = poll.registry();
        let mut alarm = Alarm::new().map_err(system("make a timer"))?;
        registry
            .register(&mut alarm, alarm_token, Interest::READABLE)
            .map_err(system("watch a timer"))?;
        let waker = Waker::of_poll(registry, waker_token).map_err(system("make a waker"))?;
        Ok(Self { poll, alarm, waker: Arc::new(waker) })
    }

    /// The registry for sockets.
    pub(crate) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// The waker for other threads.
    pub(crate) fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// Makes the descriptor readable when an event arrives, and from `wake` on.
    pub(crate) fn ring(&mut self, now: Time, wake: Option<Time>) -> Result<(), SystemError> {
        // An alarm for a past time would not be set.
        let wake = wake.map(|wake| wake.max(now + Span::from_nanos(1)));
        self.alarm.poll_until(now, wake).map(drop).map_err(system("set a timer"))
    }

    /// The descriptor of its poll.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.poll.registry().as_fd()
    }

    /// Sleeps until an event arrives, another thread wakes it, or until the time `wake`; `events`
    /// receives the events.
    pub(crate) fn sleep(
        &mut self,
        now: Time,
        wake: Option<Time>,
        events: &mut Events,
    ) -> Result<(), SystemError> {
        let timeout = self.alarm.poll_until(now, wake).map_err(system("set a timer"))?;
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                events.clear();
                Ok(())
            }
            polled => polled.map_err(system("wait for its sockets")),
        }
    }
}
