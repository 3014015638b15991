//! QUIC for a monitor and its sources.
#![allow(dead_code, reason = "not every test needs all of it")]

use freshline_net::quic::{ClientConfig, Identity, Limits, ServerConfig, Trust};
use freshline_net::source::Transport;

/// QUIC's settings of both sides, with a certificate made for the occasion.
pub(crate) fn quic() -> (ServerConfig, Transport) {
    limited_quic(Limits::default())
}

pub(crate) fn limited_quic(limits: Limits) -> (ServerConfig, Transport) {
    let state = tempfile::tempdir().expect("a directory");
    let identity = Identity::from_state_dir(state.path()).expect("an identity");
    let server = ServerConfig::new(&identity, None, limits).expect("a server");
    let trust = Trust::Pinned(identity.fingerprint());
    let config = ClientConfig::new(&trust, None).expect("a client");
    (server, Transport::Quic { config, server_name: "localhost".into() })
}
