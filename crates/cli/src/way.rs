//! `--via IF`, `--via ADDR` and `--via IF@ADDR:PORT`: by what packets leave this host.

use std::net::SocketAddr;
use std::str::FromStr;

use freshline_net::via::Via;

/// One way to the other end.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    pub(crate) via: Via,
    /// Where the other end is on it, if elsewhere.
    pub(crate) peer: Option<SocketAddr>,
}

impl FromStr for Way {
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
        let way = |text: &str| text.parse::<Way>();
        assert_eq!(way("wlan0").unwrap().via, Via::Interface("wlan0".into()));
        let there = way("192.0.2.7@[2001:db8::1]:9").unwrap();
        assert_eq!(there.via, Via::Address("192.0.2.7".parse().unwrap()));
        assert_eq!(there.peer, Some("[2001:db8::1]:9".parse().unwrap()));
        for slip in ["", "@192.0.2.1:9", "wlan0@nowhere"] {
            assert!(way(slip).unwrap_err().contains("wlan0"), "{slip}");
        }
    }
}
