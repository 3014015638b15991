//! The rate at which a Wi-Fi interface receives, from nl80211: no privilege is needed.
//!
//! ```text
//! nlmsghdr │ genlmsghdr │ ATTR_IFINDEX │ ATTR_STA_INFO ─► STA_INFO_RX_BITRATE ─► BITRATE32, MCS …
//! ```
//!
//! `NL80211_CMD_GET_STATION` lists all stations that an interface knows; for a client this is only
//! its access point. Layout and numbers are those of `linux/nl80211.h`.
//!
//! # Decisions
//!
//! - **The rate** is the driver's own number; if it is missing, the rate of the HT, VHT or HE mode.
//! - **Peers** of direct links (TDLS) are left out. An interface with several other stations is an
//!   access point's or a mesh's, so the rate would be ambiguous.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use freshline_core::unit::BitRate;
use freshline_core::wlan::air::{Phy, Width};
use freshline_core::wlan::mac::Guard;
use freshline_system::netlink::{GENERIC_HEADER, NetlinkError, attributes, find, ne_u16, ne_u32};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;

use crate::nl80211::{NL80211_ATTR_STA_INFO, NL80211_CMD_NEW_STATION, Nl80211};

/// How often a [`RateWatch`] asks.
const EVERY: Duration = Duration::from_secs(1);

const STA_INFO_RX_BITRATE: u16 = 14;
const STA_INFO_STA_FLAGS: u16 = 17;
/// A flag of `struct nl80211_sta_flag_update`, whose words hold the known flags, and the set ones.
const STA_FLAG_TDLS_PEER: u32 = 1 << 6;

/// Why the rate of an interface is unknown.
#[derive(Debug, thiserror::Error)]
pub enum StationError {
    /// There is no such interface.
    #[error("there is no interface `{0}`; `ip link` lists the interfaces")]
    NoInterface(String),
    /// It exists, but is not Wi-Fi.
    #[error("{0} is no Wi-Fi interface; `iw dev` lists them; or give --mcs-rate")]
    NotWifi(String),
    /// The kernel has no Wi-Fi support.
    #[error(
        "this kernel has no nl80211, so {0} is no Wi-Fi interface that could tell its rate: load \
         the driver (module cfg80211), or give --mcs-rate"
    )]
    NoNl80211(String),
    /// It is not connected to an access point.
    #[error("{0} is not connected to an access point")]
    NotConnected(String),
    /// There are several stations.
    #[error(
        "{interface} has {stations} stations, as an access point has, and not one access point: \
         give --mcs-rate"
    )]
    Several {
        /// The interface.
        interface: String,
        /// The number of stations.
        stations: usize,
    },
    /// The driver does not report the rate.
    #[error("the driver of {0} does not tell the rate at which it receives: give --mcs-rate")]
    NoRate(String),
    /// The kernel refused something else.
    #[error("cannot ask for the rate of {interface}: {source}")]
    System {
        /// The interface.
        interface: String,
        /// The system's error.
        source: io::Error,
    },
}

/// The rate of the data symbols of the last frame that `interface` has received.
///
/// # Errors
/// [`StationError`] if the rate is unknown.
pub fn receive_rate(interface: &str) -> Result<BitRate, StationError> {
    Asker::open(interface)?.ask()
}

/// Asks for the rate of an interface once per second, on its own thread, until dropped.
#[derive(Debug)]
pub struct RateWatch {
    /// Dropping it ends the thread.
    _stop: Sender<()>,
}

impl RateWatch {
    /// Reports the rate of `interface` at once, and then once per second. While the rate is
    /// unknown, as during roaming, nothing is reported.
    ///
    /// # Errors
    /// [`StationError`] if the rate is unknown now.
    pub fn start(
        interface: &str,
        mut report: impl FnMut(BitRate) + Send + 'static,
    ) -> Result<Self, StationError> {
        let mut asker = Asker::open(interface)?;
        report(asker.ask()?);
        let (stop, stopped) = channel();
        thread::spawn(move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                if let Ok(rate) = asker.ask() {
                    report(rate);
                }
            }
        });
        Ok(Self { _stop: stop })
    }
}

/// Asks nl80211 for one interface.
#[derive(Debug)]
struct Asker {
    interface: String,
    nl80211: Nl80211,
}

impl Asker {
    fn open(interface: &str) -> Result<Self, StationError> {
        if if_nametoindex(interface).is_err() {
            return Err(StationError::NoInterface(interface.into()));
        }
        let system = |error: NetlinkError| match error.errno().map(Errno::from_raw) {
            // The kernel has no generic netlink, or not this family.
            Some(Errno::EPROTONOSUPPORT | Errno::ENOENT) => {
                StationError::NoNl80211(interface.into())
            }
            _ => StationError::System { interface: interface.into(), source: error.into() },
        };
        let nl80211 = Nl80211::open().map_err(system)?;
        Ok(Self { interface: interface.into(), nl80211 })
    }

