//! Radiotap: the header in which a radio describes a captured frame.
//!
//! ```text
//! version 0 │ pad │ length │ present … │ fields in the order of their bits, each aligned
//! ```
//!
//! Formats: radiotap.org, and Linux's `include/net/ieee80211_radiotap.h`; all numbers are
//! little-endian. In a word of present bits, bit 31 means that another word follows, bit 29 that
//! the next word restarts at bit 0, and bit 30 that it belongs to a vendor, whose data contains its
//! length and is skipped.
//!
//! # Where the format is silent
//!
//! - If a field occurs several times (one set of fields per antenna), the first counts.
//! - Reading ends at a field of unknown size; the fields before it count. Bit 28, after which
//!   fields contain their length, is treated as such: no field after it is needed.
//! - In a frame for several users (VHT), the first user with streams counts.
//! - An unknown guard interval counts as the long one; without a width or an MCS there is no
//!   [`Phy`].

use alloc::vec::Vec;

use super::phy::{Phy, Width};
use crate::unit::{BitRate, Time};
use crate::wlan::mac::Guard;

/// The fields read from a radiotap header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Radiotap {
    /// The arrival time of the frame by the radio's clock, in µs.
    pub tsft: Option<u64>,
    /// Whether the frame ends with its frame check sequence (FCS) of 4 bytes.
    pub has_fcs: bool,
    /// Whether the FCS was wrong: the frame's content is not reliable.
    pub is_bad: bool,
    /// Whether the payload after the 802.11 header begins at a multiple of 4 bytes.
    pub is_padded: bool,
    /// How it was sent.
    pub phy: Option<Phy>,
    /// The A-MPDU to which it belonged.
    pub ampdu: Option<Ampdu>,
}

/// A part of an A-MPDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ampdu {
    /// The number of the A-MPDU: equal for all its parts, different for the next one.
    pub reference: u32,
    /// Whether this is known to be its last part.
    pub is_last: bool,
}

/// An identifier that all packets of one frame share, and that differs in the next frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stamp {
    /// The number of its A-MPDU.
    Reference(u32),
    /// The arrival time by the radio's clock, in µs.
    Tsft(u64),
}

impl Stamp {
    /// As a unique time, for an [`Arrival`](crate::wlan::Arrival): a TSFT in ns; a reference is
    /// above all of those.
    pub fn as_time(self) -> Time {
        const REFERENCES: u64 = 1 << 63;
        match self {
            Self::Reference(reference) => Time::from_nanos(REFERENCES | u64::from(reference)),
            Self::Tsft(micros) => Time::from_nanos(micros.saturating_mul(1_000) % REFERENCES),
        }
    }
}

/// Why bytes are not a radiotap header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RadiotapError {
    /// A version other than 0.
    #[error("its radiotap header is of version {0}, this is version 0")]
    Version(u8),
    /// It ends within the header.
    #[error("it ends within its radiotap header")]
    Cut,
}

/// Alignment and size of the fields 0 to 27, in bytes.
const FIELDS: [(usize, usize); 28] = [
    (8, 8),  // TSFT
    (1, 1),  // flags
    (1, 1),  // rate
    (2, 4),  // channel
    (1, 2),  // hopping
    (1, 1),  // signal, dBm
    (1, 1),  // noise, dBm
    (2, 2),  // lock quality
    (2, 2),  // transmit attenuation
    (2, 2),  // the same in dB
    (1, 1),  // transmit power
    (1, 1),  // antenna
    (1, 1),  // signal, dB
    (1, 1),  // noise, dB
    (2, 2),  // receive flags
    (2, 2),  // transmit flags
    (1, 1),  // RTS retries
    (1, 1),  // data retries
    (4, 8),  // extended channel
    (1, 3),  // HT
    (4, 8),  // A-MPDU
    (2, 12), // VHT
    (8, 12), // timestamp
    (2, 12), // HE
    (2, 12), // HE to many
    (2, 6),  // another one of many
    (1, 1),  // no data
    (2, 4),  // legacy signal
];

