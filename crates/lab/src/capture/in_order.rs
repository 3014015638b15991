//! Frames in the order of their times, where the file has them nearly so.
//!
//! Captures of several interfaces or queues are written block by block, each in order: neighbours
//! may be swapped, frames far apart are not. A window of frames is therefore held back, and the
//! earliest of them is handed on. What comes later than that is handed on at once, and counted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use freshline_core::unit::Time;

use super::Frame;
use super::LinkType;

/// Frames that are held back.
const FRAMES: usize = 1024;
/// Bytes of them, in all.
const BYTES: usize = 8 << 20;

/// The window.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    /// The earliest first; those of one time in the order of the file.
    held: BinaryHeap<Reverse<Held>>,
    bytes: usize,
    next: u64,
    /// The time of the last one that was handed on.
    passed: Time,
    /// Frames that came too late to be put in order.
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
    /// Takes a frame, and hands on what must not wait any longer.
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

    /// Hands on all that is left.
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

    /// The times at which frames are handed on, and how many were out of order.
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
