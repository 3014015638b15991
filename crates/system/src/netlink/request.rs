//! Requests to the kernel, and the writer of their attributes.

use netlink_packet_core::{
    Emitable, NLA_F_NESTED, NLA_HEADER_SIZE, NLM_F_ACK, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader,
};

/// `NLA_ALIGNTO` and `NLMSG_ALIGNTO`.
const ALIGNMENT: usize = 4;

/// Flags of requests (`NLM_F_*`).
pub mod flags {
    use netlink_packet_core as core;

    /// The kernel confirms that it has completed the request.
    pub const ACK: u16 = core::NLM_F_ACK;
    /// Notifications of the change are also sent to the socket that requested it.
    pub const ECHO: u16 = core::NLM_F_ECHO;
    /// Fail if there is such an object.
    pub const EXCLUSIVE: u16 = core::NLM_F_EXCL;
    /// Create the object if it does not exist.
    pub const CREATE: u16 = core::NLM_F_CREATE;
    /// Replace an object.
    pub const REPLACE: u16 = core::NLM_F_REPLACE;
    /// Add to the end of the list.
    pub const APPEND: u16 = core::NLM_F_APPEND;
    /// List all objects.
    pub const DUMP: u16 = core::NLM_F_DUMP;
}

/// Messages to the kernel that are sent together.
#[derive(Debug, Default)]
pub struct Requests {
    bytes: Vec<u8>,
    /// How many there are, and how many of them are acknowledged.
    count: u32,
    acks: u32,
}

impl Requests {
    /// Adds a message of this type. That it is a request (`NLM_F_REQUEST`) is added to its flags;
    /// its sequence number is set when it is sent.
    pub fn push(&mut self, kind: u16, flags: u16, body: impl FnOnce(&mut Writer<'_>)) {
        let start = self.bytes.len();
        let mut header = NetlinkHeader::default();
        (header.message_type, header.flags) = (kind, flags | NLM_F_REQUEST);
        self.bytes.resize(start + header.buffer_len(), 0);
        body(&mut Writer(&mut self.bytes));
        let len = self.bytes.len() - start;
        header.length = len as u32;
        header.emit(&mut self.bytes[start..]);
        self.bytes.resize(start + len.next_multiple_of(ALIGNMENT), 0);
        self.count += 1;
        self.acks += u32::from(flags & NLM_F_ACK != 0);
    }

    /// The messages, one after the other.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Removes all messages, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.count, self.acks) = (0, 0);
    }

    /// The number of messages.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// How many of them the kernel acknowledges.
    pub(super) fn acks(&self) -> u32 {
        self.acks
    }

    /// Gives the messages sequence numbers from `first` on.
    pub(super) fn stamp(&mut self, first: u32) {
        let (mut rest, mut seq) = (&mut self.bytes[..], first);
        while let Ok(message) = NetlinkBuffer::new_checked(&mut *rest) {
            let len = (message.length() as usize).next_multiple_of(ALIGNMENT);
            NetlinkBuffer::new(&mut *rest).set_sequence_number(seq);
            seq = seq.wrapping_add(1);
            rest = rest.get_mut(len..).unwrap_or_default();
        }
    }
}

/// Writes the body of a message, or attributes.
#[derive(Debug)]
pub struct Writer<'a>(&'a mut Vec<u8>);

/// Attributes as bytes, one after the other.
#[must_use]
pub fn encode(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Writer(&mut bytes));
    bytes
}

impl Writer<'_> {
    /// Bytes as they are: a fixed header, or attributes that were encoded before.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// An attribute that was read, with its header.
    pub(super) fn raw_attribute(&mut self, attribute: &[u8]) -> &mut Self {
        self.raw(attribute);
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
        self
    }

    /// Writes a part that one of the libraries can encode.
    pub(super) fn emit(&mut self, part: &impl Emitable) -> &mut Self {
        let start = self.0.len();
        self.0.resize(start + part.buffer_len(), 0);
        part.emit(&mut self.0[start..]);
        self
    }

    /// An attribute of this type, flags included. Its value must be shorter than 65,532 bytes.
    #[inline]
    pub fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.attribute(kind, |writer| _ = writer.raw(value))
    }

    /// A text with a zero at its end.
    pub fn text(&mut self, kind: u16, text: &str) -> &mut Self {
        self.attribute(kind, |writer| _ = writer.raw(text.as_bytes()).raw(&[0]))
    }

    /// A number in the network's byte order.
    pub fn be_u16(&mut self, kind: u16, value: u16) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// A number in the network's byte order.
    pub fn be_u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    /// An attribute that holds attributes.
    pub fn nested(&mut self, kind: u16, attributes: impl FnOnce(&mut Writer<'_>)) -> &mut Self {
        self.attribute(kind | NLA_F_NESTED, attributes)
    }

    #[inline]
    fn attribute(&mut self, kind: u16, value: impl FnOnce(&mut Writer<'_>)) -> &mut Self {
        let start = self.0.len();
        self.0.extend_from_slice(&[0; NLA_HEADER_SIZE]);
        value(&mut Writer(self.0));
        let len = self.0.len() - start;
        debug_assert!(len <= usize::from(u16::MAX), "{len} bytes in one attribute");
        // Not by `NlaBuffer`, whose calls cost more than all the rest: verdicts on packets are
        // written here.
        let ([a, b], [c, d]) = ((len as u16).to_ne_bytes(), kind.to_ne_bytes());
        self.0[start..][..NLA_HEADER_SIZE].copy_from_slice(&[a, b, c, d]);
        self.0.resize(start + len.next_multiple_of(ALIGNMENT), 0);
        self
    }
}
