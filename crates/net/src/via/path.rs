//! A path as users write it: `IF`, `ADDR` or `IF@ADDR:PORT`.

use std::net::SocketAddr;
use std::str::FromStr;

use super::Via;

/// A path to the peer. As text: an interface or a local address, optionally followed by `@` and the
/// address of the peer on this path: `wlan0`, `192.0.2.7`, `wlan0@192.0.2.1:3774`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViaPath {
    /// The interface or address by which it leaves this host.
    pub via: Via,
    /// The address of the peer on this path, if it differs.
    pub peer: Option<SocketAddr>,
}

impl From<Via> for ViaPath {
    /// A path to the peer's own address.
    fn from(via: Via) -> Self {
        Self { via, peer: None }
    }
}

impl FromStr for ViaPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (via, peer) = match text.split_once('@') {
            None => (text, None),
            Some((via, peer)) => {
                let peer = peer.parse().map_err(|_| {
                    format!("`{peer}` is no address; write for example wlan0@192.0.2.1:3774")
                })?;
                (via, Some(peer))
            }
        };
        if via.is_empty() {
            return Err(
                "an interface or a local address is missing; write for example wlan0".into()
            );
        }
        Ok(Self { via: Via::from(via), peer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_and_addresses_are_told_apart_and_slips_named() {
        let path = |text: &str| text.parse::<ViaPath>();
        assert_eq!(path("wlan0").unwrap().via, Via::Interface("wlan0".into()));
        let there = path("192.0.2.7@[2001:db8::1]:9").unwrap();
        assert_eq!(there.via, Via::Address("192.0.2.7".parse().unwrap()));
        assert_eq!(there.peer, Some("[2001:db8::1]:9".parse().unwrap()));
        for slip in ["", "@192.0.2.1:9", "wlan0@nowhere"] {
            assert!(path(slip).unwrap_err().contains("wlan0"), "{slip}");
        }
    }
}
