//! The reasons why a connection ended, in words for the person who must act on it.

use noq_proto::{ConnectionError, TransportError, TransportErrorCode};
use rustls::{AlertDescription, CertificateError};
use thiserror::Error;

/// The maximum number of characters of a peer's own text that are passed on.
const MAX_WORDS: usize = 200;

/// Why a connection was not established, or was lost.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LostReason {
    /// The handshake got no answer within the connect timeout.
    #[error("no answer: is the monitor running there, and does a firewall let UDP through?")]
    NoAnswer,
    /// Nothing arrived from the peer for the idle timeout.
    #[error("the peer has gone silent")]
    Silent,
    /// The peer does not know this connection: it was restarted.
    #[error("the peer was restarted")]
    Reset,
    /// This side does not trust the peer, or cannot agree with it on TLS.
    #[error("handshake broken off: {0}")]
    Distrusted(String),
    /// The peer refused the connection.
    #[error("refused by the peer: {0}")]
    Refused(String),
    /// The peer closed the connection, in its own words.
    #[error("closed by the peer: {0}")]
    Closed(String),
    /// One side broke the QUIC protocol.
    #[error("QUIC failed: {0}")]
    Protocol(String),
}

impl From<ConnectionError> for LostReason {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::TimedOut => Self::Silent,
            ConnectionError::Reset => Self::Reset,
            ConnectionError::ApplicationClosed(close) => Self::Closed(words(&close.reason)),
            ConnectionError::ConnectionClosed(close) => refusal(close.error_code)
                .map_or_else(|| Self::Protocol(words(close.to_string().as_bytes())), Self::Refused),
            ConnectionError::TransportError(error) => {
                distrust(&error).map_or_else(|| Self::Protocol(error.to_string()), Self::Distrusted)
            }
            error @ (ConnectionError::VersionMismatch
            | ConnectionError::LocallyClosed
            | ConnectionError::CidsExhausted) => Self::Protocol(error.to_string()),
        }
    }
}

/// The objection of this side's TLS, if TLS was the cause.
fn distrust(error: &TransportError) -> Option<String> {
    let tls = error.crypto.as_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match tls {
        // The message of our own verifier, without the wrapping.
        rustls::Error::InvalidCertificate(CertificateError::Other(ours)) => ours.to_string(),
        other => other.to_string(),
    })
}

/// The peer's objection, if its code is a TLS alert (RFC 9001 §4.8) or a refusal.
fn refusal(code: TransportErrorCode) -> Option<String> {
    if code == TransportErrorCode::CONNECTION_REFUSED {
        return Some("it has as many connections as it takes".into());
    }
    let alert = u64::from(code).checked_sub(0x100).and_then(|alert| u8::try_from(alert).ok())?;
    Some(match AlertDescription::from(alert) {
        AlertDescription::CertificateRequired => {
            "it asks for a client certificate: give one with its key".into()
        }
        AlertDescription::NoApplicationProtocol => {
            "it does not speak this version of Freshline's protocol".into()
        }
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown => {
            "it does not trust our certificate: its client authority must have signed it".into()
        }
        other => format!("TLS alert {other:?}"),
    })
}

/// Makes a peer's text safe to print: the peer may be hostile.
fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(MAX_WORDS).flat_map(char::escape_debug).collect()
}