    fn ask(&mut self) -> Result<BitRate, StationError> {
        let Self { interface, nl80211 } = self;
        let interface = || interface.clone();
        let index =
            if_nametoindex(&*interface()).map_err(|_| StationError::NoInterface(interface()))?;
        let refused = |error: NetlinkError| match error.errno().map(Errno::from_raw) {
            Some(Errno::ENODEV | Errno::EINVAL) => StationError::NotWifi(interface()),
            Some(Errno::EOPNOTSUPP) => StationError::NoRate(interface()),
            _ => StationError::System { interface: interface(), source: error.into() },
        };
        match nl80211.stations(index, station).map_err(refused)?[..] {
            [] => Err(StationError::NotConnected(interface())),
            [rate] => rate.ok_or_else(|| StationError::NoRate(interface())),
            [_, _, ref more @ ..] => {
                Err(StationError::Several { interface: interface(), stations: 2 + more.len() })
            }
        }
    }
}

/// The rate of a station's frames; the outer `None` if the message is not of a station or is of a
/// peer of a direct link.
fn station(body: &[u8]) -> Option<Option<BitRate>> {
    let attributes = body.get(GENERIC_HEADER..).filter(|_| body[0] == NL80211_CMD_NEW_STATION)?;
    let Some(info) = find(attributes, NL80211_ATTR_STA_INFO) else { return Some(None) };
    let flags = find(info, STA_INFO_STA_FLAGS).and_then(|flags| ne_u32(flags.get(4..)?));
    if flags.is_some_and(|set| set & STA_FLAG_TDLS_PEER != 0) {
        return None;
    }
    Some(find(info, STA_INFO_RX_BITRATE).and_then(rate).filter(|rate| rate.as_bps() > 0))
}

/// The attributes of `enum nl80211_rate_info`.
#[derive(Debug, Default)]
struct RateInfo {
    /// In 100 kbit/s.
    rate: Option<u64>,
    ht: Option<u8>,
    vht: Option<u8>,
    he: Option<u8>,
    streams: u8,
    is_short: bool,
    is_dual: bool,
    he_guard: u8,
    /// 20, 40, 80 or 160.
    mhz: u16,
    /// The mode is not supported here: 5 and 10 MHz, 320 MHz, EHT, resource units.
    is_other: bool,
}

/// The driver's number, or else the rate of the mode.
fn rate(bytes: &[u8]) -> Option<BitRate> {
    let mut info = RateInfo { mhz: 20, ..RateInfo::default() };
    for (kind, value) in attributes(bytes) {
        let byte = value.first().copied();
        match kind {
            // 16 bits are too few from 6.5 Gbit/s on; the value is then 0.
            1 => info.rate = info.rate.or(ne_u16(value).map(u64::from).filter(|rate| *rate > 0)),
            5 => info.rate = ne_u32(value).map(u64::from).filter(|rate| *rate > 0).or(info.rate),
            2 => info.ht = byte,
            3 => info.mhz = 40,
            4 => info.is_short = true,
            6 => info.vht = byte,
            7 | 14 => info.streams = byte.unwrap_or(0),
            8 => info.mhz = 80,
            9 | 10 => info.mhz = 160,
            13 => info.he = byte,
            15 => info.he_guard = byte.unwrap_or(u8::MAX),
            16 => info.is_dual = byte.is_some_and(|dual| dual > 0),
            11 | 12 | 17..=22 => info.is_other = true,
            _ => {}
        }
    }
    let reported = info.rate.map(|rate| BitRate::from_bps(rate * 100_000));
    reported.or_else(|| info.phy()?.rate())
}

