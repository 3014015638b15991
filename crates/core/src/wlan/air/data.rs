//! The data frames of 802.11, and the IP packets in them.
//!
//! ```text
//! control │ duration │ receiver │ transmitter │ address 3 │ sequence │ (address 4) │ (QoS) │ (HTC)
//!    2         2          6           6             6          2           6           2       4
//! behind it   AA AA 03 00 00 00 │ type │ IP                                  one packet
//!       or  ┌ to 6 │ from 6 │ length 2 │ AA AA 03 … IP │ pad to 4 ┐ …         A-MSDU: several
//! ```
//!
//! IEEE 802.11-2016, 9.2.4 and 9.3.2; RFC 1042 for the bytes in front of IP.
//!
//! # Where the standard leaves a choice
//!
//! Some drivers deliver decrypted frames with the protection bit still set. A payload that begins
//! as IP after the header, or after the 8 bytes of CCMP or GCMP, is taken to be clear.

use alloc::vec::Vec;

/// The address of a station.
type Address = [u8; 6];

const SNAP: [u8; 6] = [0xAA, 0xAA, 0x03, 0, 0, 0];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xDD];
/// The size of the LLC/SNAP header, the packet's EtherType included.
const LLC: usize = SNAP.len() + 2;

const TO_DS: u8 = 0x01;
const FROM_DS: u8 = 0x02;
const MORE_FRAGMENTS: u8 = 0x04;
const RETRY: u8 = 0x08;
const PROTECTED: u8 = 0x40;
const ORDER: u8 = 0x80;
const QOS_AMSDU: u8 = 0x80;

/// The header of a data frame between an access point and a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DataFrame {
    /// Whether the access point sent it; false if a station did, or if both ends are of the same
    /// kind.
    pub from_ap: bool,
    /// The station: the receiver of a frame of an access point, else the transmitter.
    pub station: Address,
    /// The other end on the air.
    pub peer: Address,
    /// The source or the destination of the packet beyond the access point.
    pub third: Address,
    /// The sequence number, 0 to 4095, counted by receiver and priority.
    pub seq: u16,
    /// Whether it is a retry.
    pub is_retry: bool,
    /// The user priority, 0 to 7; `None` without a QoS field.
    pub priority: Option<u8>,
}

/// The payload of a data frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// One packet with its LLC/SNAP header, or empty.
    Clear(&'a [u8]),
    /// Several packets.
    Amsdu(&'a [u8]),
    /// Encrypted.
    Protected,
}

/// Why a frame has no packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// A management or control frame, or a data frame without data.
    #[error("it is no frame of data")]
    Other,
    /// A fragment of a packet.
    #[error("it is a fragment")]
    Fragment,
    /// It ends within its header.
    #[error("it ends within its 802.11 header")]
    Cut,
}

impl DataFrame {
    /// Reads the header at the front of `mpdu`; if `is_padded`, the payload begins at a multiple of
    /// 4 bytes.
    ///
    /// # Errors
    /// [`DataError`] if this is not a complete data frame.
    pub fn parse(mpdu: &[u8], is_padded: bool) -> Result<(Self, Payload<'_>), DataError> {
        let &[kind, flags, ..] = mpdu else { return Err(DataError::Cut) };
        // Version 0, type 2; subtypes with bit 2 have no data.
        if kind & 0x0F != 0x08 || kind & 0x40 != 0 {
            return Err(DataError::Other);
        }
        let address = |at: usize| {
            let bytes: Option<&Address> = mpdu.get(at..).and_then(|rest| rest.first_chunk());
            bytes.copied().ok_or(DataError::Cut)
        };
        let (receiver, transmitter, third) = (address(4)?, address(10)?, address(16)?);
        let &[low, high] = mpdu.get(22..24).ok_or(DataError::Cut)? else {
            return Err(DataError::Cut);
        };
        let sequence = u16::from_le_bytes([low, high]);
        if flags & MORE_FRAGMENTS != 0 || sequence & 0x0F != 0 {
            return Err(DataError::Fragment);
        }
        let mut len = 24;
        if flags & (TO_DS | FROM_DS) == TO_DS | FROM_DS {
            len += 6;
        }
        let mut priority = None;
        let mut is_amsdu = false;
        if kind & 0x80 != 0 {
            let qos = *mpdu.get(len).ok_or(DataError::Cut)?;
            priority = Some(qos & 0x07);
            is_amsdu = qos & QOS_AMSDU != 0;
            len += 2;
            if flags & ORDER != 0 {
                len += 4;
            }
        }
        if is_padded {
            len = len.next_multiple_of(4);
        }
        let body = mpdu.get(len..).ok_or(DataError::Cut)?;
        let from_ap = flags & (TO_DS | FROM_DS) == FROM_DS;
        let (station, peer) =
            if from_ap { (receiver, transmitter) } else { (transmitter, receiver) };
        let is_retry = flags & RETRY != 0;
        let frame = Self { from_ap, station, peer, third, seq: sequence >> 4, is_retry, priority };
        let payload = match (flags & PROTECTED != 0, is_amsdu) {
            (false, false) => Payload::Clear(body),
            (false, true) => Payload::Amsdu(body),
            (true, _) => {
                let behind = [Some(body), body.get(8..)];
                let clear = behind.into_iter().flatten().find(|body| ip_of(body).is_some());
                clear.map_or(Payload::Protected, Payload::Clear)
            }
        };
        Ok((frame, payload))
    }

