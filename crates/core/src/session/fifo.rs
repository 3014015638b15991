//! A queue that usually holds at most one element.

use alloc::collections::VecDeque;

/// First in, first out. A driver that polls after each input finds one element, which is kept
/// without the cost of a ring.
#[derive(Debug)]
pub(super) struct Fifo<T> {
    first: Option<T>,
    /// The elements after the first; empty while there is no first.
    more: VecDeque<T>,
}

impl<T> Fifo<T> {
    pub(super) fn new() -> Self {
        Self { first: None, more: VecDeque::new() }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    #[inline]
    pub(super) fn push(&mut self, element: T) {
        if self.first.is_none() {
            self.first = Some(element);
        } else {
            self.more.push_back(element);
        }
    }

    /// The same; if it holds `most` elements, the oldest is removed and returned.
    #[inline]
    pub(super) fn push_within(&mut self, most: usize, element: T) -> Option<T> {
        let is_full = self.more.len() + 1 >= most && self.first.is_some();
        let oldest = if is_full { self.pop() } else { None };
        self.push(element);
        oldest
    }

    #[inline]
    pub(super) fn first_mut(&mut self) -> Option<&mut T> {
        self.first.as_mut()
    }

    pub(super) fn first(&self) -> Option<&T> {
        self.first.as_ref()
    }

    /// The newest one.
    pub(super) fn last(&self) -> Option<&T> {
        self.more.back().or(self.first.as_ref())
    }

    /// Takes the newest one.
    pub(super) fn pop_last(&mut self) -> Option<T> {
        self.more.pop_back().or_else(|| self.first.take())
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        let first = self.first.take()?;
        if !self.more.is_empty() {
            self.first = self.more.pop_front();
        }
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn elements_leave_in_their_order_and_the_oldest_gives_way() {
        let mut fifo = Fifo::new();
        let gave_way: Vec<_> = (0..5).filter_map(|number| fifo.push_within(3, number)).collect();
        assert_eq!(gave_way, [0, 1]);
        assert_eq!((fifo.len(), fifo.first_mut().copied()), (3, Some(2)));
        fifo.push(5);
        assert!(core::iter::from_fn(|| fifo.pop()).eq(2..=5));
        assert_eq!((fifo.len(), fifo.pop()), (0, None));
        (6..9).for_each(|number| fifo.push(number));
        assert_eq!(
            (fifo.last().copied(), fifo.pop_last(), fifo.pop()),
            (Some(8), Some(8), Some(6))
        );
        assert_eq!((fifo.pop_last(), fifo.pop_last(), fifo.last()), (Some(7), None, None));
    }
}
