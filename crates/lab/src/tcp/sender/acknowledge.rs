//! Processing of an ack, in the order of its steps.

use freshline_core::path::Acked;
use freshline_core::unit::{Packets, Span, Time};

use super::timers::Kind;
use super::{Repair, Sender, State};
use crate::tcp::congestion::{Ack, Signal};
use crate::tcp::rack::Circumstances;
use crate::tcp::recovery::{Cause, Episode, Progress};
use crate::tcp::scoreboard::How;
use crate::tcp::segment::{SackBlocks, Segment};

/// The number of consecutive duplicate acks after which BLIP goes back (`tcplib.c`).
const BLIP_DUPLICATES: u32 = 2;

/// When the segments that an ack delivers were sent, counting only segments sent once.
#[derive(Debug, Clone, Copy, Default)]
struct Flight {
    /// The first and the last below the cumulative ack.
    acked: Option<(Time, Time)>,
    /// The first and the last beyond it.
    sacked: Option<(Time, Time)>,
    retransmission_acked: bool,
    /// A segment was retransmitted, and the timestamp returned is from before that (Eifel, RFC
    /// 3522).
    original_arrived: bool,
}

impl Sender {
    /// A segment of the receiver has arrived.
    pub fn on_segment(&mut self, now: Time, segment: &Segment) {
        if !segment.flags.ack || self.state == State::Idle {
            return;
        }
        self.echo = Some(segment.sent_at);
        if segment.flags.syn {
            self.on_syn_ack(now, segment);
        }
        if self.state == State::Open {
            self.window_end = self.window_end.max(segment.ack.saturating_add(segment.window));
            self.on_ack(now, segment);
        }
    }

    fn on_syn_ack(&mut self, now: Time, segment: &Segment) {
        // A repetition means that this end's ack was lost.
        self.handshake_due = true;
        if self.state == State::Connecting {
            self.state = State::Open;
            self.timers = Default::default();
            self.rtt.reset_backoff();
            if let Some(echo) = segment.echo {
                self.sample_rtt(now, now.since(echo), now.since(echo));
            }
            self.last_sent_at = now;
        }
    }

    fn on_ack(&mut self, now: Time, segment: &Segment) {
        let prior_in_flight = self.board.in_flight();
        let prior_delivered = self.rate.delivered();

        // 1. The scoreboard: which segments have been delivered, and when they were sent.
        let (flight, advances) = self.take_delivered(now, segment);

        // 2. The round trip.
        let newest_rtt = self.measure_rtt(now, segment, flight, advances);

        // 3. The tail loss probe.
        if advances {
            self.rtt.reset_backoff();
        }
        let delivered = self.rate.delivered() - prior_delivered;
        let kind = if segment.sack.reports_duplicate(segment.ack) {
            self.rack.on_duplicate(self.board.acked_to(), self.board.sent_to());
            Kind::Duplicate
        } else if delivered > 0 {
            Kind::News
        } else {
            Kind::Repetition
        };
        if self.timers.probe_repaired(self.board.acked_to(), kind) {
            self.reduce(now, Signal::Probed);
        }

        // 4. Recovery: its end, its beginning.
        if flight.original_arrived && self.episode.is_some_and(|it| it.cause != Cause::Mark) {
            self.take_back(now);
        }
        self.leave_episode(now);
        let lost = match self.params.repair {
            Repair::Linux => self.look_for_losses(now),
            Repair::Blip => self.count_duplicates(now, advances),
        };
        if segment.flags.ece && self.params.ecn && self.episode.is_none() {
            self.reduce(now, Signal::Mark);
        }
        if advances {
            self.rearm(now);
        }

        // 5. The window.
        let in_flight = self.board.in_flight();
        if let Some(episode) = &mut self.episode {
            episode.on_ack(Progress { delivered, in_flight, safe: advances && lost == 0 });
        }
        let rate = self.rate.sample(self.rtt.min());
        self.law.on_ack(
            now,
            &Ack {
                delivered: Packets::new(delivered),
                lost: Packets::new(lost),
                prior_in_flight: Packets::new(prior_in_flight),
                in_flight: Packets::new(in_flight),
                rtt: newest_rtt,
                min_rtt: self.rtt.min().unwrap_or(Span::ZERO),
                total_delivered: Packets::new(self.rate.delivered()),
                rate,
                marked: segment.flags.ece,
                acked_to: self.board.acked_to(),
                sent_to: self.board.sent_to(),
                recovering: self.episode.is_some_and(|episode| episode.window().is_some()),
                window_limited: self.window_use.limited,
                peak: Packets::new(self.window_use.peak),
            },
        );
    }

