//! The medium: the frames on the air, and the time from which each station counts it as idle again.
//!
//! | station | counts from |
//! |---|---|
//! | any, after a frame that was read | the end of its acknowledgement + AIFS |
//! | the sender of a frame that failed | as [`Recovery`] says |
//! | others after a frame that could not be read | its end + EIFS − DIFS + AIFS |
//!
//! IEEE 802.11-2016, 10.22.2.4. A collision is unreadable for all stations that did not take part in it, and
//! so is a frame that its receiver lost to noise.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::category::{Access, Category};
use super::frame::Received;
use super::parts::Delivered;
use super::rules::{Recovery, Rules};
use super::timing::Timing;
use crate::unit::{Span, Time};

/// One station's queues in one category: those which contend with each other for the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Contender {
    pub(super) station: u32,
    pub(super) category: Category,
}

impl Contender {
    /// Its place among all contenders; higher categories of a station come later.
    #[inline]
    pub(super) fn id(self) -> u32 {
        self.station * Category::COUNT as u32 + self.category as u32
    }

    #[inline]
    pub(super) fn of(id: u32) -> Self {
        let (station, category) = (id / Category::COUNT as u32, id as usize % Category::COUNT);
        Self { station, category: Category::ALL[category] }
    }
}

/// A frame or A-MPDU on the air, with what became of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sending {
    pub(super) by: Contender,
    pub(super) flow: usize,
    pub(super) mode: usize,
    /// The start of the data frame, behind its protection.
    pub(super) begin: Time,
    /// The end of the data.
    pub(super) end: Time,
    /// When it ends if its request to send collides; `None` where the data follows all the same.
    pub(super) silent_from: Option<Time>,
    /// How long the response takes, if there is one.
    pub(super) response: Span,
    pub(super) mpdus: usize,
    pub(super) received: usize,
}

/// The medium.
#[derive(Debug)]
pub(super) struct Medium {
    timing: Timing,
    rules: Rules,
    /// By category, the interframe space.
    aifs: [Span; Category::COUNT],
    /// When it is idle again, while it is busy.
    pub(super) busy_until: Option<Time>,
    /// Since when it is busy, or idle.
    pub(super) since: Time,
    /// What is on the air, or was last.
    pub(super) sendings: Vec<Sending>,
    /// Whether what was last on the air could not be read.
    unreadable: bool,
    /// By category, when those who did not send count, in the idle period that goes on.
    starts: [Time; Category::COUNT],
}

impl Medium {
    /// An idle medium for so many stations.
    pub(super) fn new(stations: u32, timing: Timing, rules: Rules, access: &Access) -> Self {
        let aifs = Category::ALL.map(|category| timing.aifs(access.params(category).aifsn));
        Self {
            timing,
            rules,
            aifs,
            busy_until: None,
            since: Time::ZERO,
            sendings: Vec::with_capacity(stations as usize),
            unreadable: false,
            starts: aifs.map(|aifs| Time::ZERO + aifs),
        }
    }

    /// Whether more than one frame is on the air.
    pub(super) fn is_collision(&self) -> bool {
        self.sendings.len() > 1
    }

    /// Busy until the last of what is on the air has ended, with the responses.
    pub(super) fn occupy(&mut self) {
        let sifs = self.timing.sifs;
        let end = |sending: &Sending| match sending.received {
            0 => sending.end,
            _ => sending.end + sifs + sending.response,
        };
        let last = self.sendings.iter().max_by_key(|sending| end(sending));
        self.unreadable = last.is_some_and(|last| last.received == 0);
        self.busy_until = last.map(end);
    }

    /// The medium is idle from `at` on; for how long it was busy.
    pub(super) fn free(&mut self, at: Time) -> Span {
        let busy = at.since(self.since);
        let cannot_read = self.unreadable && self.rules.eifs;
        let extension = if cannot_read { self.timing.error_extension() } else { Span::ZERO };
        self.starts = self.aifs.map(|aifs| at + extension + aifs);
        (self.busy_until, self.since) = (None, at);
        busy
    }

