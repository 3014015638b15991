//! Wake-ups with microsecond accuracy.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use freshline_core::unit::{Span, Time};
use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// A timer that wakes a [`mio::Poll`].
///
/// The timeout of `epoll_wait` is in whole ms and may be extended by the kernel's timer slack; a
/// `timerfd` has neither problem. It need not be read: setting it again rearms it.
#[derive(Debug)]
pub struct Alarm {
    timer: TimerFd,
    /// The time to which it was last set.
    set_to: Option<Time>,
}

impl Alarm {
    /// A disarmed alarm.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Self { timer: TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?, set_to: None })
    }

    /// Makes a poll that begins `now` return at `wake`, and not before: returns the timeout to give
    /// to it. `None` means never; a due time needs no alarm.
    pub fn poll_until(&mut self, now: Time, wake: Option<Time>) -> io::Result<Option<Duration>> {
        if wake.is_some_and(|wake| wake <= now) {
            return Ok(Some(Duration::ZERO));
        }
        // In a virtual machine, setting a timer takes some microseconds, reading it far less.
        if wake != self.set_to || self.timer.get()?.is_none() {
            self.set(wake.map(|wake| wake.since(now)))?;
            self.set_to = wake;
        }
        Ok(None)
    }

    /// Rings once after `wait`, replacing any earlier setting; `None` means never.
    fn set(&self, wait: Option<Span>) -> io::Result<()> {
        let Some(wait) = wait else { return Ok(self.timer.unset()?) };
        // Zero would disarm the timer, and a wait of centuries is beyond the kernel's range.
        let wait = wait.clamp(Span::from_nanos(1), Span::from_secs(365 * 86_400));
        let wait = TimeSpec::from_duration(Duration::from(wait));
        Ok(self.timer.set(Expiration::OneShot(wait), TimerSetTimeFlags::empty())?)
    }
}

impl Source for Alarm {
    fn register(&mut self, registry: &Registry, token: Token, on: Interest) -> io::Result<()> {
        SourceFd(&self.timer.as_fd().as_raw_fd()).register(registry, token, on)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, on: Interest) -> io::Result<()> {
        SourceFd(&self.timer.as_fd().as_raw_fd()).reregister(registry, token, on)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        SourceFd(&self.timer.as_fd().as_raw_fd()).deregister(registry)
    }
}
