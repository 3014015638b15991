//! The ack: what the monitor knows after one update.

use super::cursor::{Reader, Writer};
use super::{HEADER_LEN, Marks, ParseError, SessionId};
use crate::unit::{Span, Time};

pub(super) const TYPE: u8 = 2;

const WAS_FRESH: u8 = 1;

/// A monitor's answer to one update. The counts are modulo 2³²: only differences between two
/// acks mean anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// The session of the update.
    pub session: SessionId,
    /// The sequence number of the update.
    pub seq: u64,
    /// The generation time of the update, on the source's clock, as it came.
    pub generated_at: Time,
    /// When the update arrived, on the monitor's own clock. Only differences between acks mean
    /// anything: gaps between arrivals, and how the one-way delay varies.
    pub received_at: Time,
    /// How long the monitor held the update before it answered, in whole µs up to 71 minutes.
    pub hold: Span,
    /// Whether the update was the freshest when it arrived.
    pub was_fresh: bool,
    /// Updates that were the freshest when they arrived.
    pub fresh: u32,
    /// Updates that came after a fresher one (copies of an update are not counted).
    pub stale: u32,
    /// Updates sent before the freshest that have not come.
    pub missing: u32,
    /// The code points of the update and of this ack.
    pub marks: Marks,
}

impl Ack {
    /// Bytes on the wire.
    pub const LEN: usize = HEADER_LEN + 44;

    /// The ack as bytes.
    pub fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let [seen, sent] = self.marks.write();
        let hold_us = u32::try_from(self.hold.as_micros()).unwrap_or(u32::MAX);
        Writer::message(&mut bytes, TYPE, self.session)
            .put(&[if self.was_fresh { WAS_FRESH } else { 0 }, seen, sent, 0])
            .put(&self.seq.to_be_bytes())
            .put(&self.generated_at.as_nanos().to_be_bytes())
            .put(&self.received_at.as_nanos().to_be_bytes())
            .put(&hold_us.to_be_bytes())
            .put(&self.fresh.to_be_bytes())
            .put(&self.stale.to_be_bytes())
            .put(&self.missing.to_be_bytes());
        bytes
    }

    #[inline]
    pub(super) fn read(session: SessionId, mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let [flags, seen, sent, _reserved] = reader.array()?;
        Ok(Self {
            session,
            was_fresh: flags & WAS_FRESH != 0,
            seq: reader.u64()?,
            generated_at: Time::from_nanos(reader.u64()?),
            received_at: Time::from_nanos(reader.u64()?),
            hold: Span::from_micros(reader.u32()?.into()),
            fresh: reader.u32()?,
            stale: reader.u32()?,
            missing: reader.u32()?,
            marks: Marks::read([seen, sent]),
        })
    }
}