    /// By category, when those that did not send start to count in the idle period that goes on.
    pub(super) fn starts(&self) -> [Time; Category::COUNT] {
        self.starts
    }

    /// The contenders of stations that sent.
    pub(super) fn senders(&self) -> impl Iterator<Item = u32> {
        let stations = self.sendings.iter().map(|sending| sending.by.station);
        stations
            .flat_map(|station| Category::ALL.map(|category| Contender { station, category }.id()))
    }

    /// When `sender` starts to count in the idle period that goes on.
    #[inline]
    pub(super) fn start(&self, sender: Contender) -> Time {
        let category = sender.category as usize;
        let aifs = self.aifs[category];
        match self.sendings.iter().find(|sending| sending.by.station == sender.station) {
            None => self.starts[category],
            Some(own) if own.received == 0 => {
                let timeout = own.end + self.timing.ack_timeout();
                match self.rules.recovery {
                    Recovery::AtOnce => self.since + aifs,
                    Recovery::Timeout => timeout.max(self.since + aifs),
                    Recovery::TimeoutThenAifs => timeout.max(self.since) + aifs,
                }
            }
            Some(_) => self.since + aifs,
        }
    }
}

/// A sink that puts packets that arrive at `at` into `outbox`, which is in the order of arrival.
pub(super) fn into<P>(
    outbox: &mut VecDeque<Delivered<P>>,
    at: Time,
    from: u32,
    to: u32,
) -> impl FnMut(P, Received) {
    move |packet, frame| {
        let delivered = Delivered { at, from, to, frame, packet };
        if outbox.back().is_none_or(|last| last.at <= at) {
            outbox.push_back(delivered);
        } else {
            let place = outbox.partition_point(|other| other.at <= at);
            outbox.insert(place, delivered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wlan::mac::Standard;

    fn contender(station: u32) -> Contender {
        Contender { station, category: Category::BestEffort }
    }

    /// From when on stations 0, 1 and 2 count, in µs, after 0 sent for 100 µs and, if it was a
    /// collision, 1 for 200 µs.
    fn starts(rules: Rules, received: usize, collision: bool) -> [u64; 3] {
        let mut medium = Medium::new(3, Timing::of(Standard::A), rules, &Access::DCF);
        for (station, micros) in [(0, 100), (1, 200)].into_iter().take(1 + usize::from(collision)) {
            medium.sendings.push(Sending {
                by: contender(station),
                flow: 0,
                mode: 0,
                begin: Time::ZERO,
                end: Time::ZERO + Span::from_micros(micros),
                silent_from: None,
                response: Span::from_micros(32),
                mpdus: 1,
                received,
            });
        }
        medium.occupy();
        medium.free(medium.busy_until.unwrap());
        [0, 1, 2].map(|station| medium.start(contender(station)).as_nanos() / 1_000)
    }

    #[test]
    fn everybody_waits_for_difs_after_an_acknowledgement() {
        assert_eq!(starts(Rules::DCF, 1, false), [100 + 16 + 32 + 34; 3]);
    }

    #[test]
    fn after_noise_the_sender_waits_for_its_timeout_and_the_others_for_eifs() {
        assert_eq!(starts(Rules::DCF, 0, false), [100 + 45, 100 + 94, 100 + 94]);
        assert_eq!(starts(Rules::EDCA, 0, false), [100 + 45 + 34, 100 + 94, 100 + 94]);
        assert_eq!(starts(Rules::BIANCHI, 0, false), [100 + 34; 3]);
    }

    #[test]
    fn after_a_collision_all_wait_for_the_end_of_the_longest_frame() {
        assert_eq!(starts(Rules::DCF, 0, true), [200 + 34, 200 + 45, 200 + 94]);
    }
}