    /// Marks the segments that `segment` delivers. Returns their flight, and whether the cumulative
    /// ack advances.
    fn take_delivered(&mut self, now: Time, segment: &Segment) -> (Flight, bool) {
        let mut flight = Flight::default();
        let min_rtt = self.rtt.min().unwrap_or(Span::ZERO);
        let left_edge = self.board.acked_to();
        let Self { board, rack, rate, acked, params, .. } = self;
        let sack = match params.repair {
            Repair::Linux => segment.sack,
            Repair::Blip => SackBlocks::default(),
        };
        let advances = board.on_ack(segment.ack, sack, |sent, how| {
            rate.on_delivered(now, sent.sent_at, sent.then);
            // Beyond a hole, the echo is of a segment before it.
            let echo = segment.echo.filter(|_| how == How::Acked);
            rack.on_delivered(now, sent, echo, min_rtt);
            if let Some(again_at) = sent.again_at {
                flight.retransmission_acked |= how == How::Acked;
                // The echo is of the segment at the left edge.
                let original = echo.is_some_and(|echo| echo < again_at);
                flight.original_arrived |= sent.seq == left_edge && original;
                return;
            }
            if let Some(wait) = sent.device_wait {
                acked.push(Acked { round_trip: now.since(sent.sent_at), wait });
            }
            let ends = match how {
                How::Acked => &mut flight.acked,
                How::Sacked => &mut flight.sacked,
            };
            let first = ends.map_or(sent.sent_at, |(first, _)| first);
            *ends = Some((first, sent.sent_at));
        });
        (flight, advances)
    }

    /// Measures the round trip from segments sent only once, or else from the timestamp (RFC 7323
    /// section 4.1). Returns that of the newest segment delivered.
    fn measure_rtt(
        &mut self,
        now: Time,
        segment: &Segment,
        flight: Flight,
        advances: bool,
    ) -> Option<Span> {
        let acked = flight.acked.filter(|_| !flight.retransmission_acked);
        let (oldest, newest) = match (acked, flight.sacked) {
            (None, None) => {
                let echo = segment.echo.filter(|_| advances)?;
                self.sample_rtt(now, now.since(echo), now.since(echo));
                return None;
            }
            (Some((oldest, _)), Some((_, newest))) => (oldest, newest),
            (Some(ends), None) | (None, Some(ends)) => ends,
        };
        self.sample_rtt(now, now.since(oldest), now.since(newest));
        Some(now.since(newest))
    }

    fn sample_rtt(&mut self, now: Time, oldest: Span, newest: Span) {
        self.rtt.on_sample(now, oldest, newest);
        self.stats.rtt_samples += 1;
        self.stats.rtt_sum += oldest;
    }

    fn leave_episode(&mut self, now: Time) {
        if self.episode.is_some_and(|episode| self.board.acked_to() >= episode.until) {
            self.episode = None;
            self.rack.on_recovered();
            self.law.on_recovered(now);
        }
    }

    /// Undoes the response to a loss: the segments were only late.
    fn take_back(&mut self, now: Time) {
        self.stats.needless_recoveries += 1;
        self.episode = None;
        self.rack.on_recovered();
        self.law.on_needless(now);
    }

    /// Lets RACK mark lost segments, and opens a recovery if there are new ones. Returns their
    /// number.
    pub(super) fn look_for_losses(&mut self, now: Time) -> u64 {
        if self.params.repair == Repair::Blip {
            return 0;
        }
        let path = Circumstances {
            recovering: self.episode.is_some_and(|episode| episode.cause != Cause::Mark),
            srtt: self.rtt.srtt().unwrap_or(Span::ZERO),
            min_rtt: self.rtt.min().unwrap_or(Span::ZERO),
        };
        let lost = self.rack.detect(now, &mut self.board, path);
        if lost > 0 {
            // The retransmission may be delayed by spacing; the timeout must not expire for that.
            if self.law.spacing().is_some() && self.board.is_first_waiting() {
                self.arm_timeout(now);
            }
            match &mut self.episode {
                None => self.reduce(now, Signal::Loss),
                // The present reduction is enough, but now there is something to repair.
                Some(episode) if episode.cause == Cause::Mark => episode.cause = Cause::Loss,
                Some(_) => {}
            }
        }
        lost
    }

    /// As in BLIP: with the second consecutive ack that acknowledges nothing, all segments in
    /// flight count as lost. Returns their number.
    fn count_duplicates(&mut self, now: Time, advances: bool) -> u64 {
        if advances || self.board.is_empty() || self.episode.is_some() {
            self.duplicates = 0;
            return 0;
        }
        self.duplicates += 1;
        if self.duplicates < BLIP_DUPLICATES {
            return 0;
        }
        self.duplicates = 0;
        let lost = self.go_back();
        self.reduce(now, Signal::Loss);
        self.arm_timeout(now);
        lost
    }

    /// All segments in flight count as lost. Returns their number.
    pub(super) fn go_back(&mut self) -> u64 {
        let lost = self.board.in_flight();
        while self.board.oldest_in_flight().is_some() {
            self.board.oldest_is_lost();
        }
        lost
    }

    fn reduce(&mut self, now: Time, signal: Signal) {
        if self.episode.is_some() {
            return;
        }
        let before = self.window().get();
        self.law.on_congestion(now, signal);
        let cause = match signal {
            Signal::Loss | Signal::Probed => {
                self.stats.fast_recoveries += 1;
                Cause::Loss
            }
            Signal::Mark => {
                self.stats.mark_reductions += 1;
                self.announce_reduced = true;
                Cause::Mark
            }
        };
        let until = self.board.sent_to();
        self.episode = Some(Episode::new(cause, until, before, self.law.window().get()));
    }
}
