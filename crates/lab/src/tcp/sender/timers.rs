//! The retransmission timeout (RFC 6298 section 5) and the tail loss probe (RFC 8985 section 7).

use freshline_core::unit::{Span, Time};

use super::{Repair, Sender, State};
use crate::tcp::congestion::Signal;
use crate::tcp::recovery::{Cause, Episode};

/// The additional delay of a probe when a lone segment is in flight: its ack may be delayed.
const DELAYED_ACK: Span = Span::from_millis(200);
/// The minimum additional delay of a probe, as in Linux.
const MIN_PROBE_MARGIN: Span = Span::from_millis(2);

#[derive(Debug, Default)]
pub(super) struct Timers {
    timeout: Option<Time>,
    probe: Option<Time>,
    /// A probe is to be sent.
    probe_due: bool,
    /// A probe that is not answered; there is at most one.
    probing: Option<Probe>,
}

impl Timers {
    pub(super) fn next(&self) -> Option<Time> {
        Time::earliest([self.timeout, self.probe])
    }

    pub(super) fn take_probe(&mut self) -> bool {
        std::mem::take(&mut self.probe_due)
    }

    /// A probe is sent, which ends at `end`.
    pub(super) fn on_probe(&mut self, end: u64, content: Content) {
        self.probing = Some(Probe { end, content });
    }

    /// Whether an ack shows that a probe has repaired a loss (RFC 8985 section 7.4): data sent
    /// after it is acknowledged, and no duplicate was reported.
    pub(super) fn probe_repaired(&mut self, acked_to: u64, ack: Kind) -> bool {
        let Some(Probe { end, content }) = self.probing else { return false };
        let beyond = acked_to > end;
        let answered = match content {
            Content::New => acked_to >= end,
            Content::Repetition => beyond || acked_to == end && ack != Kind::News,
        };
        if answered || ack == Kind::Duplicate {
            self.probing = None;
        }
        content == Content::Repetition && beyond && ack != Kind::Duplicate
    }
}

#[derive(Debug, Clone, Copy)]
struct Probe {
    end: u64,
    content: Content,
}

/// The content of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// New data.
    New,
    /// The last segment, as a retransmission.
    Repetition,
}

/// The meaning of an ack for a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It delivers data.
    News,
    /// It reports a duplicate.
    Duplicate,
    /// Neither.
    Repetition,
}

impl Sender {
    /// The time given by [`Sender::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.rack.deadline().is_some_and(|at| at <= now) {
            self.look_for_losses(now);
        }
        if self.timers.timeout.is_some_and(|at| at <= now) {
            self.on_rto(now);
        } else if self.timers.probe.is_some_and(|at| at <= now) {
            let at = self.may_leave_at(now);
            // A delayed probe is cancelled by an ack or the timeout.
            self.timers.probe = Some(at).filter(|at| *at > now);
            if self.timers.probe.is_none() {
                self.timers.probe_due = true;
                self.arm_timeout(now);
            }
        }
    }

    /// Arms the timeout from now on, or from the time at which its segment may be sent again.
    pub(super) fn arm_timeout(&mut self, now: Time) {
        let is_waiting = self.board.is_first_waiting();
        let from = if is_waiting { self.may_leave_at(now) } else { now };
        self.timers.timeout = Some(from + self.rtt.rto());
    }

    /// Arms the probe timer from now on, unless another event will bring an ack.
    pub(super) fn arm_probe(&mut self, now: Time) {
        self.timers.probe = None;
        let Some(srtt) = self.rtt.srtt() else { return };
        if self.params.repair == Repair::Blip {
            return;
        }
        if self.episode.is_some() || self.timers.probing.is_some() || self.board.sacked() > 0 {
            return;
        }
        let margin = if self.board.outstanding() == 1 { DELAYED_ACK } else { MIN_PROBE_MARGIN };
        let at = now + srtt * 2 + margin;
        self.timers.probe = Some(at).filter(|at| self.timers.timeout.is_some_and(|by| *at < by));
    }

    /// The cumulative ack has advanced: restarts the timers for the outstanding segments.
    pub(super) fn rearm(&mut self, now: Time) {
        if self.board.is_empty() {
            (self.timers.timeout, self.timers.probe) = (None, None);
        } else {
            self.arm_timeout(now);
            self.arm_probe(now);
        }
    }

    fn on_rto(&mut self, now: Time) {
        self.rtt.back_off();
        self.timers.probe = None;
        if self.state == State::Connecting {
            self.arm_timeout(now);
            self.handshake_due = true;
            return;
        }
        self.stats.timeouts += 1;
        self.timers.probing = None;
        let before = self.window().get();
        match self.params.repair {
            Repair::Linux => self.rack.handle_timeout(now, &mut self.board),
            Repair::Blip => {
                self.go_back();
                self.board.first_is_lost();
            }
        }
        self.arm_timeout(now);
        if self.episode.is_none() {
            self.law.on_congestion(now, Signal::Loss);
        }
        self.law.on_rto(now);
        let until = self.board.sent_to();
        self.episode = Some(Episode::new(Cause::Timeout, until, before, self.law.window().get()));
    }
}
