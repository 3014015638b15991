//! What a server of packets holds of a client.

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

/// How many packets of a client are remembered: the last second at 200 Mbit/s. 192 kB a client.
pub const REMEMBERED: usize = 16_384;

/// Finds a client in its server as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(pub(super) u32);

impl ClientKey {
    /// A small number, given anew when a client has gone: an index for tables beside the server's.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The client as the law knows it.
    pub fn station(self) -> StationId {
        StationId(self.0)
    }
}

/// One client as its server sees it.
#[derive(Debug)]
pub struct ClientRecord<P> {
    /// How many clients had come, with it. Unlike its session, others may know it.
    pub number: u64,
    /// Its session. Who knows it and has its token can lead its packets elsewhere.
    pub session: SessionId,
    /// Where its packets go.
    pub peer: P,
    /// The name that it gave itself; may be empty.
    pub name: Box<str>,
    /// When it came.
    pub joined_at: Time,
    /// When it was last heard.
    pub heard_at: Time,
    /// Packets written so far.
    pub packets: u64,
    /// Payload bytes of these.
    pub payload_bytes: u64,
    /// Reports taken so far.
    pub reports: u64,
    /// What the last one said.
    pub seen: Option<wlan::Report>,
    /// Packets that have come, as the last one said, modulo 2³².
    pub received: u32,
    /// The maximum number of packets in a frame, as the last one said.
    pub max_packets: Option<NonZeroU16>,
    /// The round trip of the last one, without the time that the client held it.
    pub rtt: Option<Span>,
    /// How long the packet took of which the last one told; at most half the shortest round trip
    /// wrong.
    pub delay: Option<Span>,
    /// How far the client's clock is ahead.
    pub clock_offset: ClockOffset,
    /// Whether the path keeps the code points of packets and reports.
    pub marks: PathMarks,
    /// What its session was opened with; see [`ClientRecord::credential`].
    pub(super) credential: u64,
    pub(super) pace: Pace,
    pub(super) feed: Feed,
    /// When it was sent a close last, as there is nothing more to send.
    pub(super) closed_at: Option<Time>,
    /// When the last packets were sent, the oldest first.
    sent_at: VecDeque<Time>,
    /// What had been given up before each of them ([`Pace::given_up`]), in µs modulo 2³².
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

    /// The credential that opened its session: that of [`Access`](crate::session::Access), otherwise a
    /// keyed digest of the token. Clients that show another credential cannot join the session.
    pub fn credential(&self) -> u64 {
        self.credential
    }

    /// Whether there is nothing to send to it.
    pub fn is_idle(&self) -> bool {
        self.pace.is_idle()
    }

    /// Whether the packet of which a report tells was sent, and then: that proves that it came.
    pub(super) fn has_sent(&self, report: &Report) -> bool {
        self.remembered(report.newest_seq)
            .is_some_and(|at| self.sent_at.get(at) == Some(&report.newest_sent_at))
    }

    /// For how long more could have been sent, in all, until this packet was: in µs modulo 2³².
    pub(super) fn given_up_before(&self, seq: u64) -> u32 {
        self.remembered(seq).and_then(|at| self.given_up.get(at)).copied().unwrap_or_default()
    }

    /// Where a packet is in the lists of the last ones.
    fn remembered(&self, seq: u64) -> Option<usize> {
        let back = self.packets.checked_sub(seq).filter(|back| *back > 0)?;
        (self.sent_at.len() as u64).checked_sub(back).map(|at| at as usize)
    }

    /// Whether a report is newer than the last one. What packet it tells of was proven; its number,
    /// which was not, decides only between reports of the same packet: else one that was damaged on
    /// its way would outdate all that follow.
    pub(super) fn is_news(&self, report: &Report) -> bool {
        self.reported.is_none_or(|(_, seq, number)| match report.newest_seq.cmp(&seq) {
            Ordering::Equal => report.number.wrapping_sub(number).cast_signed() > 0,
            order => order.is_gt(),
        })
    }

    /// A packet with so much payload leaves now. The path takes it for so long, and a late driver
    /// makes up so much.
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

    /// When an empty packet, or a close, shows the client that the server is there.
    pub(super) fn keep_alive_at(&self, interval: Span) -> Time {
        let last = self.sent_at.back().copied().max(self.closed_at);
        last.map_or(self.joined_at, |last| last + interval)
    }

    /// When its next packet is due, or the next keep-alive.
    pub(super) fn due(&self, interval: Span) -> Time {
        let due = self.pace.due().filter(|_| !self.feed.is_asked());
        due.unwrap_or_else(|| self.keep_alive_at(interval))
    }

    /// When what is pending leaves.
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
