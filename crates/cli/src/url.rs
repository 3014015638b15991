//! `udp://HOST:PORT` and `quic://HOST:PORT`: where a monitor is, and how it is spoken to.

use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use freshline_net::dial::Remote;
use miette::{IntoDiagnostic, WrapErr};
use url::{Host, Url};

/// The port of quic:// where none is given: FRSH on a telephone's keys.
pub(crate) const DEFAULT_PORT: u16 = 3774;

/// How datagrams are carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Plain UDP, for laboratories and trusted links.
    Udp,
    /// QUIC datagrams over TLS 1.3.
    Quic,
}

/// Where a monitor is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MonitorUrl {
    pub(crate) scheme: Scheme,
    /// A name or an address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Why a text is not such a URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{reason}; write for example quic://monitor.example:{DEFAULT_PORT} or udp://127.0.0.1:{DEFAULT_PORT}"
)]
pub(crate) struct BadUrl {
    reason: String,
}

impl FromStr for MonitorUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let bad = |reason: String| BadUrl { reason };
        let url = Url::parse(text).map_err(|error| bad(format!("not a URL ({error})")))?;
        let scheme = match url.scheme() {
            "udp" => Scheme::Udp,
            "quic" => Scheme::Quic,
            other => return Err(bad(format!("`{other}` is neither udp nor quic"))),
        };
        let host = match url.host() {
            Some(Host::Domain("")) | None => return Err(bad("it names no host".into())),
            Some(Host::Domain(name)) => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
        };
        let plain = matches!(url.path(), "" | "/")
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        if !plain {
            return Err(bad("only host and port belong into it".into()));
        }
        let port = match (url.port(), scheme) {
            (Some(port), _) => port,
            (None, Scheme::Quic) => DEFAULT_PORT,
            (None, Scheme::Udp) => return Err(bad("udp:// needs a port".into())),
        };
        Ok(Self { scheme, host, port })
    }
}

impl MonitorUrl {
    /// The peer, whose name is looked up when it is dialled.
    pub(crate) fn remote(&self) -> Remote {
        Remote::new(&self.host, self.port)
    }

    /// The first address of the host, to listen at.
    pub(crate) fn resolve(&self) -> miette::Result<SocketAddr> {
        let found = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot find the address of {}", self.host))?
            .next();
        found.ok_or_else(|| miette::miette!("{} has no address", self.host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_both_kinds_are_read() {
        for (text, scheme, host, port) in [
            ("quic://monitor.example", Scheme::Quic, "monitor.example", DEFAULT_PORT),
            ("udp://127.0.0.1:9", Scheme::Udp, "127.0.0.1", 9),
            ("udp://[::1]:10/", Scheme::Udp, "::1", 10),
        ] {
            assert_eq!(text.parse(), Ok(MonitorUrl { scheme, host: host.into(), port }));
        }
    }

    #[test]
    fn what_is_not_one_is_told_why() {
        for (text, reason) in [
            ("localhost:4000", "neither udp nor quic"),
            ("127.0.0.1:4000", "not a URL"),
            ("http://host", "neither udp nor quic"),
            ("quic://", "names no host"),
            ("quic://user@host", "only host and port"),
            ("udp://host/path", "only host and port"),
            ("udp://host:99999", "not a URL"),
            ("udp://127.0.0.1", "udp:// needs a port"),
            ("udp://[::1]/", "udp:// needs a port"),
        ] {
            let error = text.parse::<MonitorUrl>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("udp://"), "{text}: {error}");
        }
    }
}
