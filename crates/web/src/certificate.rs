//! The certificate for WebTransport, which browsers know by its hash.
//!
//! Browsers accept a self-signed certificate whose hash the page names (`serverCertificateHashes`) if it is of ECDSA with
//! P-256 and valid for at most 14 days. A new one takes its place after five days; connections that are open go on, and
//! a page asks for the hash before each connection.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use ring::digest::{SHA256, digest};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;

use crate::error::GatewayError;

/// After this time by the system's clock a certificate is replaced,
const ROTATION: time::Duration = time::Duration::days(5);

/// and if that clock was set back by more than this.
const BACK: time::Duration = time::Duration::hours(1);

/// How often the certificate's age is checked. A sleep of five days would not do: timers stand still while a machine
/// sleeps.
pub(crate) const LOOK: Duration = Duration::from_secs(60);

/// It is valid for so long on either side of its rotation: at most 14 days in all, and clocks may be wrong by days.
const BEFORE: time::Duration = time::Duration::days(4);
const AFTER: time::Duration = time::Duration::days(9);

/// A certificate, and its key.
#[derive(Clone)]
struct Made {
    key: Arc<CertifiedKey>,
    hash: Box<str>,
    at: OffsetDateTime,
}

/// The present certificate.
pub(crate) struct Certificate(RwLock<Made>);

impl Certificate {
    /// A new one.
    pub(crate) fn new() -> Result<Self, GatewayError> {
        Ok(Self(RwLock::new(make()?)))
    }

    /// Replaces it if it is time.
    pub(crate) fn rotate(&self) -> Result<(), GatewayError> {
        let age = OffsetDateTime::now_utc() - self.present().at;
        if age > -BACK && age < ROTATION { Ok(()) } else { self.replace() }
    }

    fn replace(&self) -> Result<(), GatewayError> {
        let made = make()?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = made;
        Ok(())
    }

    /// The SHA-256 of its DER, in hexadecimal digits.
    pub(crate) fn hash(&self) -> Box<str> {
        self.present().hash
    }

    fn present(&self) -> Made {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn make() -> Result<Made, GatewayError> {
    let broken = |error: &dyn fmt::Display| GatewayError::Certificate(error.to_string());
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| broken(&error))?;
    let mut params =
        CertificateParams::new(vec!["freshline".to_owned()]).map_err(|error| broken(&error))?;
    let now = OffsetDateTime::now_utc();
    (params.not_before, params.not_after) = (now - BEFORE, now + AFTER);
    let certificate = params.self_signed(&pair).map_err(|error| broken(&error))?;
    let der: CertificateDer<'static> = certificate.der().clone();
    let hash = hex(digest(&SHA256, &der).as_ref());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.serialize_der()));
    let provider = rustls::crypto::ring::default_provider();
    let key = CertifiedKey::from_der(vec![der], key, &provider).map_err(|error| broken(&error))?;
    Ok(Made { key: Arc::new(key), hash, at: now })
}

/// The TLS settings of the page, for `https://`.
pub(crate) fn https(chain: &Path, key: &Path) -> Result<Arc<rustls::ServerConfig>, GatewayError> {
    let unusable = |file: &Path, error: &dyn fmt::Display| GatewayError::Identity {
        file: file.into(),
        why: error.to_string(),
    };
    let certificates = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(chain, &error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(chain, &error))?
        .with_no_client_auth()
        .with_single_cert(certificates, private)
        .map_err(|error| unusable(chain, &error))?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(tls))
}

fn hex(bytes: &[u8]) -> Box<str> {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Certificate").field(&self.hash()).finish()
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.present().key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_browsers_accept_by_hash() {
        assert!(BEFORE + AFTER <= time::Duration::days(14));
        assert!(AFTER > ROTATION + time::Duration::days(3));
        let certificate = Certificate::new().expect("it can be made");
        let before = certificate.present();
        assert_eq!(before.hash.len(), 64);
        assert_eq!(before.hash, hex(digest(&SHA256, &before.key.cert[0]).as_ref()));
        certificate.rotate().expect("it is young");
        assert_eq!(certificate.hash(), before.hash);
        for days in [6, -1] {
            let at = OffsetDateTime::now_utc() - time::Duration::days(days);
            certificate.0.write().unwrap().at = at;
            let hash = certificate.hash();
            certificate.rotate().expect("it can be made");
            assert_ne!(certificate.hash(), hash, "{days} days");
        }
    }
}
