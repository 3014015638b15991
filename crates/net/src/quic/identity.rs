//! The identity of an endpoint: a certificate, its private key, and the secrets derived from them.
//!
//! A monitor needs an identity; a source needs one only if the monitor requires a client
//! certificate. It comes from the operator's PEM files, or it is generated once and kept in a state
//! directory, so that a restarted monitor still has the fingerprint that its sources have pinned.
//!
//! Two secrets are derived from the private key instead of being random: the key of stateless
//! resets (RFC 9000 §10.3) and the key that marks our connection IDs. As both are the same after a
//! restart, the monitor recognises a packet of a connection that it no longer knows and can notify
//! the source at once.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use ring::hmac;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use thiserror::Error;

use crate::sha256::Sha256;
use crate::sieve::Tag;

/// The cryptography provider of all TLS here.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The file of a generated identity inside its state directory: private key and
/// certificate together, so that neither can be replaced without the other.
const STATE_FILE: &str = "identity.pem";

/// A certificate chain with the private key of its first certificate.
pub struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads a certificate chain (leaf first) and a private key from PEM files, which may be the
    /// same file.
    ///
    /// # Errors
    /// [`IdentityError`] if a file cannot be read or holds no such item, or if the key does not
    /// belong to the certificate.
    pub fn from_pem_files(certificate: &Path, key: &Path) -> Result<Self, IdentityError> {
        let chain = read_certificates(certificate)?;
        let key_text = read(key)?;
        let key_der = PrivateKeyDer::from_pem_slice(&key_text).map_err(|error| match error {
            pem::Error::NoItemsFound => IdentityError::NoKey { path: key.into() },
            source => IdentityError::Pem { path: key.into(), source },
        })?;
        CertifiedKey::from_der(chain.clone(), key_der.clone_key(), &provider()).map_err(
            |source| IdentityError::Unusable {
                certificate: certificate.into(),
                key: key.into(),
                source,
            },
        )?;
        Ok(Self { chain, key: key_der })
    }

    /// The identity kept in the directory `state`; the first call generates it, with a self-signed
    /// certificate for `localhost` that does not expire, and stores it in `identity.pem`, readable
    /// by its owner only.
    ///
    /// # Errors
    /// [`IdentityError`] if the directory cannot be created or written, or if the file in it is
    /// damaged or readable by others.
    #[cfg(feature = "listen")]
    pub fn from_state_dir(state: &Path) -> Result<Self, IdentityError> {
        let path = state.join(STATE_FILE);
        if !path.exists() {
            generate(state, &path)?;
        }
        let mode = fs::metadata(&path)
            .map_err(|source| IdentityError::Read { path: path.clone(), source })?
            .mode();
        if mode & 0o077 != 0 {
            return Err(IdentityError::Exposed { path });
        }
        Self::from_pem_files(&path, &path)
    }

    /// The fingerprint of the first certificate, for sources to pin.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.chain[0])
    }

    pub(super) fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.chain.clone()
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    /// The key that signs stateless reset tokens.
    pub(crate) fn reset_key(&self) -> hmac::Key {
        let secret = self.derive(b"freshline quic stateless reset v1");
        hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref())
    }

    /// The tag with which our connection IDs begin, when the kernel checks them.
    pub(crate) fn connection_id_tag(&self) -> Tag {
        let secret = self.derive(b"freshline quic connection id tag v1");
        Tag(secret.as_ref().iter().take(4).fold(0, |tag, &byte| tag << 8 | u32::from(byte)))
    }

    /// The key that marks connection IDs as ours, when the kernel does not check them.
    pub(crate) fn connection_id_key(&self) -> u64 {
        let secret = self.derive(b"freshline quic connection id v1");
        secret.as_ref().iter().take(8).fold(0, |key, &byte| key << 8 | u64::from(byte))
    }

    /// A separate secret for each `label`, none of which reveals the private key.
    fn derive(&self, label: &[u8]) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, self.key.secret_der()), label)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("fingerprint", &self.fingerprint()).finish_non_exhaustive()
    }
}

/// Reads every certificate of a PEM file; at least one.
pub(super) fn read_certificates(
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let text = read(path)?;
    let chain = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| IdentityError::Pem { path: path.into(), source })?;
    if chain.is_empty() {
        return Err(IdentityError::NoCertificate { path: path.into() });
    }
    Ok(chain)
}

fn read(path: &Path) -> Result<Vec<u8>, IdentityError> {
    fs::read(path).map_err(|source| IdentityError::Read { path: path.into(), source })
}

/// Writes a new identity next to `path` and links it into place as a whole. If another process was
/// first, its identity remains and ours is discarded.
#[cfg(feature = "listen")]
fn generate(state: &Path, path: &Path) -> Result<(), IdentityError> {
    let key = rcgen::KeyPair::generate().map_err(IdentityError::Generate)?;
    let certificate = rcgen::CertificateParams::new(["localhost".to_owned()])
        .and_then(|params| params.self_signed(&key))
        .map_err(IdentityError::Generate)?;

    let write = || -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(state)?;
        // Created with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(state)?;
        file.write_all(key.serialize_pem().as_bytes())?;
        file.write_all(certificate.pem().as_bytes())?;
        file.as_file().sync_all()?;
        match file.persist_noclobber(path) {
            Err(taken) if taken.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.map(drop).map_err(io::Error::from),
        }
    };
    write().map_err(|source| IdentityError::Write { path: path.into(), source })
}

