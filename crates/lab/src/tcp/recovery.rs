//! The transition from a sign of congestion to the reduced window: proportional rate reduction
//! (PRR, RFC 6937 with the choice of its bound by "safe ack", as Linux makes it).
//!
//! ```text
//! in flight > target:  may send  ⌈delivered · target / before⌉ − sent
//! otherwise:           may send  min(target − in flight, max(delivered − sent, delivered by this ack))
//!                                one more if the ack advances and finds no loss
//! ```

/// The reason for an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Segments were lost; PRR governs the window.
    Loss,
    /// A mark was echoed; PRR governs the window.
    Mark,
    /// The retransmission timer has expired; slow start governs the window.
    Timeout,
}

/// An episode of recovery. It ends when everything sent before it is acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Episode {
    pub(super) cause: Cause,
    /// The first offset not sent when it began.
    pub(super) until: u64,
    reduction: Prr,
}

#[derive(Debug, Clone, Copy)]
struct Prr {
    /// The window before.
    before: u64,
    /// The target window.
    target: u64,
    delivered: u64,
    sent: u64,
    window: u64,
}

/// The effect of an ack, as far as PRR is concerned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    pub(super) delivered: u64,
    /// Segments in flight now.
    pub(super) in_flight: u64,
    /// The ack advances, and no new loss was found.
    pub(super) safe: bool,
}

impl Episode {
    /// Windows are in segments.
    pub(super) fn new(cause: Cause, until: u64, before: u64, target: u64) -> Self {
        let reduction =
            Prr { before: before.max(1), target, delivered: 0, sent: 0, window: before };
        Self { cause, until, reduction }
    }

    /// The window that PRR allows, if it governs.
    pub(super) fn window(&self) -> Option<u64> {
        (self.cause != Cause::Timeout).then_some(self.reduction.window)
    }

    pub(super) fn on_sent(&mut self) {
        self.reduction.sent += 1;
    }

    pub(super) fn on_ack(&mut self, ack: Progress) {
        let Prr { before, target, .. } = self.reduction;
        let prr = &mut self.reduction;
        prr.delivered += ack.delivered;
        let owed = prr.delivered.saturating_sub(prr.sent);
        let mut may_send = if ack.in_flight > target {
            (prr.delivered * target).div_ceil(before).saturating_sub(prr.sent)
        } else {
            let bound = owed.max(ack.delivered) + u64::from(ack.safe);
            bound.min(target - ack.in_flight)
        };
        if prr.sent == 0 {
            // The first retransmission goes out at once.
            may_send = may_send.max(1);
        }
        prr.window = ack.in_flight + may_send;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sends_half_as_much_as_is_delivered_and_arrives_at_the_target() {
        // 100 in flight, one of them lost; the other 99 are delivered one by one.
        let mut episode = Episode::new(Cause::Loss, 0, 100, 50);
        let mut in_flight = 99;
        let mut sent = 0;
        for _ in 0..99 {
            in_flight -= 1;
            episode.on_ack(Progress { delivered: 1, in_flight, safe: false });
            while episode.window().unwrap() > in_flight {
                in_flight += 1;
                sent += 1;
                episode.on_sent();
            }
        }
        assert_eq!((in_flight, sent), (50, 50));
    }

    #[test]
    fn after_heavy_loss_it_sends_no_more_than_is_delivered() {
        let mut episode = Episode::new(Cause::Loss, 0, 100, 50);
        episode.on_ack(Progress { delivered: 3, in_flight: 7, safe: false });
        assert_eq!(episode.window(), Some(10));
    }
}