const TSFT: usize = 0;
const FLAGS: usize = 1;
const RATE: usize = 2;
const HT: usize = 19;
const AMPDU: usize = 20;
const VHT: usize = 21;
const HE: usize = 23;
/// The bits that describe the following words of bits.
const RESET_NAMESPACE: usize = 29;
const VENDOR: usize = 30;
const MORE: u32 = 1 << 31;

const FLAG_FCS: u8 = 0x10;
const FLAG_PADDED: u8 = 0x20;
const FLAG_BAD: u8 = 0x40;
const AMPDU_LAST_KNOWN: u16 = 0x04;
const AMPDU_LAST: u16 = 0x08;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

impl Radiotap {
    /// Reads the header at the front of `record`; returns it and the 802.11 frame after it, without
    /// its check sequence.
    ///
    /// # Errors
    /// [`RadiotapError`] if the header is incomplete.
    pub fn parse(record: &[u8]) -> Result<(Self, &[u8]), RadiotapError> {
        let version = *record.first().ok_or(RadiotapError::Cut)?;
        if version != 0 {
            return Err(RadiotapError::Version(version));
        }
        let len = usize::from(u16_at(record, 2).ok_or(RadiotapError::Cut)?);
        if len < 8 || len > record.len() {
            return Err(RadiotapError::Cut);
        }
        let (header, frame) = record.split_at(len);
        let mut radio = Self::default();
        radio.read(header).ok_or(RadiotapError::Cut)?;
        let checked = if radio.has_fcs { frame.len().saturating_sub(4) } else { frame.len() };
        Ok((radio, &frame[..checked]))
    }

    /// Reads the fields; `None` if the header ends within its words of present bits.
    fn read(&mut self, header: &[u8]) -> Option<()> {
        let mut words = 1;
        while u32_at(header, 4 * words)? & MORE != 0 {
            words += 1;
        }
        let mut at = 4 + 4 * words;
        // The end of the present vendor's data, within its words.
        let mut vendor_end = None;
        let mut is_first = true;
        for word in 1..=words {
            let present = u32_at(header, 4 * word)?;
            let has = |bit: usize| present & 1 << bit != 0;
            if vendor_end.is_none() {
                // A word that continues at bit 32 has unknown fields.
                if !is_first && present & !(MORE | 1 << RESET_NAMESPACE | 1 << VENDOR) != 0 {
                    return Some(());
                }
                for (field, (align, size)) in FIELDS.into_iter().enumerate() {
                    if !has(field) {
                        continue;
                    }
                    at = at.next_multiple_of(align);
                    let Some(bytes) = header.get(at..at + size) else { return Some(()) };
                    self.take(field, bytes);
                    at += size;
                }
                if has(FIELDS.len()) {
                    return Some(());
                }
            }
            is_first = false;
            if has(RESET_NAMESPACE) {
                at = vendor_end.take().unwrap_or(at);
                is_first = true;
            }
            if has(VENDOR) {
                at = vendor_end.take().unwrap_or(at).next_multiple_of(2);
                let Some(skipped) = u16_at(header, at + 4) else { return Some(()) };
                vendor_end = Some(at + 6 + usize::from(skipped));
            }
        }
        Some(())
    }

    /// Reads one field of this length.
    fn take(&mut self, field: usize, bytes: &[u8]) {
        match (field, bytes) {
            (TSFT, bytes) => {
                let tsft = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
                self.tsft = self.tsft.or(tsft);
            }
            (FLAGS, [flags]) => {
                self.has_fcs |= flags & FLAG_FCS != 0;
                self.is_padded |= flags & FLAG_PADDED != 0;
                self.is_bad |= flags & FLAG_BAD != 0;
            }
            // In units of 500 kbit/s; 0 if another field gives the rate.
            (RATE, &[rate]) if rate > 0 => {
                let rate = BitRate::from_bps(u64::from(rate) * 500_000);
                self.phy = self.phy.or(Some(Phy::Legacy(rate)));
            }
            (HT, bytes) => self.take_phy(ht(bytes)),
            (VHT, bytes) => self.take_phy(vht(bytes)),
            (HE, bytes) => self.take_phy(he(bytes)),
            (AMPDU, bytes) => {
                let read = u32_at(bytes, 0).zip(u16_at(bytes, 4)).map(|(reference, flags)| {
                    let last = AMPDU_LAST_KNOWN | AMPDU_LAST;
                    Ampdu { reference, is_last: flags & last == last }
                });
                self.ampdu = self.ampdu.or(read);
            }
            _ => {}
        }
    }

