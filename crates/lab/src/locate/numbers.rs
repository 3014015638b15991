//! Numbers in packets, from which losses are detected.
//!
//! | | place | counts |
//! |---|---|---|
//! | Freshline | `wire::Packet` | packets |
//! | iperf3 | bytes 8 to 12 of a UDP payload, or to 16 with 64 bits | packets, from 1 |
//! | iperf2 | its first 4 bytes, or with 12 to 16 as the upper half | packets, from 1 |
//! | RTP | bytes 2 to 4 behind a version of 2 | packets, 16 bits |
//! | TCP | the sequence number | bytes |
//!
//! Only Freshline's mark identifies the protocol of a UDP payload. So a flow's first packets are
//! compared with each form: a form whose numbers mostly increase by one is accepted. iperf3's clock
//! and iperf2's have the same layout in bytes 0 to 8 as 4 to 12: seconds and microseconds or
//! nanoseconds, which never increase by one from packet to packet.

use freshline_core::wire::Message;
use serde::Serialize;

use crate::capture::packet::Content;

/// The numbers by which a flow's losses are detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Numbers {
    /// Packets of a Freshline downlink.
    Freshline,
    /// The numbers of iperf3's datagrams.
    Iperf3,
    /// The numbers of iperf2's datagrams.
    Iperf2,
    /// The sequence numbers of RTP.
    Rtp,
    /// Holes in TCP's sequence.
    Tcp,
    /// No numbers.
    Unknown,
}

impl Numbers {
    /// The forms of numbers in a UDP payload, in descending order of certainty.
    pub(super) const OF_UDP: [Self; 4] = [Self::Freshline, Self::Iperf3, Self::Iperf2, Self::Rtp];

    /// The number of a datagram, if it has this form, and its width in bits.
    pub(super) fn of_datagram(self, payload: &[u8]) -> Option<(u64, u32)> {
        let u32_at = |at: usize| -> Option<u64> {
            payload.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes).into())
        };
        match self {
            Self::Freshline => match Message::parse(payload) {
                Ok(Message::Packet(packet)) => Some((packet.seq, 64)),
                _ => None,
            },
            Self::Iperf3 => Some((u32_at(8)?, 32)),
            // The last datagram has a negated number.
            Self::Iperf2 => Some((u32_at(0)?, 32)).filter(|(number, _)| *number < 1 << 31),
            Self::Rtp => {
                let &[version, _, high, low, ..] = payload.get(..12)? else { return None };
                (version >> 6 == 2).then(|| (u16::from_be_bytes([high, low]).into(), 16))
            }
            Self::Tcp | Self::Unknown => None,
        }
    }
}

/// Extends numbers of few bits to 64 bits.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Unwrapped {
    newest: Option<u64>,
}

impl Unwrapped {
    /// The number with these lowest bits that is nearest to the newest one.
    pub(super) fn next(&mut self, number: u64, bits: u32) -> u64 {
        let Some(newest) = self.newest else {
            // Leave room for earlier numbers.
            let first = if bits >= 64 { number } else { number + (1 << bits) };
            self.newest = Some(first);
            return first;
        };
        let whole = if bits >= 64 {
            number
        } else {
            let size = 1_u64 << bits;
            let ahead = number.wrapping_sub(newest) & (size - 1);
            if ahead < size / 2 {
                newest.saturating_add(ahead)
            } else {
                newest.saturating_sub(size - ahead)
            }
        };
        self.newest = Some(newest.max(whole));
        whole
    }
}

/// Examines the first packets of a UDP flow to determine its form.
#[derive(Debug)]
pub(super) struct Guess {
    /// For each form, the last number, and how many numbers were within [`NEAR`] of the previous
    /// one.
    seen: [(Option<u64>, u32); Numbers::OF_UDP.len()],
    packets: u32,
}

/// The number of packets examined.
pub(super) const LOOKED_AT: u32 = 32;
/// The maximum increase of a number to be near the previous one: more than losses, but less than a
/// clock.
const NEAR: u64 = 64;

impl Guess {
    pub(super) fn new() -> Self {
        Self { seen: [(None, 0); Numbers::OF_UDP.len()], packets: 0 }
    }

    /// Adds a packet. Returns the form once enough packets were examined.
    pub(super) fn look(&mut self, content: &Content<'_>) -> Option<Numbers> {
        let Content::Udp(datagram) = content else { return Some(Numbers::Tcp) };
        self.packets += 1;
        for (form, (last, near)) in Numbers::OF_UDP.into_iter().zip(&mut self.seen) {
            let Some((number, bits)) = form.of_datagram(datagram.payload) else { continue };
            let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
            let step = last.map(|last| number.wrapping_sub(last) & mask);
            *near += u32::from(step.is_some_and(|step| (1..=NEAR).contains(&step)));
            *last = Some(number);
        }
        (self.packets >= LOOKED_AT).then(|| self.best())
    }

    /// The form with the best match so far.
    pub(super) fn best(&self) -> Numbers {
        // Two thirds suffice, as some packets are late.
        let most = |(_, near): &(Option<u64>, u32)| 3 * near >= 2 * self.packets.saturating_sub(1);
        let fits = self.seen.iter().position(|seen| seen.1 > 0 && most(seen));
        fits.map_or(Numbers::Unknown, |place| Numbers::OF_UDP[place])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::packet::Datagram;

    fn guess(payloads: impl Iterator<Item = Vec<u8>>) -> Numbers {
        let mut guess = Guess::new();
        for payload in payloads {
            let len = payload.len();
            let content = Content::Udp(Datagram { payload: &payload, len });
            if let Some(found) = guess.look(&content) {
                return found;
            }
        }
        guess.best()
    }

    fn be(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    #[test]
    fn forms_are_told_by_what_counts_up() {
        // Seconds, microseconds and the number; for iperf2 the number comes first.
        let iperf3 = (0..40u32).map(|n| be(&[1_700_000_000, n * 217 % 1_000_000, n + 1, 0, 0]));
        assert_eq!(guess(iperf3), Numbers::Iperf3);
        let iperf2 = (0..40u32).map(|n| be(&[n, 1_700_000_000, n * 217 % 1_000_000, 0, 0]));
        assert_eq!(guess(iperf2), Numbers::Iperf2);
        let rtp = (0..40u32).map(|n| be(&[0x8060_FFF0 - 0x10_0000 + n % 16, n * 3000, 9, 0]));
        assert_eq!(guess(rtp), Numbers::Rtp);
        let nothing = (0..40u32).map(|n| be(&[n.wrapping_mul(2_654_435_761); 5]));
        assert_eq!(guess(nothing), Numbers::Unknown);
        assert_eq!(guess((0..40).map(|_| vec![7; 3])), Numbers::Unknown);
    }

    #[test]
    fn numbers_of_few_bits_go_on() {
        let mut numbers = Unwrapped::default();
        let bits16 = [65_534, 65_535, 1, 0, 2].map(|number| numbers.next(number, 16) - 65_536);
        assert_eq!(bits16, [65_534, 65_535, 65_537, 65_536, 65_538]);
    }
}
