//! Sorts frames by time, if the file has them nearly in order.
//!
//! Captures of several interfaces or queues are written block by block, each in order. So
//! neighbouring frames may be swapped, but not frames far apart. Therefore a window of frames is
//! held back, and the earliest of them is passed on. A frame that is earlier than one already
//! passed on is passed on at once, and counted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use freshline_core::unit::Time;

use super::Frame;
use super::LinkType;

/// The maximum number of frames held back.
const FRAMES: usize = 1024;
/// Their maximum total size in bytes.
const BYTES: usize = 8 << 20;

/// The window.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    /// The earliest first; frames with equal times in the order of the file.
    held: BinaryHeap<Reverse<Held>>,
    bytes: usize,
    next: u64,
    /// The time of the last frame passed on.
    passed: Time,
    /// The number of frames that were too late to be sorted.
    pub(super) out_of_order: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    at: Time,
    number: u64,
    link: u32,
    wire_len: usize,
    bytes: Vec<u8>,
}

impl InOrder {
    /// Adds a frame, and passes on frames that exceed the window.
    pub(super) fn put(&mut self, frame: &Frame<'_>, on_frame: &mut impl FnMut(&Frame<'_>)) {
        self.bytes += frame.bytes.len();
        self.held.push(Reverse(Held {
            at: frame.at,
            number: self.next,
            link: frame.link.number(),
            wire_len: frame.wire_len,
            bytes: frame.bytes.to_vec(),
        }));
        self.next += 1;
        while self.held.len() > FRAMES || self.bytes > BYTES {
            self.pass(on_frame);
        }
    }

    /// Passes on all remaining frames.
    pub(super) fn finish(&mut self, on_frame: &mut impl FnMut(&Frame<'_>)) {
        while !self.held.is_empty() {
            self.pass(on_frame);
        }
    }

    fn pass(&mut self, on_frame: &mut impl FnMut(&Frame<'_>)) {
        let Some(Reverse(Held { at, link, wire_len, bytes, .. })) = self.held.pop() else { return };
        self.bytes -= bytes.len();
        self.out_of_order += u64::from(at < self.passed);
        self.passed = self.passed.max(at);
        on_frame(&Frame { at, link: LinkType::from_number(link), wire_len, bytes: &bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times of frames in the order in which they are passed on, and the number of frames out
    /// of order.
    fn order(times: impl IntoIterator<Item = u64>) -> (Vec<u64>, u64) {
        let (mut window, mut found) = (InOrder::default(), Vec::new());
        let mut on_frame = |frame: &Frame<'_>| found.push(frame.at.as_nanos());
        for at in times {
            let at = Time::from_nanos(at);
            let frame = Frame { at, link: LinkType::Raw, wire_len: 3, bytes: b"abc" };
            window.put(&frame, &mut on_frame);
        }
        window.finish(&mut on_frame);
        assert_eq!(window.bytes, 0);
        let out_of_order = window.out_of_order;
        (found, out_of_order)
    }

    #[test]
    fn neighbours_are_put_in_order_and_strays_are_counted() {
        assert_eq!(order([3, 1, 2, 2]), (vec![1, 2, 2, 3], 0));
        let (found, out_of_order) = order((10..3000).chain([5]));
        assert_eq!((found.len(), out_of_order), (2991, 1));
        let swapped = (0..3000).map(|n| if n % 500 == 0 { n + 400 } else { n });
        let (found, out_of_order) = order(swapped);
        assert!(found.is_sorted() && out_of_order == 0);
    }
}