    /// Replaces a plain rate by a more precise mode.
    fn take_phy(&mut self, phy: Option<Phy>) {
        if matches!(self.phy, None | Some(Phy::Legacy(_))) {
            self.phy = phy.or(self.phy);
        }
    }

    /// The identifier of this frame. The number of an A-MPDU takes precedence over the time: some
    /// radios give each part of an A-MPDU its own time.
    pub fn stamp(&self) -> Option<Stamp> {
        let reference = self.ampdu.map(|ampdu| Stamp::Reference(ampdu.reference));
        reference.or(self.tsft.map(Stamp::Tsft))
    }

    /// Appends the header to `out`. Invalid rates and numbers of subcarriers are left out.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 8]);
        let mut present = 0u32;
        let mut put = |field: usize, bytes: &[u8]| {
            let align = FIELDS[field].0;
            out.resize(start + (out.len() - start).next_multiple_of(align), 0);
            out.extend_from_slice(bytes);
            present |= 1 << field;
        };
        if let Some(tsft) = self.tsft {
            put(TSFT, &tsft.to_le_bytes());
        }
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        let flags = flag(self.has_fcs, FLAG_FCS)
            | flag(self.is_padded, FLAG_PADDED)
            | flag(self.is_bad, FLAG_BAD);
        put(FLAGS, &[flags]);
        if let Some(Phy::Legacy(rate)) = self.phy
            && let Ok(rate) = u8::try_from(rate.as_bps() / 500_000)
        {
            put(RATE, &[rate]);
        }
        if let Some(Phy::Ht { mcs, width, guard }) = self.phy {
            let width = u8::from(width != Width::Mhz20);
            put(HT, &[0x07, width | flag(guard == Guard::Short, 0x04), mcs]);
        }
        if let Some(Ampdu { reference, is_last }) = self.ampdu {
            let flags = AMPDU_LAST_KNOWN | if is_last { AMPDU_LAST } else { 0 };
            let [a, b, c, d] = reference.to_le_bytes();
            let [e, f] = flags.to_le_bytes();
            put(AMPDU, &[a, b, c, d, e, f, 0, 0]);
        }
        if let Some(Phy::Vht { mcs, streams, width, guard }) = self.phy {
            let width = match width {
                Width::Mhz20 => 0,
                Width::Mhz40 => 1,
                Width::Mhz80 => 4,
                Width::Mhz160 => 11,
            };
            let short = flag(guard == Guard::Short, 0x04);
            put(VHT, &[0x44, 0, short, width, mcs << 4 | streams & 0x0F, 0, 0, 0, 0, 0, 0, 0]);
        }
        if let Some(Phy::He { mcs, streams, subcarriers, guard_ns, is_dual }) = self.phy
            && let Some(code) = HE_SUBCARRIERS.iter().position(|count| *count == subcarriers)
        {
            let guard = (u16::from(guard_ns > 800) + u16::from(guard_ns > 1_600)) << 4;
            let words = [
                HE_MCS_KNOWN | HE_DUAL_KNOWN | HE_WIDTH_KNOWN,
                HE_GUARD_KNOWN,
                u16::from(mcs & 0x0F) << 8 | if is_dual { HE_DUAL } else { 0 },
                0,
                code as u16 | guard,
                u16::from(streams & 0x0F),
            ];
            let mut bytes = [0; 12];
            for (place, word) in bytes.chunks_exact_mut(2).zip(words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            put(HE, &bytes);
        }
        let len = (out.len() - start) as u16;
        out[start + 2..start + 4].copy_from_slice(&len.to_le_bytes());
        out[start + 4..start + 8].copy_from_slice(&present.to_le_bytes());
    }
}

