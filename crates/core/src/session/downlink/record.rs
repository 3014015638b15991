//! The record of a client at its server of packets.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::cmp::Ordering;
use core::num::NonZeroU16;

use super::feed::{Feed, Pending};
use super::pace::Pace;
use crate::session::PathMarks;
use crate::session::clock_offset::ClockOffset;
use crate::unit::{Span, Time};
use crate::wire::{Join, Report, SessionId};
use crate::wlan::{self, StationId};

/// The number of packets remembered per client: the last second at 200 Mbit/s. 192 kB per client.
pub const REMEMBERED: usize = 16_384;

/// The key of a client in its server, valid as long as the client is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(pub(super) u32);

impl ClientKey {
    /// A small number, as an index for the caller's own tables. It is reused after a client has
    /// left.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The client's station number in the law.
    pub fn station(self) -> StationId {
        StationId(self.0)
    }
}

/// One client at its server.
#[derive(Debug)]
pub struct ClientRecord<P> {
    /// The running number of the client. Unlike its session, it is not secret.
    pub number: u64,
    /// Its session. An attacker who knows it and has its token can redirect its packets.
    pub session: SessionId,
    /// The destination of its packets.
    pub peer: P,
    /// The name given by the client; may be empty.
    pub name: Box<str>,
    /// When it joined.
    pub joined_at: Time,
    /// When its last message arrived.
    pub heard_at: Time,
    /// Packets written so far.
    pub packets: u64,
    /// Payload bytes of these.
    pub payload_bytes: u64,
    /// Reports taken so far.
    pub reports: u64,
    /// The measurements of the last report.
    pub seen: Option<wlan::Report>,
    /// The number of received packets by the last report, modulo 2³².
    pub received: u32,
    /// The maximum number of packets per frame by the last report.
    pub max_packets: Option<NonZeroU16>,
    /// The round trip of the last report, without the time for which the client held it.
    pub rtt: Option<Span>,
    /// The one-way delay of the newest packet in the last report; the error is at most half the
    /// minimum round trip.
    pub delay: Option<Span>,
    /// The offset of the client's clock.
    pub clock_offset: ClockOffset,
    /// Whether the path preserves the code points of packets and reports.
    pub marks: PathMarks,
    /// The credential of its session; see [`ClientRecord::credential`].
    pub(super) credential: u64,
    pub(super) pace: Pace,
    pub(super) feed: Feed,
    /// When the last close was sent to it, as there is nothing more to send.
    pub(super) closed_at: Option<Time>,
    /// When the last packets were sent, the oldest first.
    sent_at: VecDeque<Time>,
    /// [`Pace::given_up`] before each of them, in µs modulo 2³².
    given_up: VecDeque<u32>,
    /// When the last report was taken, its newest packet, and its number.
    pub(super) reported: Option<(Time, u64, u32)>,
    /// When the last report of a level was taken.
    pub(super) levelled_at: Option<Time>,
}

impl<P> ClientRecord<P> {
    pub(super) fn new(number: u64, join: &Join<'_>, credential: u64, peer: P, now: Time) -> Self {
        Self {
            number,
            session: join.session,
            peer,
            name: join.opening.name.into(),
            joined_at: now,
            heard_at: now,
            packets: 0,
            payload_bytes: 0,
            reports: 0,
            seen: None,
            received: 0,
            max_packets: None,
            rtt: None,
            delay: None,
            clock_offset: ClockOffset::default(),
            marks: PathMarks::default(),
            credential,
            pace: Pace::new(now),
            feed: Feed::new(),
            closed_at: None,
            sent_at: VecDeque::new(),
            given_up: VecDeque::new(),
            reported: None,
            levelled_at: None,
        }
    }

    /// The credential that opened its session: that of [`Access`](crate::session::Access),
    /// otherwise a keyed digest of the token. Clients with another credential cannot join the
    /// session.
    pub fn credential(&self) -> u64 {
        self.credential
    }

    /// Whether there is nothing to send to it.
    pub fn is_idle(&self) -> bool {
        self.pace.is_idle()
    }

    /// Whether the newest packet of a report was sent at the reported time: this proves its
    /// arrival.
    pub(super) fn has_sent(&self, report: &Report) -> bool {
        self.remembered(report.newest_seq)
            .is_some_and(|at| self.sent_at.get(at) == Some(&report.newest_sent_at))
    }

    /// The total time up to this packet in which more could have been sent, in µs modulo 2³².
    pub(super) fn given_up_before(&self, seq: u64) -> u32 {
        self.remembered(seq).and_then(|at| self.given_up.get(at)).copied().unwrap_or_default()
    }

    /// The index of a packet in the lists of the last packets.
    fn remembered(&self, seq: u64) -> Option<usize> {
        let back = self.packets.checked_sub(seq).filter(|back| *back > 0)?;
        (self.sent_at.len() as u64).checked_sub(back).map(|at| at as usize)
    }

    /// Whether a report is newer than the last one. Its newest packet is proven; its number is not,
    /// and is used only between reports of the same packet: otherwise a corrupted number would
    /// outdate all following reports.
    pub(super) fn is_news(&self, report: &Report) -> bool {
        self.reported.is_none_or(|(_, seq, number)| match report.newest_seq.cmp(&seq) {
            Ordering::Equal => report.number.wrapping_sub(number).cast_signed() > 0,
            order => order.is_gt(),
        })
    }

    /// A packet with this payload is sent now. `takes` is its transmission time on the path;
    /// `catch_up` is the maximum delay that a late driver may make up.
    pub(super) fn on_sent(&mut self, now: Time, payload: usize, takes: Span, catch_up: Span) {
        self.pace.on_sent(now, takes, catch_up);
        if self.sent_at.len() == REMEMBERED {
            self.sent_at.pop_front();
            self.given_up.pop_front();
        }
        self.sent_at.push_back(now);
        self.given_up.push_back(self.pace.given_up().as_micros() as u32);
        self.packets += 1;
        self.payload_bytes += payload as u64;
    }

    /// When an empty packet, or a close, is due as a keep-alive.
    pub(super) fn keep_alive_at(&self, interval: Span) -> Time {
        let last = self.sent_at.back().copied().max(self.closed_at);
        last.map_or(self.joined_at, |last| last + interval)
    }

    /// When its next packet is due, or the next keep-alive.
    pub(super) fn due(&self, interval: Span) -> Time {
        let due = self.pace.due().filter(|_| !self.feed.is_asked());
        due.unwrap_or_else(|| self.keep_alive_at(interval))
    }

    /// When the pending packet is sent.
    pub(super) fn leaves_at(&self) -> Time {
        let due = self.pace.due().filter(|_| self.feed.pending() == Pending::Payload);
        due.unwrap_or(Time::ZERO)
    }

    /// The client is gone: the memory for its packets is not needed any more.
    pub(super) fn forget_packets(&mut self) {
        (self.sent_at, self.given_up) = (VecDeque::new(), VecDeque::new());
        self.feed = Feed::new();
    }
}
