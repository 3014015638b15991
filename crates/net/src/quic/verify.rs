//! The peers that an endpoint trusts: the TLS 1.3 settings of either side.
//!
//! A source trusts its monitor by a certificate authority, with the host name checked,
//! or by a pinned fingerprint. A monitor may ask its sources for certificates of an
//! authority of its choice. There is no session resumption and no 0-RTT: both save a
//! round trip that a long-lived connection pays once, and 0-RTT data can be replayed.

use std::path::Path;
use std::sync::Arc;

use noq_proto::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, PeerIncompatible,
    RootCertStore, SignatureScheme,
};
use thiserror::Error;

use super::identity::{Fingerprint, Identity, IdentityError, provider, read_certificates};

/// The protocol that both sides must name in the handshake (ALPN, RFC 7301).
pub(super) const ALPN: &[u8] = b"freshline/1";

/// Certificate authorities; a self-signed certificate is its own authority.
#[derive(Clone, Debug)]
pub struct Authorities(Arc<RootCertStore>);

impl Authorities {
    /// Reads every certificate of a PEM file.
    ///
    /// # Errors
    /// [`TrustError`] when the file cannot be read or a certificate in it is malformed.
    pub fn from_pem_file(path: &Path) -> Result<Self, TrustError> {
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(path)? {
            roots.add(certificate)?;
        }
        Ok(Self(Arc::new(roots)))
    }
}

/// How a source verifies its monitor.
#[derive(Clone, Debug)]
pub enum Trust {
    /// One of these authorities has signed the monitor's certificate, which is valid today and
    /// names the host that the source dialled.
    Authorities(Authorities),
    /// The monitor presents the certificate with this fingerprint, with any name.
    Pinned(Fingerprint),
    /// The monitor presents a certificate with any of these fingerprints.
    OneOf(Vec<Fingerprint>),
}

/// The clients that a server accepts.
#[derive(Clone, Debug)]
pub enum Clients {
    /// Clients with a certificate signed by one of these authorities and valid today.
    Authorities(Authorities),
    /// Clients that present a certificate with one of these fingerprints, with any name.
    Pinned(Vec<Fingerprint>),
}

/// Why TLS cannot be set up as requested.
#[derive(Debug, Error)]
pub enum TrustError {
    /// A file of certificates is unusable.
    #[error(transparent)]
    File(#[from] IdentityError),
    /// The authorities are unusable.
    #[error("no verifier can be built on these authorities: {0}")]
    Verifier(String),
    /// TLS 1.3 cannot use the identity or an authority.
    #[error("TLS 1.3 cannot use this certificate: {0}")]
    Tls(#[from] rustls::Error),
    /// The cryptography lacks the cipher that QUIC starts with.
    #[error(transparent)]
    Cipher(#[from] NoInitialCipherSuite),
}

/// The source's side of the handshake.
pub(crate) fn source_tls(
    trust: &Trust,
    identity: Option<&Identity>,
    alpn: &[u8],
) -> Result<QuicClientConfig, TrustError> {
    let provider = provider();
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::Authorities(Authorities(roots)) => {
            WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
                .build()
                .map_err(|error| TrustError::Verifier(error.to_string()))?
        }
        Trust::Pinned(pin) => {
            Arc::new(PinVerifier { pins: vec![*pin], provider: provider.clone() })
        }
        Trust::OneOf(pins) => {
            Arc::new(PinVerifier { pins: pins.clone(), provider: provider.clone() })
        }
    };
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut tls = match identity {
        Some(identity) => builder.with_client_auth_cert(identity.chain(), identity.key())?,
        None => builder.with_no_client_auth(),
    };
    tls.alpn_protocols = vec![alpn.to_vec()];
    tls.resumption = Resumption::disabled();
    Ok(tls.try_into()?)
}

/// The monitor's side of the handshake.
pub(crate) fn monitor_tls(
    identity: &Identity,
    verifier: Arc<dyn ClientCertVerifier>,
    alpn: &[u8],
) -> Result<QuicServerConfig, TrustError> {
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(identity.chain(), identity.key())?;
    tls.alpn_protocols = vec![alpn.to_vec()];
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    Ok(tls.try_into()?)
}

/// Checks the certificates of these clients; without a list of clients, no certificate is
/// requested.
pub(crate) fn client_verifier(
    clients: Option<&Clients>,
) -> Result<Arc<dyn ClientCertVerifier>, TrustError> {
    let provider = provider();
    Ok(match clients {
        Some(Clients::Authorities(Authorities(roots))) => {
            WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
                .build()
                .map_err(|error| TrustError::Verifier(error.to_string()))?
        }
        Some(Clients::Pinned(pins)) => {
            Arc::new(PinnedClients { pins: pins.clone(), provider: provider.clone() })
        }
        None => WebPkiClientVerifier::no_client_auth(),
    })
}

/// How a verifier of either side checks signatures: TLS 1.3 signatures only, by its `provider`. A
/// certificate is public: only this signature shows that the peer owns it.
macro_rules! by_tls13_alone {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _certificate: &CertificateDer<'_>,
            _signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(PeerIncompatible::Tls13RequiredForQuic.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls13_signature(message, certificate, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

/// Accepts certificates by their fingerprints, from a peer that holds the private key.
#[derive(Debug)]
struct PinVerifier {
    pins: Vec<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = Fingerprint::of(end_entity);
        if self.pins.contains(&shown) {
            return Ok(ServerCertVerified::assertion());
        }
        let pinned: Vec<_> = self.pins.iter().map(Fingerprint::to_string).collect();
        let mismatch = PinMismatch { shown, pinned: pinned.join(" or ") };
        Err(CertificateError::Other(OtherError(Arc::new(mismatch))).into())
    }

    by_tls13_alone!();
}

/// Accepts clients by the fingerprints of their certificates, if they hold the private keys.
#[derive(Debug)]
struct PinnedClients {
    pins: Vec<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for PinnedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if self.pins.contains(&Fingerprint::of(end_entity)) {
            return Ok(ClientCertVerified::assertion());
        }
        Err(CertificateError::UnknownIssuer.into())
    }

    by_tls13_alone!();
}

/// The peer is not the pinned one.
#[derive(Debug, Error)]
#[error(
    "the monitor shows {shown} but {pinned} is pinned: if its identity was renewed, pin the new one; if not, this is not your monitor"
)]
struct PinMismatch {
    shown: Fingerprint,
    pinned: String,
}