impl RateInfo {
    fn phy(&self) -> Option<Phy> {
        let (width, subcarriers) = match self.mhz {
            20 => (Width::Mhz20, 234),
            40 => (Width::Mhz40, 468),
            80 => (Width::Mhz80, 980),
            _ => (Width::Mhz160, 1960),
        };
        let guard = if self.is_short { Guard::Short } else { Guard::Long };
        let streams = self.streams;
        match (self.he, self.vht, self.ht) {
            _ if self.is_other => None,
            (Some(mcs), ..) => {
                let guard_ns = *[800, 1600, 3200].get(usize::from(self.he_guard))?;
                Some(Phy::He { mcs, streams, subcarriers, guard_ns, is_dual: self.is_dual })
            }
            (None, Some(mcs), _) => Some(Phy::Vht { mcs, streams, width, guard }),
            (None, None, Some(mcs)) => Some(Phy::Ht { mcs, width, guard }),
            (None, None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bytes of a message `NL80211_CMD_NEW_STATION` of interface 3, station 02:00:00:00:00:01,
    /// with this nested `NL80211_STA_INFO_RX_BITRATE`. Little endian.
    fn new_station(rate_info: &[u8], flags: u8) -> Vec<u8> {
        let mut info = vec![
            8, 0, 1, 0, 100, 0, 0, 0, // INACTIVE_TIME, u32: 100 ms
            5, 0, 7, 0, 0xc4, 0, 0, 0, // SIGNAL, u8: −60 dBm, padded
            12, 0, 17, 0, 0xff, 0, 0, 0, flags, 0, 0, 0, // STA_FLAGS: mask, set
        ];
        let len = 4 + rate_info.len() as u8;
        info.extend([len, 0, 14, 0x80]); // RX_BITRATE, nested
        info.extend(rate_info);
        let mut bytes = vec![
            19,
            1,
            0,
            0, // genlmsghdr: NEW_STATION, version 1
            8,
            0,
            3,
            0,
            3,
            0,
            0,
            0, // IFINDEX
            10,
            0,
            6,
            0,
            2,
            0,
            0,
            0,
            0,
            1,
            0,
            0, // MAC, padded
            8,
            0,
            46,
            0,
            9,
            0,
            0,
            0, // GENERATION
            4 + info.len() as u8,
            0,
            21,
            0x80, // STA_INFO, nested
        ];
        bytes.extend(info);
        bytes
    }

    const ASSOCIATED: u8 = 1 << 7;

    fn bps(rate_info: &[u8]) -> Option<u64> {
        station(&new_station(rate_info, ASSOCIATED)).unwrap().map(BitRate::as_bps)
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn rates_are_the_driver_s_or_those_of_modes() {
        // 866.7 Mbit/s: BITRATE32, BITRATE, VHT_MCS 9, VHT_NSS 2, 80 MHz, short guard.
        let number = [8, 0, 5, 0, 0xdb, 0x21, 0, 0, 6, 0, 1, 0, 0xdb, 0x21, 0, 0];
        let mode = [5, 0, 6, 0, 9, 0, 0, 0, 5, 0, 7, 0, 2, 0, 0, 0, 4, 0, 8, 0, 4, 0, 4, 0];
        assert_eq!(bps(&[&number[..], &mode].concat()), Some(866_700_000));
        assert_eq!(bps(&number[8..]), Some(866_700_000), "16 bits alone");
        assert_eq!(bps(&mode), Some(866_666_666));
        // MCS 15 over 40 MHz, short guard.
        let ht = [5, 0, 2, 0, 15, 0, 0, 0, 4, 0, 3, 0, 4, 0, 4, 0];
        assert_eq!(bps(&ht), Some(300_000_000));
        // HE_MCS 11, HE_NSS 2, HE_GI 0, 80 MHz.
        let he = [
            5, 0, 13, 0, 11, 0, 0, 0, 5, 0, 14, 0, 2, 0, 0, 0, 5, 0, 15, 0, 0, 0, 0, 0, 4, 0, 8, 0,
        ];
        assert_eq!(bps(&he), Some(1_200_980_392));
        // Resource units, EHT and 320 MHz give no rate without a number; nor does an empty
        // attribute.
        assert_eq!(bps(&[&he[..], &[5, 0, 17, 0, 1, 0, 0, 0]].concat()), None);
        assert_eq!(bps(&[5, 0, 19, 0, 11, 0, 0, 0, 5, 0, 20, 0, 2, 0, 0, 0]), None);
        assert_eq!(bps(&[8, 0, 5, 0, 0, 0, 0, 0]), None, "zero is no rate");
        assert_eq!(bps(&[]), None);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn peers_of_direct_links_are_no_access_point() {
        let rate = [8, 0, 5, 0, 10, 0, 0, 0];
        assert_eq!(station(&new_station(&rate, ASSOCIATED | 1 << 6)), None);
        let other = [&[7][..], &new_station(&rate, ASSOCIATED)[1..]].concat();
        assert_eq!(station(&other), None, "another command");
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn cut_at_any_byte_it_says_less_but_nothing_else() {
        let whole = new_station(&[8, 0, 5, 0, 0xdb, 0x21, 0, 0], ASSOCIATED);
        for len in 0..whole.len() {
            assert_eq!(station(&whole[..len]).flatten(), None, "{len}");
        }
    }

    #[test]
    fn the_loopback_is_no_wifi() {
        let error = receive_rate("lo").unwrap_err();
        assert!(error.to_string().contains("lo is no Wi-Fi interface"), "{error}");
        println!("{error}");
        let error = RateWatch::start("flnone9", |_| ()).unwrap_err();
        assert!(matches!(error, StationError::NoInterface(_)), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_rate_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = rate(&bytes);
            let as_station = [&[NL80211_CMD_NEW_STATION, 1, 0, 0][..], &bytes].concat();
            let _ = station(&as_station);
        }

        #[test]
        fn a_station_with_wrong_bytes_gives_a_rate_above_zero_or_none(
            at in any::<prop::sample::Index>(), byte: u8, second in any::<prop::sample::Index>(), other: u8,
        ) {
            let mode = [5, 0, 6, 0, 9, 0, 0, 0, 5, 0, 7, 0, 2, 0, 0, 0, 4, 0, 8, 0, 4, 0, 4, 0];
            let mut bytes = new_station(&mode, 1 << 7);
            let len = bytes.len();
            bytes[at.index(len)] = byte;
            bytes[second.index(len)] = other;
            if let Some(Some(rate)) = station(&bytes) {
                prop_assert!(rate.as_bps() > 0);
            }
        }
    }
}
