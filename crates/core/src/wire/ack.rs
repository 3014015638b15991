//! The ack: the monitor's state after one update.

use core::ops::Deref;

use super::cursor::{Reader, Writer};
use super::{HEADER_LEN, Marks, ParseError, SessionId};
use crate::unit::{Span, Time};

pub(super) const TYPE: u8 = 2;

const WAS_FRESH: u8 = 1;
const PARTS: u8 = 2;
const NO_ROOM: u8 = 4;

/// A monitor's answer to one update. The counts are modulo 2³²: only differences between two acks
/// are meaningful.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// The session of the update.
    pub session: SessionId,
    /// The sequence number of the update.
    pub seq: u64,
    /// When the update left, on the source's clock, as stated in the update.
    pub sent_at: Time,
    /// When the update arrived, on the monitor's own clock. Only differences between acks are
    /// meaningful: gaps between arrivals, and how the one-way delay varies.
    pub received_at: Time,
    /// How long the monitor held the update before it answered, in whole µs up to 71 minutes.
    pub hold: Span,
    /// Whether the update was the freshest when it arrived.
    pub was_fresh: bool,
    /// Updates that were the freshest when they arrived.
    pub fresh: u32,
    /// Updates that arrived after a fresher one (copies of an update are not counted).
    pub stale: u32,
    /// Updates sent before the freshest that have not arrived.
    pub missing: u32,
    /// The code points of the update and of this ack.
    pub marks: Marks,
    /// The arrivals of states in parts, if the update is [of parts](super::Update::is_of_parts).
    pub parts: Option<PartsAck>,
}

/// The arrivals of states that take several updates, and of topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PartsAck {
    /// Which of the 64 updates before the acknowledged one have arrived: bit 0 is the one before
    /// it. An update with a state for which there was no room counts as missing.
    pub recent: u64,
    /// Whether there was no room for a state in the acknowledged update.
    pub no_room: bool,
    /// The number of the newest whole state of the topic that [leads](super::Frames::lead) the
    /// update, if there is one. If a record leads it, or a question for the cursor: the cursor of
    /// its stream, the number of chunks delivered to the application, if the stream is known.
    pub newest: Option<u64>,
}

impl PartsAck {
    /// Whether an ack of update `acked` reports that update `seq` has arrived, with everything in
    /// it. Acks name 64 updates before their own; they report nothing about older and later ones.
    pub fn names(&self, acked: u64, seq: u64) -> bool {
        match acked.checked_sub(seq) {
            Some(0) => !self.no_room,
            Some(behind) if behind <= u64::BITS.into() => self.recent & (1 << (behind - 1)) != 0,
            _ => false,
        }
    }
}

/// An ack as it is on the wire.
#[derive(Debug, Clone, Copy)]
pub struct AckBytes {
    bytes: [u8; Ack::LEN_OF_PARTS],
    len: usize,
}

impl Deref for AckBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl AsRef<[u8]> for AckBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Ack {
    /// Bytes on the wire of one without [`Ack::parts`].
    pub const LEN: usize = HEADER_LEN + 44;
    /// The same with them.
    pub const LEN_OF_PARTS: usize = Self::LEN + 16;

    /// Bytes on the wire.
    #[expect(clippy::len_without_is_empty, reason = "an ack is never empty on the wire")]
    pub fn len(&self) -> usize {
        if self.parts.is_some() { Self::LEN_OF_PARTS } else { Self::LEN }
    }

    /// The ack as bytes.
    pub fn bytes(&self) -> AckBytes {
        let mut bytes = [0; Self::LEN_OF_PARTS];
        let len = self.write(&mut bytes);
        AckBytes { bytes, len }
    }

    /// Writes the ack to the front of `out`, which has room for it, and returns its length.
    #[inline]
    pub(crate) fn write(&self, out: &mut [u8]) -> usize {
        let [seen, sent] = self.marks.write();
        let hold_us = u32::try_from(self.hold.as_micros()).unwrap_or(u32::MAX);
        let fresh = if self.was_fresh { WAS_FRESH } else { 0 };
        let parts = if self.parts.is_some() { PARTS } else { 0 };
        let no_room = if self.parts.is_some_and(|parts| parts.no_room) { NO_ROOM } else { 0 };
        let mut writer = Writer::message(out, TYPE, self.session);
        writer
            .put(&[fresh | parts | no_room, seen, sent, 0])
            .put(&self.seq.to_be_bytes())
            .put(&self.sent_at.as_nanos().to_be_bytes())
            .put(&self.received_at.as_nanos().to_be_bytes())
            .put(&hold_us.to_be_bytes())
            .put(&self.fresh.to_be_bytes())
            .put(&self.stale.to_be_bytes())
            .put(&self.missing.to_be_bytes());
        if let Some(PartsAck { recent, newest, .. }) = self.parts {
            let newest = newest.map_or(0, |number| number.saturating_add(1));
            writer.put(&recent.to_be_bytes()).put(&newest.to_be_bytes());
        }
        self.len()
    }

    #[inline]
    pub(super) fn read(session: SessionId, mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let [flags, seen, sent, _reserved] = reader.array()?;
        let mut ack = Self {
            session,
            was_fresh: flags & WAS_FRESH != 0,
            seq: reader.u64()?,
            sent_at: Time::from_nanos(reader.u64()?),
            received_at: Time::from_nanos(reader.u64()?),
            hold: Span::from_micros(reader.u32()?.into()),
            fresh: reader.u32()?,
            stale: reader.u32()?,
            missing: reader.u32()?,
            marks: Marks::read([seen, sent]),
            parts: None,
        };
        if flags & PARTS != 0 {
            let (recent, newest) = (reader.u64()?, reader.u64()?.checked_sub(1));
            let no_room = flags & NO_ROOM != 0;
            ack.parts = Some(PartsAck { recent, no_room, newest });
        }
        Ok(ack)
    }
}
