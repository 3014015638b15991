//! The certificates that a server's peers have presented, and the authorities, which may be
//! replaced.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::Arc;

use noq_proto::Connection;
use rustls::pki_types::{CertificateDer, UnixTime};

use super::{Server, ServerConfig, TokenClock};
use crate::sha256::Sha256;

impl Server {
    /// Accepts newcomers by the certificates of another configuration with the same identity from
    /// now on; unfinished handshakes are dropped. Returns the numbers of the connections whose
    /// certificates it does not accept.
    pub(crate) fn replace_clients(&mut self, config: &ServerConfig) -> HashSet<NonZeroU64> {
        self.endpoint.set_server_config(Some(timed(config, &self.clock)));
        let unfinished = self.peers.iter().flatten().filter(|peer| peer.phase.is_handshake());
        let unfinished: Vec<_> = unfinished.map(|peer| peer.key.slot).collect();
        unfinished.into_iter().for_each(|slot| self.forget(slot));
        let is_trusted = |connection: &Connection| {
            let Some(chain) = shown(connection) else {
                return !config.verifier.client_auth_mandatory();
            };
            let Some((certificate, others)) = chain.split_first() else { return false };
            config.verifier.verify_client_cert(certificate, others, UnixTime::now()).is_ok()
        };
        let peers = self.peers.iter().flatten().filter(|peer| peer.phase.is_established());
        let others = peers.filter(|peer| !is_trusted(&peer.connection));
        others.map(|peer| peer.key.serial()).collect()
    }
}

/// QUIC's settings for newcomers, with this clock.
pub(super) fn timed(
    config: &ServerConfig,
    clock: &Arc<TokenClock>,
) -> Arc<noq_proto::ServerConfig> {
    let mut quic = config.quic.clone();
    quic.time_source(clock.clone());
    Arc::new(quic)
}

/// A number for the certificate that the peer has presented.
pub(crate) fn identity(connection: &Connection) -> Option<NonZeroU64> {
    first_shown(connection).map(|shown| identity_of(&shown))
}

/// Derived from SHA-256, so that a certificate has the same number after a restart, and an attacker
/// cannot create one with the number of another certificate.
pub(super) fn identity_of(certificate: &CertificateDer<'_>) -> NonZeroU64 {
    NonZeroU64::new(Sha256::of(certificate).number()).unwrap_or(NonZeroU64::MIN)
}

/// The certificate that the peer has presented.
pub(super) fn first_shown(connection: &Connection) -> Option<CertificateDer<'static>> {
    shown(connection)?.into_iter().next()
}

/// The certificate with its chain.
fn shown(connection: &Connection) -> Option<Vec<CertificateDer<'static>>> {
    let shown = connection.crypto_session().peer_identity()?;
    shown.downcast::<Vec<CertificateDer<'static>>>().ok().map(|chain| *chain)
}
