//! Attributes of a message, read by their numbers.

use netlink_packet_core::{NLA_HEADER_SIZE, NlaBuffer, NlasIterator};

/// The attributes up to the first malformed one: each attribute's type, without its flags, and its value.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    encoded(bytes).map(|attribute| {
        let kind = NlaBuffer::new(attribute).kind();
        (kind, attribute.get(NLA_HEADER_SIZE..).unwrap_or_default())
    })
}

/// The same, each with its header and flags, without its padding.
pub(super) fn encoded(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    NlasIterator::new(bytes).map_while(|attribute| {
        let attribute = attribute.ok()?;
        let len = usize::from(attribute.length());
        attribute.into_inner().get(..len)
    })
}

/// The value of the first attribute of this type.
#[must_use]
pub fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(found, value)| (found == kind).then_some(value))
}

/// The number at the beginning of a value, in the host's byte order.
#[must_use]
pub fn ne_u16(value: &[u8]) -> Option<u16> {
    value.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// The number at the beginning of a value, in the host's byte order.
#[must_use]
pub fn ne_u32(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// The number at the beginning of a value, in the network's byte order.
#[must_use]
pub fn be_u32(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::encode;

    #[test]
    fn written_attributes_are_read() {
        let bytes = encode(|put| {
            put.be_u32(1, 5).text(2, "abc").nested(3, |put| _ = put.be_u16(4, 6));
        });
        assert_eq!(bytes.len() % 4, 0);
        let read: Vec<_> = attributes(&bytes).collect();
        assert_eq!(read[..2], [(1, &[0, 0, 0, 5][..]), (2, b"abc\0")]);
        assert_eq!((find(&bytes, 1).and_then(be_u32), find(&bytes, 9)), (Some(5), None));
        assert_eq!(attributes(read[2].1).collect::<Vec<_>>(), [(4, &[0, 6][..])]);
    }

    #[test]
    fn attributes_end_at_the_first_malformed_one() {
        let whole = encode(|put| _ = put.put(1, &[7; 5]).put(2, &[8; 4]));
        for len in 0..whole.len() {
            let read: Vec<_> = attributes(&whole[..len]).collect();
            // The padding of the first attribute may be missing.
            let expected = if len < 9 { &[][..] } else { &[(1, &[7; 5][..])] };
            assert_eq!(read, expected, "{len}");
        }
        for wrong in [0, 3, 100] {
            let mut bytes = whole.clone();
            bytes[0] = wrong;
            assert_eq!(attributes(&bytes).count(), 0, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_attributes_within_them(bytes in prop::collection::vec(0u8..40, 0..300)) {
            let held: usize = attributes(&bytes).map(|(_, value)| NLA_HEADER_SIZE + value.len()).sum();
            prop_assert!(held <= bytes.len());
        }
    }
}
