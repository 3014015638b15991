//! Datagrams of sessions in flight. A parcel carries the number of its datagram, so that queues move few
//! bytes; the flow keeps the datagram until the parcel arrives or is dropped.

use freshline_core::wire::{Frame, Message, Update};

/// Room for the longest datagram of a flow: an update with an opening, of which the name, the token and
/// the state are empty, has 58 bytes, and up to 19 more where it repeats a state; one with a part has
/// [`SYMBOL`] bytes and up to 70 around them.
const ROOM: usize = 88;

/// The placeholder for a symbol of a state that takes several updates. A state of two symbols must
/// not fit into one update, which has room for 16 bytes more than a symbol.
pub(super) const SYMBOL: usize = 18;

/// The longest datagram of a source whose states take several updates: its symbols are of [`SYMBOL`] bytes.
pub(super) const MAX_OF_PARTS: usize =
    Update::HEADER_LEN + 18 + Frame::MAX_OVERHEAD_OF_PART + SYMBOL;

/// The initial number of slots.
const FEWEST: usize = 16;

/// The length in a free slot.
const FREE: u32 = u32::MAX;

/// A slot for a datagram. The datagram stays where an endpoint wrote it: copying bytes that were
/// just written one by one takes a processor longer than everything else here.
#[derive(Debug)]
struct Place {
    bytes: Vec<u8>,
    /// The length of the datagram in flight, or [`FREE`].
    len: u32,
    /// See [`Datagrams::put`].
    port: u16,
}

/// The datagrams in flight, by number.
#[derive(Debug)]
pub(super) struct Datagrams {
    places: Vec<Place>,
    /// The numbers of free slots, except `next`.
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

    /// The buffer for an endpoint's next datagram.
    #[inline]
    pub(super) fn room(&mut self) -> &mut Vec<u8> {
        &mut self.places[self.next as usize].bytes
    }

    /// Keeps the first `len` bytes written into [`Datagrams::room`]. Returns their number.
    #[inline]
    pub(super) fn keep(&mut self, len: usize) -> u32 {
        let number = self.next;
        self.places[number as usize].len = len as u32;
        self.next = self.free.pop().unwrap_or_else(|| self.grow());
        number
    }

    /// Keeps a datagram that an endpoint wrote elsewhere, with a port of its header.
    pub(super) fn put(&mut self, datagram: &[u8], port: u16) -> u32 {
        let place = &mut self.places[self.next as usize];
        place.port = port;
        place.bytes.clear();
        place.bytes.extend_from_slice(datagram);
        self.keep(datagram.len())
    }

    /// The port that was given with a datagram in flight.
    pub(super) fn port(&self, number: u32) -> u16 {
        self.places.get(number as usize).map_or(0, |place| place.port)
    }

    /// Copies a datagram in flight. Returns the number of the copy.
    pub(super) fn duplicate(&mut self, number: u32) -> Option<u32> {
        let datagram = self.get(number)?.to_vec();
        Some(self.put(&datagram, self.port(number)))
    }

    /// Truncates a datagram in flight to `len` bytes, if it is longer.
    pub(super) fn truncate(&mut self, number: u32, len: usize) {
        if let Some(place) = self.in_flight_mut(number) {
            place.len = place.len.min(len as u32);
        }
    }

    /// The bytes of a datagram in flight, to be damaged.
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut [u8]> {
        let place = self.in_flight_mut(number)?;
        Some(&mut place.bytes[..place.len as usize])
    }

    fn in_flight_mut(&mut self, number: u32) -> Option<&mut Place> {
        self.places.get_mut(number as usize).filter(|place| place.len != FREE)
    }

    /// Doubles the number of slots, so that a run soon has enough of them. Returns the number of a
    /// free one.
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
        (place.len != FREE).then(|| &place.bytes[..place.len as usize])
    }

    /// A datagram has arrived or was dropped.
    #[inline]
    pub(super) fn remove(&mut self, number: u32) {
        if let Some(place) = self.in_flight_mut(number) {
            place.len = FREE;
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
        Self { bytes: vec![0; ROOM], len: FREE, port: 0 }
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

    #[test]
    fn a_copy_has_the_port_and_is_damaged_by_itself() {
        let mut datagrams = Datagrams::new();
        let number = datagrams.put(&[7; 200], 40_000);
        let copy = datagrams.duplicate(number).unwrap();
        assert_eq!((datagrams.get(copy), datagrams.port(copy)), (Some(&[7; 200][..]), 40_000));
        datagrams.get_mut(copy).unwrap()[0] = 8;
        datagrams.truncate(copy, 3);
        assert_eq!(datagrams.get(copy), Some(&[8, 7, 7][..]));
        datagrams.truncate(copy, 0);
        assert_eq!(datagrams.get(copy), Some(&[][..]), "an empty one is in flight");
        assert_eq!(datagrams.get(number), Some(&[7; 200][..]));
        datagrams.remove(number);
        assert_eq!(datagrams.duplicate(number), None);
    }
}
