//! Loss detection by time (RACK, RFC 8985 section 6).
//!
//! A segment is lost once a segment sent after it has been delivered, and a round trip and a
//! reordering window have passed since it was sent.
//!
//! The window is a quarter of the minimum round trip. It grows by as much with each round trip in
//! which a segment arrived twice, and shrinks back after 16 recoveries. It is zero while no
//! reordering has been seen and either the sender is recovering or three segments lie beyond a
//! hole.

use freshline_core::unit::{Span, Time};

use super::scoreboard::{Scoreboard, SentSegment};

/// The number of segments beyond a hole that distinguishes loss from reordering (RFC 5681).
const DUPLICATE_THRESHOLD: u64 = 3;
/// The number of recoveries after which a window that has grown shrinks back.
const WIDE_FOR: u32 = 16;
const WIDEST: u64 = 255;

#[derive(Debug, Default)]
pub(super) struct Rack {
    /// The delivered segment that was sent last: when it was sent, and its end.
    newest: Option<(Time, u64)>,
    /// Its round trip.
    rtt: Span,
    /// The highest end offset delivered.
    highest: u64,
    reordering_seen: bool,
    wide: Option<Wide>,
    deadline: Option<Time>,
}

/// A window that has grown.
#[derive(Debug, Clone, Copy)]
struct Wide {
    /// The additional width, in quarters of a round trip.
    more: u64,
    /// When this offset is acknowledged, another duplicate lets it grow again.
    grows_from: u64,
    recoveries_left: u32,
}

/// The state of the path when RACK looks for losses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances {
    pub(super) recovering: bool,
    pub(super) srtt: Span,
    pub(super) min_rtt: Span,
}

impl Rack {
    /// When to look for losses again.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// `sent` was delivered; `echo` is the timestamp returned, if it belongs to this segment.
    pub(super) fn on_delivered(
        &mut self,
        now: Time,
        sent: &SentSegment,
        echo: Option<Time>,
        min_rtt: Span,
    ) {
        let rtt = now.since(sent.sent_at);
        if sent.again_at.is_some() {
            // The delivered segment may have been the original.
            let original = echo.is_some_and(|echo| echo < sent.sent_at) || rtt < min_rtt;
            if original {
                return;
            }
        } else if sent.end < self.highest {
            self.reordering_seen = true;
        }
        self.highest = self.highest.max(sent.end);
        if self.newest.is_none_or(|newest| newest < (sent.sent_at, sent.end)) {
            self.newest = Some((sent.sent_at, sent.end));
            self.rtt = rtt;
        }
    }

    /// A segment has arrived twice: the retransmission was spurious.
    pub(super) fn on_duplicate(&mut self, acked_to: u64, sent_to: u64) {
        let more = match self.wide {
            Some(wide) if acked_to < wide.grows_from => return,
            Some(wide) => (wide.more + 1).min(WIDEST),
            None => 1,
        };
        self.wide = Some(Wide { more, grows_from: sent_to, recoveries_left: WIDE_FOR });
    }

    /// A recovery is over.
    pub(super) fn on_recovered(&mut self) {
        if let Some(wide) = &mut self.wide {
            wide.recoveries_left -= 1;
            if wide.recoveries_left == 0 {
                self.wide = None;
            }
        }
    }

    /// Marks the segments that are lost by now. Returns their number.
    pub(super) fn detect(&mut self, now: Time, board: &mut Scoreboard, path: Circumstances) -> u64 {
        self.deadline = None;
        let wait = self.rtt + self.window(board, path);
        let mut lost = 0;
        while let Some(oldest) = board.oldest_in_flight()
            && self.newest.is_some_and(|newest| (oldest.sent_at, oldest.end) < newest)
        {
            let due = oldest.sent_at + wait;
            if due > now {
                self.deadline = Some(due);
                break;
            }
            board.oldest_is_lost();
            lost += 1;
        }
        lost
    }

    /// The retransmission timer has expired: segments sent more than a round trip ago are lost
    /// (section 6.3), and the first segment in any case.
    pub(super) fn handle_timeout(&mut self, now: Time, board: &mut Scoreboard) {
        self.deadline = None;
        while board.oldest_in_flight().is_some_and(|oldest| oldest.sent_at + self.rtt <= now) {
            board.oldest_is_lost();
        }
        board.first_is_lost();
    }

    fn window(&self, board: &Scoreboard, path: Circumstances) -> Span {
        let certain = path.recovering || board.sacked() >= DUPLICATE_THRESHOLD;
        if certain && !self.reordering_seen {
            return Span::ZERO;
        }
        let quarters = 1 + self.wide.map_or(0, |wide| wide.more);
        (path.min_rtt / 4 * quarters).min(path.srtt)
    }
}