    /// Appends a frame with the IP packet `packet` to `out`. Any other packet is marked as IPv4.
    pub fn write(&self, packet: &[u8], out: &mut Vec<u8>) {
        let kind = if self.priority.is_some() { 0x88 } else { 0x08 };
        let direction = if self.from_ap { FROM_DS } else { TO_DS };
        out.extend_from_slice(&[kind, direction | if self.is_retry { RETRY } else { 0 }, 0, 0]);
        let (receiver, transmitter) =
            if self.from_ap { (self.station, self.peer) } else { (self.peer, self.station) };
        for address in [receiver, transmitter, self.third] {
            out.extend_from_slice(&address);
        }
        out.extend_from_slice(&(self.seq << 4).to_le_bytes());
        if let Some(priority) = self.priority {
            out.extend_from_slice(&[priority & 0x07, 0]);
        }
        out.extend_from_slice(&SNAP);
        let is_v6 = packet.first().is_some_and(|first| first >> 4 == 6);
        out.extend_from_slice(if is_v6 { &IPV6 } else { &IPV4 });
        out.extend_from_slice(packet);
    }
}

impl<'a> Payload<'a> {
    /// The IP packets, as far as they were captured; other packets are left out.
    pub fn packets(self) -> Packets<'a> {
        match self {
            Self::Clear(body) => Packets { one: ip_of(body), several: &[] },
            Self::Amsdu(body) => Packets { one: None, several: body },
            Self::Protected => Packets { one: None, several: &[] },
        }
    }

    /// Whether it is encrypted.
    pub fn is_protected(&self) -> bool {
        matches!(self, Self::Protected)
    }
}

/// The IP packets of a frame.
#[derive(Debug, Clone)]
pub struct Packets<'a> {
    one: Option<&'a [u8]>,
    /// The unread subframes of an A-MSDU.
    several: &'a [u8],
}

impl<'a> Iterator for Packets<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if let Some(one) = self.one.take() {
            return Some(one);
        }
        const HEADER: usize = 14;
        while let Some(&[high, low]) = self.several.get(12..HEADER) {
            let len = usize::from(u16::from_be_bytes([high, low]));
            let rest = &self.several[HEADER..];
            let packet = &rest[..len.min(rest.len())];
            // The header is so long that the next one is aligned with it.
            let next = (HEADER + len).next_multiple_of(4);
            self.several = self.several.get(next..).unwrap_or_default();
            if let Some(packet) = ip_of(packet) {
                return Some(packet);
            }
        }
        None
    }
}

