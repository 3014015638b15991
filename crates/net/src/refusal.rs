//! The reasons for refusals, counted for metrics.

use std::fmt;

use freshline_core::wire::CloseReason;
#[cfg(feature = "metrics")]
use prometheus_client::encoding::DescriptorEncoder;
#[cfg(feature = "metrics")]
use prometheus_client::metrics::counter::ConstCounter;
use serde::ser::{Serialize, SerializeMap, Serializer};

#[cfg(feature = "metrics")]
use crate::metrics::family;

/// Why a monitor, or a server of packets or of a bond, refused a request, or ended a session to
/// make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A message of another version of the protocol.
    Version,
    /// A payload beyond `--max-payload`.
    Payload,
    /// An unknown token.
    Token,
    /// A name or a right that the token or certificate does not permit.
    NotPermitted,
    /// A name that is not accepted.
    Name,
    /// A name that another token or certificate holds.
    NameTaken,
    /// All places are held, and no party holds more than the newcomer's would.
    Full,
    /// The address holds `--max-sources-per-peer` sources.
    PeerLimit,
    /// A session that gave its place to a party that holds fewer.
    Displaced,
    /// A QUIC handshake failed: another protocol, a certificate that is not trusted, or a peer that takes
    /// small datagrams only.
    Handshake,
    /// A QUIC handshake beyond the rate of its address or network.
    HandshakeRate,
    /// A QUIC handshake beyond the rate of all together.
    HandshakeRateTotal,
    /// A Retry token of QUIC that was shown before.
    TokenReplayed,
    /// A QUIC connection beyond the maximum number of those with sessions.
    Connections,
    /// A QUIC connection that was displaced by a newcomer.
    ConnectionDisplaced,
    /// A QUIC connection, or a handshake, on which no session opened in time.
    NoSession,
    /// A connection of a bond's client to a destination that is forbidden, or did not answer.
    Destination,
    /// A packet that the kernel dropped: one that no connection and no newcomer can have sent, or a
    /// packet of a stranger for which the receive buffer had no room.
    Strange,
    /// A packet of a connection that the kernel dropped because the receive buffer had no room.
    Overflow,
}

impl Refusal {
    const ALL: [Self; 19] = [
        Self::Version,
        Self::Payload,
        Self::Token,
        Self::NotPermitted,
        Self::Name,
        Self::NameTaken,
        Self::Full,
        Self::PeerLimit,
        Self::Displaced,
        Self::Handshake,
        Self::HandshakeRate,
        Self::HandshakeRateTotal,
        Self::TokenReplayed,
        Self::Connections,
        Self::ConnectionDisplaced,
        Self::NoSession,
        Self::Destination,
        Self::Strange,
        Self::Overflow,
    ];

    /// Its label in metrics and its key in JSON.
    pub fn label(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Payload => "payload",
            Self::Token => "token",
            Self::NotPermitted => "not_permitted",
            Self::Name => "name",
            Self::NameTaken => "name_taken",
            Self::Full => "full",
            Self::PeerLimit => "peer_limit",
            Self::Displaced => "displaced",
            Self::Handshake => "handshake",
            Self::HandshakeRate => "handshake_rate",
            Self::HandshakeRateTotal => "handshake_rate_total",
            Self::TokenReplayed => "token_replayed",
            Self::Connections => "connections",
            Self::ConnectionDisplaced => "connection_displaced",
            Self::NoSession => "no_session",
            Self::Destination => "destination",
            Self::Strange => "strange_packet",
            Self::Overflow => "receive_buffer",
        }
    }

    /// The refusal of a message that was answered by a close; `None` if the session just ends.
    pub(crate) fn of(reason: CloseReason) -> Option<Self> {
        match reason {
            CloseReason::Version => Some(Self::Version),
            CloseReason::TooLarge => Some(Self::Payload),
            CloseReason::BadToken => Some(Self::Token),
            CloseReason::NotPermitted => Some(Self::NotPermitted),
            CloseReason::BadName => Some(Self::Name),
            CloseReason::NameTaken => Some(Self::NameTaken),
            CloseReason::Full => Some(Self::Full),
            _ => None,
        }
    }
}

/// Counts of refusals by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refusals([u64; Refusal::ALL.len()]);

impl Refusals {
    pub(crate) fn count(&mut self, reason: Refusal) {
        self.count_many(reason, 1);
    }

    pub(crate) fn count_many(&mut self, reason: Refusal, number: u64) {
        self.0[reason as usize] += number;
    }

    /// The number of refusals for this reason.
    pub fn of(&self, reason: Refusal) -> u64 {
        self.0[reason as usize]
    }

    /// The sums of both.
    pub(crate) fn and(mut self, others: &Self) -> Self {
        self.0.iter_mut().zip(others.0).for_each(|(count, others)| *count += others);
        self
    }

    /// Each reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Refusal, u64)> {
        Refusal::ALL.into_iter().zip(self.0)
    }

    /// Writes `refused_total{reason="…"}`, with all reasons, so that rates begin at zero.
    ///
    /// # Errors
    /// The encoder's errors.
    #[cfg(feature = "metrics")]
    pub fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = self
            .iter()
            .map(|(reason, count)| ([("reason", reason.label())], ConstCounter::new(count)));
        family(encoder, "refused", "Refusals by reason, also to make room for newcomers", counts)
    }
}

impl Serialize for Refusals {
    /// An object with the reasons that occurred.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (reason, count) in self.iter().filter(|(_, count)| *count > 0) {
            map.serialize_entry(reason.label(), &count)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_place_and_its_own_label() {
        let mut refusals = Refusals::default();
        for (number, reason) in (1..).zip(Refusal::ALL) {
            assert_eq!(reason as usize + 1, number as usize);
            refusals.count_many(reason, number);
        }
        let labels: std::collections::BTreeSet<_> = Refusal::ALL.map(Refusal::label).into();
        assert_eq!(labels.len(), Refusal::ALL.len());
        let no_session = Refusal::NoSession;
        assert_eq!(refusals.and(&refusals).of(no_session), 2 * (no_session as u64 + 1));
    }
}
