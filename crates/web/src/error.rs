//! Why there is no gateway.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a gateway cannot be.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The address is taken, or not of this host.
    #[error("cannot serve browsers at {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// There is no runtime, or no thread.
    #[error("cannot serve browsers: {0}")]
    System(io::Error),
    /// The system gives no random bytes.
    #[error("no random bytes: {0}")]
    Random(String),
    /// A token that is too short, too long, or would not fit into a URL.
    #[error("a token for browsers has 16 to 255 letters, digits, - _ . or ~")]
    Token,
    /// The certificate for WebTransport cannot be made.
    #[error("no certificate for WebTransport: {0}")]
    Certificate(String),
    /// The certificate of the page, or its key, cannot be used.
    #[error("cannot use {}: {why}", file.display())]
    Identity {
        /// The file.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// No session can have these settings.
    #[error("no session with a browser: {0}")]
    Session(String),
}
