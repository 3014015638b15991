//! Messages that begin and end a session: challenge and close.

use super::cursor::{Reader, Writer};
use super::{Cookie, HEADER_LEN, ParseError, SessionId};

pub(super) const CHALLENGE: u8 = 3;
pub(super) const CLOSE: u8 = 4;

/// A monitor that does not know the session asks the source to prove its address: it must send
/// this cookie in its next opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Challenge {
    /// The session of the update that is answered.
    pub session: SessionId,
    /// The cookie that the next opening must carry.
    pub cookie: Cookie,
}

impl Challenge {
    /// Bytes on the wire.
    pub const LEN: usize = HEADER_LEN + 16;

    /// The challenge as bytes.
    pub fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        Writer::message(&mut bytes, CHALLENGE, self.session).put(&self.cookie.0);
        bytes
    }

    pub(super) fn read(session: SessionId, mut reader: Reader<'_>) -> Result<Self, ParseError> {
        Ok(Self { session, cookie: Cookie(reader.array()?) })
    }
}

/// The end of a session, from either side, or its refusal by the monitor or the server of a
/// downlink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Close {
    /// The session that ends.
    pub session: SessionId,
    /// Why it ends.
    pub reason: CloseReason,
}

/// Why a session ends or never begins. The messages are worded for the end that receives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum CloseReason {
    /// The sender, which is the source or the server of a downlink, has nothing more to send.
    #[error("there is nothing more to send")]
    Done = 0,
    /// The monitor, or the server of a downlink, stops.
    #[error("the far end is shutting down")]
    ShuttingDown = 1,
    /// Its maximum number of sources, or clients, is reached.
    #[error("the far end serves as many as it may; raise its --max-sources or --max-clients")]
    Full = 2,
    /// It does not accept the token.
    #[error("the far end does not accept the token")]
    BadToken = 3,
    /// It does not speak this version of the protocol.
    #[error("the far end speaks another version of the protocol")]
    Version = 4,
    /// The payload exceeds its maximum.
    #[error("the payload is longer than the far end takes; raise its --max-payload")]
    TooLarge = 5,
    /// Another source has the name, with another certificate or another token.
    #[error(
        "a source with another certificate or token has this name; it keeps it until it is silent"
    )]
    NameTaken = 6,
    /// The name has characters that the monitor does not accept.
    #[error(
        "the far end takes names of ASCII letters, digits and . _ : / @ + - that begin with a letter \
         or a digit and have no part `..`; choose such a name"
    )]
    BadName = 7,
    /// The token or the certificate is known, but not for this name, or not for the requested
    /// right.
    #[error(
        "the far end knows the token or certificate, but does not permit it to use this name here; \
         choose a permitted name, or have the far end's --credentials changed"
    )]
    NotPermitted = 8,
}

impl CloseReason {
    /// All reasons, in the order of their numbers on the wire.
    pub const ALL: [Self; 9] = [
        Self::Done,
        Self::ShuttingDown,
        Self::Full,
        Self::BadToken,
        Self::Version,
        Self::TooLarge,
        Self::NameTaken,
        Self::BadName,
        Self::NotPermitted,
    ];
}

impl Close {
    /// Bytes on the wire.
    pub const LEN: usize = HEADER_LEN + 4;

    /// The message as bytes.
    pub fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        Writer::message(&mut bytes, CLOSE, self.session).put(&[self.reason as u8, 0, 0, 0]);
        bytes
    }

    /// The refusal of a peer that speaks another version, in that one: a close is the same in all
    /// versions.
    pub fn of_version(version: u8, session: SessionId) -> [u8; Self::LEN] {
        let mut bytes = Self { session, reason: CloseReason::Version }.bytes();
        bytes[super::MAGIC.len()] = version;
        bytes
    }

    pub(super) fn read(session: SessionId, mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let [code, ..]: [u8; 4] = reader.array()?;
        let reason = CloseReason::ALL
            .get(usize::from(code))
            .copied()
            .ok_or(ParseError::Field("close reason"))?;
        Ok(Self { session, reason })
    }
}
