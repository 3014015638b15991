//! The medium: the frames on the air, and the time from which each station counts slots again.
//!
//! | station | counts from |
//! |---|---|
//! | any, after a frame that was received | the end of its acknowledgement + AIFS |
//! | the sender of a failed frame | see [`Recovery`] |
//! | others after an unreadable frame | its end + EIFS − DIFS + AIFS |
//!
//! IEEE 802.11-2016, 10.22.2.4. A collision is unreadable for all stations that did not take part
//! in it, and so is a frame that its receiver lost to noise.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::category::{Access, Category};
use super::frame::Received;
use super::parts::Delivered;
use super::rules::{Recovery, Rules};
use super::timing::Timing;
use crate::unit::{Span, Time};

/// The queues of one station in one category. Contenders compete for the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Contender {
    pub(super) station: u32,
    pub(super) category: Category,
}

impl Contender {
    /// Its index among all contenders; higher categories of a station have higher indices.
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

/// A frame or A-MPDU on the air, and its result.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sending {
    pub(super) by: Contender,
    pub(super) flow: usize,
    pub(super) mode: usize,
    /// The start of the data frame, after its protection.
    pub(super) begin: Time,
    /// The end of the data.
    pub(super) end: Time,
    /// When it ends if its RTS collides; `None` if the data follows in any case.
    pub(super) silent_from: Option<Time>,
    /// The duration of the response, if there is one.
    pub(super) response: Span,
    pub(super) mpdus: usize,
    pub(super) received: usize,
}

/// The medium.
#[derive(Debug)]
pub(super) struct Medium {
    timing: Timing,
    rules: Rules,
    /// The interframe space, per category.
    aifs: [Span; Category::COUNT],
    /// While the medium is busy, when it becomes idle again.
    pub(super) busy_until: Option<Time>,
    /// When the present busy or idle period began.
    pub(super) since: Time,
    /// The present transmissions, or the last ones.
    pub(super) sendings: Vec<Sending>,
    /// Whether the last transmission was unreadable.
    unreadable: bool,
    /// From when on stations that did not transmit count slots in the present idle period, per
    /// category.
    starts: [Time; Category::COUNT],
}

impl Medium {
    /// An idle medium for `stations` stations.
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

    /// Marks the medium busy until all present transmissions and their responses have ended.
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

    /// Marks the medium idle from `at` on; returns how long it was busy.
    pub(super) fn free(&mut self, at: Time) -> Span {
        let busy = at.since(self.since);
        let cannot_read = self.unreadable && self.rules.eifs;
        let extension = if cannot_read { self.timing.error_extension() } else { Span::ZERO };
        self.starts = self.aifs.map(|aifs| at + extension + aifs);
        (self.busy_until, self.since) = (None, at);
        busy
    }

    /// From when on stations that did not transmit count slots in the present idle period, per
    /// category.
    pub(super) fn starts(&self) -> [Time; Category::COUNT] {
        self.starts
    }

    /// The contenders of the stations that transmitted.
    pub(super) fn senders(&self) -> impl Iterator<Item = u32> {
        let stations = self.sendings.iter().map(|sending| sending.by.station);
        stations
            .flat_map(|station| Category::ALL.map(|category| Contender { station, category }.id()))
    }

    /// From when on `sender` counts slots in the present idle period.
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

/// A sink that adds packets that arrive at `at` to `outbox`, which is in the order of arrival.
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

    /// From when on stations 0, 1 and 2 count slots, in µs, after station 0 sent for 100 µs and, in
    /// a collision, station 1 for 200 µs.
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