/// The SHA-256 of a certificate in DER, which a source pins. Written `sha256:` and 64 hexadecimal
/// digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(Sha256);

impl Fingerprint {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::of(certificate))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = BadFingerprint;

    fn from_str(text: &str) -> Result<Self, BadFingerprint> {
        let digest = text.strip_prefix("sha256:").and_then(Sha256::from_digits);
        digest.map(Self).ok_or_else(|| BadFingerprint { text: text.into() })
    }
}

/// A text that is not a fingerprint.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "`{text}` is no fingerprint: give `sha256:` and 64 hexadecimal digits, as the monitor prints at its start"
)]
pub struct BadFingerprint {
    text: String,
}

/// Why the identity cannot be used.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file is not PEM.
    #[error("{} is not valid PEM ({source}): export it again as PEM", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        source: pem::Error,
    },
    /// A file has no certificate.
    #[error("{} holds no certificate: it needs a `BEGIN CERTIFICATE` section", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A file has no private key.
    #[error("{} holds no private key: it needs an unencrypted `BEGIN PRIVATE KEY` section", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The key does not belong to the certificate, or TLS 1.3 does not support its type.
    #[error("the key in {} cannot serve the certificate in {}: {source}", key.display(), certificate.display())]
    Unusable {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The error of the TLS library.
        source: rustls::Error,
    },
    /// The generated identity is readable by others, so it may have been copied.
    #[error("{} is readable by others: `chmod 600` it, or delete it for a new identity (sources then need the new fingerprint)", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// A generated identity cannot be stored.
    #[error("cannot keep the new identity in {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// No key or certificate could be generated.
    #[cfg(feature = "listen")]
    #[error("cannot generate an identity: {0}")]
    Generate(rcgen::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_restart_keeps_the_fingerprint_and_the_derived_keys() {
        let state = tempfile::tempdir().unwrap();
        let dir = state.path().join("made/on/first/use");
        let first = Identity::from_state_dir(&dir).unwrap();
        let second = Identity::from_state_dir(&dir).unwrap();
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert_eq!(first.connection_id_key(), second.connection_id_key());
        assert_eq!(first.connection_id_tag(), second.connection_id_tag());
        let tag = hmac::sign(&first.reset_key(), b"connection");
        assert!(hmac::verify(&second.reset_key(), b"connection", tag.as_ref()).is_ok());

        let other = Identity::from_state_dir(&state.path().join("other")).unwrap();
        assert_ne!(first.fingerprint(), other.fingerprint());
        assert_ne!(first.connection_id_key(), other.connection_id_key());
        assert_ne!(first.connection_id_tag(), other.connection_id_tag());
    }

    #[test]
    fn a_generated_identity_is_for_its_owner_only() {
        let state = tempfile::tempdir().unwrap();
        Identity::from_state_dir(state.path()).unwrap();
        let path = state.path().join(STATE_FILE);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Identity::from_state_dir(state.path()).unwrap_err();
        assert!(matches!(error, IdentityError::Exposed { .. }), "{error}");
    }

    #[test]
    fn files_that_do_not_fit_are_named_in_the_error() {
        let state = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| {
            let dir = state.path().join(name);
            Identity::from_state_dir(&dir).unwrap();
            dir.join(STATE_FILE)
        });
        let empty = state.path().join("empty.pem");
        fs::write(&empty, "no sections").unwrap();
        let broken = state.path().join("broken.pem");
        fs::write(&broken, "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n").unwrap();
        let absent = state.path().join("absent.pem");

        for (certificate, key, said) in [
            (&one, &two, "cannot serve the certificate"),
            (&empty, &one, "empty.pem holds no certificate"),
            (&one, &empty, "empty.pem holds no private key"),
            (&broken, &one, "broken.pem is not valid PEM"),
            (&absent, &one, "cannot read"),
        ] {
            let error = Identity::from_pem_files(certificate, key).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_fingerprint_reads_back_as_it_is_written() {
        let state = tempfile::tempdir().unwrap();
        let fingerprint = Identity::from_state_dir(state.path()).unwrap().fingerprint();
        let text = fingerprint.to_string();
        assert_eq!(text.parse(), Ok(fingerprint));
        assert_eq!(text.to_uppercase().replace("SHA256", "sha256").parse(), Ok(fingerprint));
        for bad in
            ["", "sha256:", &text[1..], &text[..70], &format!("{text}00"), &text.replace(':', ":g")]
        {
            assert!(bad.parse::<Fingerprint>().is_err(), "{bad}");
        }
    }
}
