//! The names in a peer's certificate.

use freshline_core::wire::Opening;
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The maximum number of names of a certificate, so that a connection's memory is bounded.
const MAX_NAMES: usize = 64;

/// The subject alternative names that a source can use: DNS names and URIs, unchanged. Wildcards
/// are names like others, so they match no plain name.
pub(super) fn of(certificate: &CertificateDer<'_>) -> Box<[Box<str>]> {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else { return Box::default() };
    let names = certificate.valid_dns_names().chain(certificate.valid_uri_names());
    let fit = names.filter(|name| !name.is_empty() && name.len() <= Opening::MAX_NAME);
    fit.take(MAX_NAMES).map(Box::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SanType};

    #[test]
    fn dns_names_and_uris_count_and_others_do_not() {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["robot-7".to_owned(), "x".repeat(64)]).unwrap();
        let more = [
            SanType::URI("spiffe://fleet/robot-7".try_into().unwrap()),
            SanType::Rfc822Name("robot@fleet".try_into().unwrap()),
            SanType::IpAddress("192.0.2.7".parse().unwrap()),
        ];
        params.subject_alt_names.extend(more);
        let certificate = params.self_signed(&key).unwrap();
        let names = of(certificate.der());
        assert_eq!(
            names.iter().map(|name| &**name).collect::<Vec<_>>(),
            ["robot-7", "spiffe://fleet/robot-7"]
        );
        assert!(of(&CertificateDer::from(vec![0x30, 0])).is_empty());
    }

    #[test]
    fn of_many_names_the_first_ones_count() {
        let key = KeyPair::generate().unwrap();
        let many = (0..200).map(|number| format!("robot-{number}")).collect::<Vec<_>>();
        let certificate = CertificateParams::new(many).unwrap().self_signed(&key).unwrap();
        assert_eq!(of(certificate.der()).len(), MAX_NAMES);
    }
}
