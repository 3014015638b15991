//! Datagrams of sessions in flight. A parcel carries the number of its datagram, so that queues move few
//! bytes; the flow keeps the datagram until the parcel arrives or is dropped.

use freshline_core::wire::{Frame, Message, Update};

/// Room for the longest datagram of a flow: an update with an opening, of which the name, the token and
/// the state are empty, has 58 bytes, and up to 19 more where it repeats a state; one with a part has
/// [`SYMBOL`] bytes and up to 70 around them.
const ROOM: usize = 88;

/// What stands for a symbol of a state that takes several updates. A state of two symbols must not fit
/// into one update, which has room for 16 bytes more than a symbol.
pub(super) const SYMBOL: usize = 18;

/// The longest datagram of a source whose states take several updates: its symbols are of [`SYMBOL`] bytes.
pub(super) const MAX_OF_PARTS: usize =
    Update::HEADER_LEN + 18 + Frame::MAX_OVERHEAD_OF_PART + SYMBOL;

/// Places of a flow that sends little.
const FEWEST: usize = 16;

/// A place for a datagram. It stays where an endpoint wrote it: to copy bytes that have just been written
/// one by one takes a processor longer than the rest of what is done here.
#[derive(Debug)]
struct Place {
    bytes: Vec<u8>,
    /// The length of the datagram in flight; zero if there is none.
    len: usize,
}

/// Those in flight, by their numbers.
#[derive(Debug)]
pub(super) struct Datagrams {
    places: Vec<Place>,
    /// The numbers of places that are free, but for `next`.
    free: Vec<u32>,
    /// The number of the next datagram.
    next: u32,
}

impl Datagrams {
    pub(super) fn new() -> Self {
        let mut datagrams = Self { places: Vec::new(), free: Vec::new(), next: 0 };
        datagrams.next = datagrams.grow();
        datagrams
    }

    /// What an endpoint writes the next datagram into.
    #[inline]
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        &mut self.places[self.next as usize].bytes
    }

    /// Keeps the first `len` bytes that were written into [`Datagrams::room`], and returns their number.
    #[inline]
    pub(super) fn keep(&mut self, len: usize) -> u32 {
        let number = self.next;
        self.places[number as usize].len = len;
        self.next = self.free.pop().unwrap_or_else(|| self.grow());
        number
    }

    /// Doubles the places, so that a run soon has as many as it needs; returns the number of one of them.
    #[cold]
    fn grow(&mut self) -> u32 {
        let (from, to) = (self.places.len(), (2 * self.places.len()).max(FEWEST));
        self.places.resize_with(to, Place::new);
        self.free.reserve(to);
        self.free.extend((from as u32 + 1..to as u32).rev());
        from as u32
    }

    /// A datagram in flight.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&[u8]> {
        let place = self.places.get(number as usize)?;
        (place.len > 0).then(|| &place.bytes[..place.len])
    }

    /// A datagram has arrived or was dropped.
    #[inline]
    pub(super) fn remove(&mut self, number: u32) {
        if let Some(place) = self.places.get_mut(number as usize)
            && place.len > 0
        {
            place.len = 0;
            self.free.push(number);
        }
    }

    /// The message in a datagram in flight.
    pub(super) fn message(&self, number: u32) -> Option<Message<'_>> {
        Message::parse(self.get(number)?).ok()
    }
}

impl Place {
    fn new() -> Self {
        Self { bytes: vec![0; ROOM], len: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_belongs_to_one_datagram_until_it_is_removed() {
        let mut datagrams = Datagrams::new();
        let keep = |datagrams: &mut Datagrams, bytes: &[u8]| {
            datagrams.room()[..bytes.len()].copy_from_slice(bytes);
            datagrams.keep(bytes.len())
        };
        let [first, second] = [b"one", b"two"].map(|bytes| keep(&mut datagrams, bytes));
        datagrams.remove(first);
        datagrams.remove(first);
        assert_eq!((datagrams.get(first), datagrams.get(second)), (None, Some(&b"two"[..])));
        let numbers: [u32; 20] = std::array::from_fn(|byte| keep(&mut datagrams, &[byte as u8]));
        for (byte, number) in (0..).zip(numbers) {
            assert_eq!(datagrams.get(number), Some(&[byte][..]));
        }
        assert_eq!(datagrams.get(second), Some(&b"two"[..]));
        assert!(numbers.contains(&first), "its place is used again");
        let number = keep(&mut datagrams, b"6");
        assert_eq!(datagrams.get(number), Some(&b"6"[..]));
    }
}
