//! Web pages: objects that a server sends one after the other.

use freshline_core::unit::{BitRate, Bytes, Span, Time};
use rand::RngExt;
use rand_pcg::Pcg64;

use super::Outlet;

/// A page: a number of objects of the same size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// The number of objects, at least 1.
    pub objects: u64,
    /// The size of all objects together, at least one byte each.
    pub size: Bytes,
}

/// Loads pages, each when the previous one is complete.
///
/// The objects of a page follow each other, each at its own rate, uniformly distributed between two
/// bounds and written block by block. Data that does not fit into the send buffer is queued.
#[derive(Debug)]
pub struct Pages {
    pages: Vec<Page>,
    rates: [BitRate; 2],
    block: Bytes,
    rng: Pcg64,
    /// The page being loaded, when it began, and where in the stream it ends.
    page: usize,
    began_at: Option<Time>,
    end: Bytes,
    /// The bytes of the current object that are still to be written, and the number of objects that
    /// follow.
    object: Bytes,
    objects: u64,
    rate: BitRate,
    next: Time,
    waiting: Bytes,
    /// How long pages took.
    times: Vec<Span>,
}

impl Pages {
    /// The first page begins at `start`; blocks of `block` bytes are written at a time.
    pub fn new(
        start: Time,
        pages: Vec<Page>,
        rates: [BitRate; 2],
        block: Bytes,
        rng: Pcg64,
    ) -> Self {
        Self {
            pages,
            rates,
            block,
            rng,
            page: 0,
            began_at: None,
            end: Bytes::ZERO,
            object: Bytes::ZERO,
            objects: 0,
            rate: rates[0],
            next: start,
            waiting: Bytes::ZERO,
            times: Vec::new(),
        }
    }

    /// When the next block is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        let is_written = self.began_at.is_some() && self.object == Bytes::ZERO && self.objects == 0;
        (!self.is_over() && !is_written).then_some(self.next)
    }

    /// Whether all pages are complete.
    pub fn is_over(&self) -> bool {
        self.page == self.pages.len()
    }

    /// How long a page took, on average, once one is complete.
    pub fn mean(&self) -> Option<Span> {
        let sum = self.times.iter().fold(Span::ZERO, |sum, time| sum + *time);
        (!self.times.is_empty()).then(|| sum / self.times.len() as u64)
    }

    /// How long each page took that is complete.
    pub fn times(&self) -> &[Span] {
        &self.times
    }

    /// Writes the blocks that are due, and as much of the queued data as fits.
    pub fn handle_timeout(&mut self, now: Time, outlet: &mut impl Outlet) {
        while self.poll_timeout().is_some_and(|at| at <= now) {
            if self.began_at.is_none() {
                self.began_at = Some(self.next);
                self.end += self.pages[self.page].size;
                self.objects = self.pages[self.page].objects;
            }
            if self.object == Bytes::ZERO {
                self.begin_object();
            }
            let block = self.block.min(self.object);
            self.object = self.object - block;
            self.waiting += block;
            self.next += self.rate.time_to_send(block).max(Span::from_nanos(1));
        }
        self.waiting = self.waiting - outlet.write(self.waiting);
    }

    /// `delivered` bytes of the stream are at the far end.
    pub fn on_delivered(&mut self, now: Time, delivered: Bytes) {
        if let Some(began_at) = self.began_at.filter(|_| delivered >= self.end) {
            self.times.push(now.since(began_at));
            self.began_at = None;
            self.page += 1;
            self.next = now;
        }
    }

    fn begin_object(&mut self) {
        let Page { objects, size } = self.pages[self.page];
        let each = size.get() / objects;
        // The first object gets the remainder of the division.
        let rest = if self.objects == objects { size.get() % objects } else { 0 };
        self.object = Bytes::new(each + rest);
        self.objects -= 1;
        let [least, most] = self.rates.map(|rate| rate.as_bps());
        self.rate = BitRate::from_bps(self.rng.random_range(least..=most));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Streams;

    /// Accepts this many bytes at once.
    struct Slow(Bytes, Bytes);

    impl Outlet for Slow {
        fn write(&mut self, bytes: Bytes) -> Bytes {
            let taken = bytes.min(self.0);
            self.1 += taken;
            taken
        }

        fn offer(&mut self, _now: Time, _block: Bytes) -> bool {
            unreachable!("only a constant bit rate offers whole blocks")
        }
    }

    #[test]
    fn pages_follow_each_other_whole_and_at_their_rates() {
        let page = |objects, size| Page { objects, size: Bytes::new(size) };
        let rates = [10, 30].map(BitRate::from_mbps);
        let rng = Streams::new(1, 0).stream("pages", 0);
        let pages = vec![page(3, 100_001), page(1, 50_000)];
        let mut pages = Pages::new(Time::ZERO, pages, rates, Bytes::new(1_428), rng);
        let mut outlet = Slow(Bytes::new(5_000), Bytes::ZERO);
        let mut now = Time::ZERO;
        let mut complete = Vec::new();
        while !pages.is_over() {
            now = pages.poll_timeout().unwrap_or(now + Span::from_millis(1));
            pages.handle_timeout(now, &mut outlet);
            pages.on_delivered(now, outlet.1);
            if pages.times().len() > complete.len() {
                complete.push(outlet.1.get());
            }
        }
        assert_eq!(complete, [100_001, 150_001]);
        // 100 kB at 10 to 30 Mbit/s.
        let first = pages.times()[0].as_secs_f64();
        assert!((0.0266..0.081).contains(&first), "{first}");
        assert_eq!(pages.mean(), Some((pages.times()[0] + pages.times()[1]) / 2));
    }
}
