//! Datagrams of sessions in flight. A parcel carries the number of its datagram, so that queues move few
//! bytes; the flow keeps the datagram until the parcel arrives or is dropped.

use freshline_core::wire::Message;
use slab::Slab;

/// Room for the longest datagram of a flow: an update with an opening, of which the name, the token and
/// the payload are empty, has 58 bytes.
const ROOM: usize = 64;

/// A datagram as an endpoint wrote it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Datagram {
    len: u8,
    bytes: [u8; ROOM],
}

impl Datagram {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Those in flight, by their numbers.
#[derive(Debug)]
pub(super) struct Datagrams {
    in_flight: Slab<Datagram>,
    /// What an endpoint writes into, at least [`ROOM`] bytes.
    pub(super) written: Vec<u8>,
}

impl Datagrams {
    pub(super) fn new() -> Self {
        Self { in_flight: Slab::new(), written: vec![0; ROOM] }
    }

    /// Keeps the first `len` bytes that are written, and returns their number.
    ///
    /// # Panics
    /// If there is no room for them.
    #[inline]
    pub(super) fn keep(&mut self, len: usize) -> u32 {
        assert!(len <= ROOM, "the session's datagrams are short");
        // All of the room, as a copy of constant length is the fastest.
        let bytes = *self.written.first_chunk().expect("it does not shrink");
        self.in_flight.insert(Datagram { len: len as u8, bytes }) as u32
    }

    /// A datagram in flight.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Datagram> {
        self.in_flight.get(number as usize)
    }

    /// A datagram has arrived or was dropped.
    #[inline]
    pub(super) fn remove(&mut self, number: u32) {
        self.in_flight.try_remove(number as usize);
    }

    /// The message in a datagram in flight.
    pub(super) fn message(&self, number: u32) -> Option<Message<'_>> {
        Message::parse(self.get(number)?.bytes()).ok()
    }
}
