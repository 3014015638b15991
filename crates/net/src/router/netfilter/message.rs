//! Messages of netlink's netfilter family, as bytes.
//!
//! ```text
//! message:    length u32 · type u16 · flags u16 · sequence u32 · port u32     (the host's order)
//!             family u8 · version u8 · resource u16                           (the network's)
//!             attributes
//! attribute:  length u16 · type u16 · content, padded to 4 bytes
//! ```

/// Of a message, up to its attributes.
pub(super) const HEADER_LEN: usize = 20;
const ATTRIBUTE_LEN: usize = 4;

/// The flag of an attribute that holds attributes.
const NESTED: u16 = 1 << 15;
/// The bits of an attribute's type that are its type.
const TYPE_MASK: u16 = 0x3fff;

/// The front of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// The subsystem and what is asked of it.
    pub(super) kind: u16,
    /// `NLM_F_*`; that it is a request goes without saying.
    pub(super) flags: u16,
    /// An `NFPROTO_*`.
    pub(super) family: u8,
    /// What it is about: a queue's number, or a batch's subsystem.
    pub(super) resource: u16,
}

/// Messages that are sent together.
#[derive(Debug, Default)]
pub(super) struct Messages {
    bytes: Vec<u8>,
    count: u32,
}

impl Messages {
    const REQUEST: u16 = 1;

    /// Adds a message.
    pub(super) fn push(&mut self, head: Head, attributes: impl FnOnce(&mut Attributes<'_>)) {
        let start = self.bytes.len();
        let flags = head.flags | Self::REQUEST;
        self.bytes.extend([0; 4]);
        self.bytes.extend(head.kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(self.count.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend([head.family, 0]);
        self.bytes.extend(head.resource.to_be_bytes());
        attributes(&mut Attributes(&mut self.bytes));
        let len = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&len.to_ne_bytes());
        self.count += 1;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }
}

/// Where attributes are written to.
pub(super) struct Attributes<'a>(&'a mut Vec<u8>);

impl Attributes<'_> {
    pub(super) fn put(&mut self, kind: u16, content: &[u8]) -> &mut Self {
        self.with(kind, |bytes| bytes.extend_from_slice(content))
    }

    /// A string as the kernel has it, with a zero at its end.
    pub(super) fn text(&mut self, kind: u16, text: &str) -> &mut Self {
        self.with(kind, |bytes| {
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        })
    }

    pub(super) fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    pub(super) fn u16(&mut self, kind: u16, value: u16) -> &mut Self {
        self.put(kind, &value.to_be_bytes())
    }

    pub(super) fn nested(
        &mut self,
        kind: u16,
        attributes: impl FnOnce(&mut Attributes<'_>),
    ) -> &mut Self {
        self.with(kind | NESTED, |bytes| attributes(&mut Attributes(bytes)))
    }

    fn with(&mut self, kind: u16, content: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        let start = self.0.len();
        self.0.extend([0; 2]);
        self.0.extend(kind.to_ne_bytes());
        content(self.0);
        // Nothing of ours comes near 64 kB.
        let len = (self.0.len() - start) as u16;
        self.0[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

/// A message that came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming<'a> {
    /// The kernel's answer to a request: 0, or an error's number; with an error, the attributes of
    /// that request.
    Answer(i32, &'a [u8]),
    /// Anything else: the type and the attributes.
    Message(u16, &'a [u8]),
}

/// The messages of a datagram, as far as they are whole.
pub(super) fn incoming(mut datagram: &[u8]) -> impl Iterator<Item = Incoming<'_>> {
    /// The type of answers (`NLMSG_ERROR`).
    const ERROR: u16 = 2;
    const ANSWER_AT: usize = 16;
    std::iter::from_fn(move || {
        let len = u32::from_ne_bytes(*datagram.first_chunk()?) as usize;
        let message = datagram.get(..len).filter(|message| message.len() >= HEADER_LEN)?;
        datagram = &datagram[len.next_multiple_of(4).min(datagram.len())..];
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        Some(match kind {
            ERROR => {
                let errno =
                    message[ANSWER_AT..].first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
                let request = message.get(ANSWER_AT + 4 + HEADER_LEN..).unwrap_or_default();
                Incoming::Answer(errno.map_or(0, i32::saturating_neg), request)
            }
            _ => Incoming::Message(kind, &message[HEADER_LEN..]),
        })
    })
}

/// The attributes of a message with their types, as far as they are whole.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let &[a, b, c, d] = bytes.first_chunk()?;
        let (len, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let content = bytes.get(ATTRIBUTE_LEN..len)?;
        bytes = &bytes[len.next_multiple_of(4).min(bytes.len())..];
        Some((kind & TYPE_MASK, content))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read() {
        let mut messages = Messages::default();
        let head = Head { kind: 0x302, flags: 4, family: 1, resource: 77 };
        messages.push(head, |put| {
            put.u32(1, 5).text(2, "abc").nested(3, |put| _ = put.u16(4, 6));
        });
        messages.push(head, |_| {});
        let read: Vec<_> = incoming(messages.bytes()).collect();
        let [Incoming::Message(0x302, first), Incoming::Message(0x302, [])] = &read[..] else {
            panic!("two messages: {read:?}");
        };
        let found: Vec<_> = attributes(first).collect();
        assert_eq!(found[..2], [(1, &[0, 0, 0, 5][..]), (2, b"abc\0")]);
        assert_eq!(attributes(found[2].1).collect::<Vec<_>>(), [(4, &[0, 6][..])]);
        assert_eq!(messages.bytes().len() % 4, 0);
    }

    #[test]
    fn an_answer_is_an_error_number() {
        let mut message = vec![0; 36];
        message[..6].copy_from_slice(&[36, 0, 0, 0, 2, 0]);
        message[16..20].copy_from_slice(&(-17i32).to_ne_bytes());
        assert_eq!(incoming(&message).collect::<Vec<_>>(), [Incoming::Answer(17, &[])]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(0u8..40, 0..300)) {
            for message in incoming(&bytes) {
                if let Incoming::Message(_, content) = message {
                    let _ = attributes(content).count();
                }
            }
        }
    }
}