/// `known, flags, mcs`.
fn ht(bytes: &[u8]) -> Option<Phy> {
    const WIDTH_KNOWN: u8 = 0x01;
    const MCS_KNOWN: u8 = 0x02;
    const GUARD_KNOWN: u8 = 0x04;
    let &[known, flags, mcs] = bytes else { return None };
    if known & (WIDTH_KNOWN | MCS_KNOWN) != WIDTH_KNOWN | MCS_KNOWN {
        return None;
    }
    let width = if flags & 0x03 == 1 { Width::Mhz40 } else { Width::Mhz20 };
    let guard = guard(known & GUARD_KNOWN != 0 && flags & 0x04 != 0);
    Some(Phy::Ht { mcs, width, guard })
}

fn guard(is_short: bool) -> Guard {
    if is_short { Guard::Short } else { Guard::Long }
}

/// `known (2), flags, bandwidth, users (4), coding, group, partial AID (2)`.
fn vht(bytes: &[u8]) -> Option<Phy> {
    const GUARD_KNOWN: u16 = 0x0004;
    const WIDTH_KNOWN: u16 = 0x0040;
    let known = u16_at(bytes, 0)?;
    if known & WIDTH_KNOWN == 0 {
        return None;
    }
    let &[flags, width, ref users @ ..] = bytes.get(2..8)? else { return None };
    let width = match width {
        // Some of these are a half or a quarter of a wider channel.
        0 | 2 | 3 | 7..=10 | 18..=25 => Width::Mhz20,
        1 | 5 | 6 | 14..=17 => Width::Mhz40,
        4 | 12 | 13 => Width::Mhz80,
        11 => Width::Mhz160,
        _ => return None,
    };
    let user = users.iter().find(|user| **user & 0x0F != 0)?;
    let guard = guard(known & GUARD_KNOWN != 0 && flags & 0x04 != 0);
    Some(Phy::Vht { mcs: user >> 4, streams: user & 0x0F, width, guard })
}

/// Data subcarriers by the code of a width or a resource unit.
const HE_SUBCARRIERS: [u16; 11] = [234, 468, 980, 1960, 24, 48, 102, 234, 468, 980, 1960];
const HE_MCS_KNOWN: u16 = 0x0020;
const HE_DUAL_KNOWN: u16 = 0x0040;
const HE_WIDTH_KNOWN: u16 = 0x4000;
const HE_GUARD_KNOWN: u16 = 0x0002;
const HE_DUAL: u16 = 0x1000;

/// Six words.
fn he(bytes: &[u8]) -> Option<Phy> {
    const STBC_KNOWN: u16 = 0x0200;
    const STBC: u16 = 0x8000;
    let word = |number: usize| u16_at(bytes, 2 * number - 2);
    let (known, modulation, width) = (word(1)?, word(3)?, word(5)?);
    if known & (HE_MCS_KNOWN | HE_WIDTH_KNOWN) != HE_MCS_KNOWN | HE_WIDTH_KNOWN {
        return None;
    }
    let is_set = |bit_known, bit| known & bit_known != 0 && modulation & bit != 0;
    let guard_ns = match (word(2)? & HE_GUARD_KNOWN, width >> 4 & 0x03) {
        (0, _) | (_, 2) => 3_200,
        (_, 0) => 800,
        (_, 1) => 1_600,
        _ => return None,
    };
    // With space-time coding, two streams in space and time carry one.
    let halved = u8::from(is_set(STBC_KNOWN, STBC));
    let streams = (word(6)? & 0x0F) as u8 >> halved;
    Some(Phy::He {
        mcs: (modulation >> 8 & 0x0F) as u8,
        streams: streams.max(1),
        subcarriers: *HE_SUBCARRIERS.get(usize::from(width & 0x0F))?,
        guard_ns,
        is_dual: is_set(HE_DUAL_KNOWN, HE_DUAL),
    })
}
