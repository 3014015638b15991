//! URLs of monitors: `udp://HOST:PORT` and `quic://HOST:PORT`.

use std::fmt;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use freshline_net::dial::Remote;

/// The transport of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Plain UDP, for laboratories and trusted links.
    Udp,
    /// QUIC datagrams over TLS 1.3.
    Quic,
}

/// The URL of a monitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    scheme: Scheme,
    host: String,
    port: u16,
}

/// Why a text is not such a URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{reason}; write for example quic://monitor.example:{port} or udp://127.0.0.1:{port}",
    port = Url::DEFAULT_PORT
)]
pub struct BadUrl {
    reason: String,
}

impl Url {
    /// The port of `quic://` where none is given: FRSH on a telephone's keys.
    pub const DEFAULT_PORT: u16 = 3774;

    /// The URL of these parts; `host` is a name or an address, without brackets.
    ///
    /// # Errors
    /// [`BadUrl`] if the host is neither.
    pub fn new(scheme: Scheme, host: &str, port: u16) -> Result<Self, BadUrl> {
        check_host(host)?;
        Ok(Self { scheme, host: host.to_ascii_lowercase(), port })
    }

    /// The transport.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// A name or an address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The peer, whose name is looked up when it is dialled.
    pub fn remote(&self) -> Remote {
        Remote::new(&self.host, self.port)
    }

    /// The first address of the host, to listen at.
    ///
    /// # Errors
    /// That of the look-up, or [`io::ErrorKind::NotFound`] for a name without an address.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        let first = (self.host.as_str(), self.port).to_socket_addrs()?.next();
        first.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
    }
}

impl FromStr for Url {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let bad = |reason: String| BadUrl { reason };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| match text.split_once(':') {
            Some((word, _)) if word.starts_with(|first: char| first.is_ascii_alphabetic()) => {
                bad(format!("`{word}` is neither udp nor quic"))
            }
            _ => bad("not a URL (it begins with neither udp:// nor quic://)".to_owned()),
        })?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "udp" => Scheme::Udp,
            "quic" => Scheme::Quic,
            _ => return Err(bad(format!("`{scheme}` is neither udp nor quic"))),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#', '@']) {
            return Err(bad("only host and port belong into it".to_owned()));
        }
        let (host, port) = split_port(rest)?;
        let port = match (port, scheme) {
            (Some(port), _) => {
                port.parse().map_err(|_| bad(format!("not a URL (`{port}` is no port)")))?
            }
            (None, Scheme::Quic) => Self::DEFAULT_PORT,
            (None, Scheme::Udp) if host.is_empty() => return Err(bad("it names no host".into())),
            (None, Scheme::Udp) => return Err(bad("udp:// needs a port".to_owned())),
        };
        Self::new(scheme, host, port)
    }
}

/// The host without its brackets, and the port if there is one.
fn split_port(text: &str) -> Result<(&str, Option<&str>), BadUrl> {
    let Some(bracketed) = text.strip_prefix('[') else {
        return Ok(text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))));
    };
    let reason = "not a URL (an address of IPv6 is in brackets)".to_owned();
    let (host, after) = bracketed.split_once(']').ok_or(BadUrl { reason })?;
    if host.parse::<Ipv6Addr>().is_err() {
        return Err(BadUrl { reason: format!("`{host}` is no address of IPv6") });
    }
    match after.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None if after.is_empty() => Ok((host, None)),
        None => Err(BadUrl { reason: format!("`{after}` is no port") }),
    }
}

/// A name of the domain name system, or an address.
fn check_host(host: &str) -> Result<(), BadUrl> {
    let reason = match host {
        "" => "it names no host".to_owned(),
        _ if host.parse::<Ipv6Addr>().is_ok() => return Ok(()),
        _ if !host.is_ascii() => {
            format!("`{host}` has characters beyond ASCII: write its name as in the DNS, xn--…")
        }
        _ if host.len() > 253 => "its host is longer than a name can be".to_owned(),
        _ if host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) => {
            return Ok(());
        }
        _ => format!("`{host}` is no name of a host"),
    };
    Err(BadUrl { reason })
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Udp => "udp",
            Scheme::Quic => "quic",
        };
        let is_v6 = self.host.contains(':');
        let (opens, ends) = if is_v6 { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{opens}{}{ends}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_both_kinds_are_read_and_written() {
        let default = Url::DEFAULT_PORT;
        for (text, scheme, host, port) in [
            ("quic://monitor.example", Scheme::Quic, "monitor.example", default),
            ("quic://Monitor.Example/", Scheme::Quic, "monitor.example", default),
            ("udp://127.0.0.1:9", Scheme::Udp, "127.0.0.1", 9),
            ("udp://[::1]:10/", Scheme::Udp, "::1", 10),
            ("quic://[::1]", Scheme::Quic, "::1", default),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.scheme(), url.host(), url.port()), (scheme, host, port));
            assert_eq!(url.to_string().parse::<Url>().unwrap(), url);
        }
    }

    #[test]
    fn what_is_not_one_is_told_why() {
        for (text, reason) in [
            ("localhost:4000", "neither udp nor quic"),
            ("127.0.0.1:4000", "not a URL"),
            ("http://host", "neither udp nor quic"),
            ("quic://", "names no host"),
            ("udp://", "names no host"),
            ("quic://user@host", "only host and port"),
            ("udp://host/path", "only host and port"),
            ("udp://host:99999", "not a URL"),
            ("udp://127.0.0.1", "udp:// needs a port"),
            ("udp://[::1]/", "udp:// needs a port"),
            ("udp://[::1:9", "in brackets"),
            ("udp://[::g]:9", "no address of IPv6"),
            ("udp://[::1]9", "no port"),
            ("quic://r\u{f6}bot.example", "xn--"),
            ("quic://a b", "no name of a host"),
        ] {
            let error = text.parse::<Url>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("udp://"), "{text}: {error}");
        }
    }
}
