//! Stations of Wi-Fi interfaces, from the kernel's interface to Wi-Fi (nl80211).
//!
//! ```text
//! genlmsghdr: NL80211_CMD_NEW_STATION │ ATTR_IFINDEX │ ATTR_STA_INFO ─► …
//! ```
//!
//! Layout and numbers are those of `linux/nl80211.h`. No privilege is needed.

use freshline_system::netlink::{Generic, NetlinkError, Writer};

const GET_STATION: u8 = 17;
/// The command of a message that describes a station.
pub(crate) const NL80211_CMD_NEW_STATION: u8 = 19;
const ATTR_IFINDEX: u16 = 3;
/// The nested attributes of a station.
pub(crate) const NL80211_ATTR_STA_INFO: u16 = 21;

/// A socket with the family number of nl80211.
#[derive(Debug)]
pub(crate) struct Nl80211(Generic);

impl Nl80211 {
    /// Opens a socket and asks for the family's number.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` or `ENOENT` if the kernel has no nl80211.
    pub(crate) fn open() -> Result<Self, NetlinkError> {
        Generic::open("nl80211").map(Self)
    }

    /// Lists the stations that an interface knows: `read` converts the message of each, from its
    /// header of generic netlink on.
    ///
    /// # Errors
    /// `ENODEV` or `EINVAL` if the interface is not Wi-Fi, `EOPNOTSUPP` if its driver does not list
    /// them.
    pub(crate) fn stations<T>(
        &mut self,
        interface: u32,
        read: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        let of_interface =
            |put: &mut Writer<'_>| _ = put.put(ATTR_IFINDEX, &interface.to_ne_bytes());
        self.0.dump(GET_STATION, of_interface, read)
    }
}