/// The packet after the LLC and SNAP headers, if it is IP.
fn ip_of(body: &[u8]) -> Option<&[u8]> {
    let (llc, packet) = body.split_at_checked(LLC)?;
    let (snap, kind) = llc.split_at(SNAP.len());
    (snap == SNAP && (kind == IPV4 || kind == IPV6)).then_some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    const PACKET: &[u8] = &[0x45, 0, 0, 20, 1, 2, 3];

    fn frame() -> DataFrame {
        DataFrame {
            from_ap: true,
            station: [2, 0, 0, 0, 0, 1],
            peer: [2, 0, 0, 0, 0, 0],
            third: [2, 0, 0, 0, 0, 9],
            seq: 4095,
            is_retry: true,
            priority: Some(5),
        }
    }

    fn written(frame: DataFrame) -> Vec<u8> {
        let mut out = Vec::new();
        frame.write(PACKET, &mut out);
        out
    }

    fn packets(mpdu: &[u8], is_padded: bool) -> Vec<Vec<u8>> {
        let (_, payload) = DataFrame::parse(mpdu, is_padded).unwrap();
        payload.packets().map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn a_frame_reads_as_it_was_written() {
        let plain = DataFrame { priority: None, from_ap: false, is_retry: false, ..frame() };
        for frame in [frame(), plain] {
            let bytes = written(frame);
            let (read, payload) = DataFrame::parse(&bytes, false).unwrap();
            assert_eq!((read, payload.is_protected()), (frame, false));
            assert_eq!(payload.packets().collect::<Vec<_>>(), [PACKET]);
        }
    }

    #[test]
    fn all_that_may_stand_in_the_header_is_skipped() {
        let mut bytes = written(frame());
        // Between access points: a fourth address, behind the sequence number.
        bytes[1] |= TO_DS | FROM_DS;
        bytes.splice(24..24, [7; 6]);
        assert_eq!(packets(&bytes, false), [PACKET]);
        // With 4 bytes of HT control behind the priority.
        bytes[1] |= ORDER;
        bytes.splice(32..32, [0; 4]);
        assert_eq!(packets(&bytes, false), [PACKET]);
        // A header of 26 bytes, padded to 28.
        let mut bytes = written(frame());
        bytes.splice(26..26, [0; 2]);
        assert_eq!(packets(&bytes, true), [PACKET]);
    }

    #[test]
    fn the_packets_of_an_a_msdu_are_found_behind_their_headers() {
        let mut bytes = written(frame());
        let packet = bytes.split_off(26);
        bytes[24] |= QOS_AMSDU;
        for _ in 0..2 {
            bytes.extend([0; 12]);
            bytes.extend((packet.len() as u16).to_be_bytes());
            bytes.extend(&packet);
            // 14 + 15 bytes, and 3 up to a multiple of 4.
            bytes.extend([0; 3]);
        }
        // Something else than IP, and a subframe that was captured in part.
        bytes.extend([&[0; 12][..], &[0, 2], b"no", &[0; 12], &[0, 99], &packet].concat());
        assert_eq!(packets(&bytes, false), [PACKET; 3]);
    }

    #[test]
    fn what_is_encrypted_says_so_unless_the_driver_has_decrypted_it() {
        let mut bytes = written(frame());
        bytes[1] |= PROTECTED;
        assert_eq!(packets(&bytes, false), [PACKET]);
        bytes.splice(26..26, [0; 8]);
        assert_eq!(packets(&bytes, false), [PACKET]);
        bytes[26 + 8] = 0x55;
        let (_, payload) = DataFrame::parse(&bytes, false).unwrap();
        assert!(payload.is_protected() && payload.packets().next().is_none());
    }

    #[test]
    fn what_holds_no_packet_says_why() {
        let error = |bytes: &[u8]| DataFrame::parse(bytes, false).unwrap_err();
        let whole = written(frame());
        for len in 0..26 {
            assert_eq!(error(&whole[..len]), DataError::Cut, "{len} bytes");
        }
        // A beacon, an acknowledgement, data without data.
        for kind in [0x80, 0xD4, 0x48, 0xC8] {
            let other = [&[kind], &whole[1..]].concat();
            assert_eq!(error(&other), DataError::Other);
        }
        let mut fragment = whole;
        fragment[22] |= 1;
        assert_eq!(error(&fragment), DataError::Fragment);
    }

    proptest! {
        #[test]
        fn any_bytes_give_packets_within_them_or_an_error(
            mut bytes in prop::collection::vec(any::<u8>(), 0..300), is_padded: bool, data: bool,
        ) {
            if data && !bytes.is_empty() {
                bytes[0] = 0x88;
            }
            if let Ok((_, payload)) = DataFrame::parse(&bytes, is_padded) {
                let sizes: Vec<_> = payload.packets().map(<[u8]>::len).collect();
                prop_assert!(sizes.len() <= 1 + bytes.len() / 14);
                prop_assert!(sizes.iter().sum::<usize>() <= bytes.len());
            }
        }
    }

    #[test]
    fn nothing_is_no_packet() {
        assert_eq!(Payload::Clear(&[]).packets().next(), None);
        assert_eq!(ip_of(&[vec![0xAA, 0xAA, 3, 0, 0, 0, 8, 6], vec![1]].concat()), None);
    }
}
