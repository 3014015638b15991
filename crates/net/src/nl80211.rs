//! Generic netlink to nl80211, the kernel's interface to Wi-Fi: requests and the attributes of answers.
//!
//! ```text
//! nlmsghdr │ genlmsghdr │ ATTR_IFINDEX │ ATTR_STA_INFO ─► …
//! ```
//!
//! Layout and numbers are those of `linux/nl80211.h` and `linux/genetlink.h`. No privilege is needed.
//! An answer ends after [`MESSAGES`] messages, or 2 s without one.

use std::os::fd::{AsRawFd, OwnedFd};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NlasIterator};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
    sockopt::ReceiveTimeout,
};
use nix::sys::time::{TimeVal, TimeValLike};

/// Messages of one answer.
const MESSAGES: usize = 1024;
/// Longer than any message of a dump: the kernel fills 32 kB at most.
const BUFFER: usize = 32 << 10;

const NLMSG_HEADER: usize = 16;
/// The length of the header of generic netlink, in bytes.
pub(crate) const GENL_HEADER: usize = 4;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// The family of families, and what it is asked.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NL80211_CMD_GET_STATION: u8 = 17;
/// The command of a message that describes a station.
pub(crate) const NL80211_CMD_NEW_STATION: u8 = 19;
const NL80211_ATTR_IFINDEX: u16 = 3;
/// What is known of a station, nested.
pub(crate) const NL80211_ATTR_STA_INFO: u16 = 21;

/// A socket that knows the number of nl80211.
#[derive(Debug)]
pub(crate) struct Nl80211 {
    socket: OwnedFd,
    family: u16,
    asked: u32,
}

impl Nl80211 {
    /// Opens a socket and asks for the family's number.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` or `ENOENT` where the kernel has no nl80211.
    pub(crate) fn open() -> Result<Self, Errno> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkGeneric,
        )?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(2))?;
        let mut opened = Self { socket, family: 0, asked: 0 };
        let mut family = None;
        let name = attribute(CTRL_ATTR_FAMILY_NAME, b"nl80211\0");
        opened.request([GENL_ID_CTRL, 0], CTRL_CMD_GETFAMILY, &name, |body| {
            family = family_id(body);
        })?;
        opened.family = family.ok_or(Errno::ENOENT)?;
        Ok(opened)
    }

    /// Hands over the messages of all stations that an interface knows, each from its header of
    /// generic netlink on.
    ///
    /// # Errors
    /// `ENODEV` or `EINVAL` where the interface is not Wi-Fi, `EOPNOTSUPP` where its driver does not
    /// tell.
    pub(crate) fn dump_stations(
        &mut self,
        interface: u32,
        on_message: impl FnMut(&[u8]),
    ) -> Result<(), Errno> {
        let attribute = attribute(NL80211_ATTR_IFINDEX, &interface.to_ne_bytes());
        let kind = [self.family, NLM_F_DUMP];
        self.request(kind, NL80211_CMD_GET_STATION, &attribute, on_message)
    }

    /// Sends a request and hands over the messages of its answer.
    fn request(
        &mut self,
        [family, flags]: [u16; 2],
        command: u8,
        attributes: &[u8],
        mut on_message: impl FnMut(&[u8]),
    ) -> Result<(), Errno> {
        self.asked = self.asked.wrapping_add(1);
        let len = NLMSG_HEADER + GENL_HEADER + attributes.len();
        let mut request = Vec::with_capacity(len);
        request.extend((len as u32).to_ne_bytes());
        request.extend(family.to_ne_bytes());
        request.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        request.extend(self.asked.to_ne_bytes());
        request.extend([0; 4]); // the port: the kernel knows it
        request.extend([command, 1, 0, 0]);
        request.extend(attributes);
        send(self.socket.as_raw_fd(), &request, MsgFlags::empty())?;
        let (mut buffer, mut left) = (vec![0; BUFFER], MESSAGES);
        loop {
            let len = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            for (kind, seq, body) in messages(&buffer[..len]) {
                left = left.checked_sub(1).ok_or(Errno::EOVERFLOW)?;
                match kind {
                    _ if seq != self.asked => {}
                    NLMSG_ERROR | NLMSG_DONE => {
                        // Without a number it is a dump's end as older kernels wrote it.
                        let code = word(body).map_or(0, u32::cast_signed).wrapping_neg();
                        return if code == 0 { Ok(()) } else { Err(Errno::from_raw(code)) };
                    }
                    _ => on_message(body),
                }
                if flags & NLM_F_DUMP == 0 && seq == self.asked {
                    return Ok(());
                }
            }
        }
    }
}

/// One attribute, padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((4 + value.len() as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The messages of a datagram, up to the first that does not fit: kind, number of the request, what
/// stands behind the header.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, u32, &[u8])> {
    std::iter::from_fn(move || {
        let len = word(bytes)? as usize;
        let message = bytes.get(..len).filter(|message| message.len() >= NLMSG_HEADER)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        Some((kind, word(&message[8..])?, &message[NLMSG_HEADER..]))
    })
}

/// Attributes up to the first that does not fit: kind, value.
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(Result::ok).map(|one| {
        let len = usize::from(one.length());
        (one.kind(), one.into_inner().get(4..len).unwrap_or_default())
    })
}

pub(crate) fn find(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(known, value)| (known == kind).then_some(value))
}

pub(crate) fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

pub(crate) fn half(bytes: &[u8]) -> Option<u16> {
    bytes.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// What stands behind the header of generic netlink is the family's number.
fn family_id(body: &[u8]) -> Option<u16> {
    half(find(body.get(GENL_HEADER..)?, CTRL_ATTR_FAMILY_ID)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn families_have_numbers() {
        let answer = [1, 2, 0, 0, 12, 0, 2, 0, b'n', b'l', b'8', b'0', b'2', b'1', b'1', 0];
        let answer = [&answer[..], &[6, 0, 1, 0, 28, 0, 0, 0]].concat();
        assert_eq!(family_id(&answer), Some(28));
        assert_eq!(family_id(&answer[..16]), None);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn messages_end_where_one_does_not_fit() {
        let whole = [19, 1, 0, 0, 8, 0, 3, 0, 3, 0, 0, 0];
        let message = |len: u8| {
            let mut bytes = vec![len, 0, 0, 0, 28, 0, 2, 0, 7, 0, 0, 0, 0, 0, 0, 0];
            bytes.extend(whole);
            bytes
        };
        let real = message(16 + whole.len() as u8);
        assert_eq!(messages(&real).collect::<Vec<_>>(), [(28, 7, &whole[..])]);
        assert_eq!(messages(&[&real[..], &real].concat()).count(), 2);
        for wrong in [0, 15, 17 + whole.len() as u8, 255] {
            assert_eq!(messages(&message(wrong)).count(), 0, "{wrong}");
        }
    }

    #[test]
    fn the_kernel_answers_for_families_that_it_has() {
        // Not of Wi-Fi, but there wherever there is generic netlink.
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkGeneric,
        );
        let Ok(socket) = socket else {
            println!("skipped: needs generic netlink");
            return;
        };
        let mut asker = Nl80211 { socket, family: 0, asked: 0 };
        let mut seen = Vec::new();
        let name = attribute(CTRL_ATTR_FAMILY_NAME, b"nlctrl\0");
        let kind = [GENL_ID_CTRL, 0];
        asker.request(kind, CTRL_CMD_GETFAMILY, &name, |body| seen.push(family_id(body))).unwrap();
        assert_eq!(seen, [Some(GENL_ID_CTRL)]);
        // A dump of all, whose end it finds.
        seen.clear();
        let kind = [GENL_ID_CTRL, NLM_F_DUMP];
        asker.request(kind, CTRL_CMD_GETFAMILY, &[], |body| seen.push(family_id(body))).unwrap();
        assert!(seen.contains(&Some(GENL_ID_CTRL)), "{seen:?}");
        let name = attribute(CTRL_ATTR_FAMILY_NAME, b"flnone\0");
        let kind = [GENL_ID_CTRL, 0];
        let none = asker.request(kind, CTRL_CMD_GETFAMILY, &name, |_| ());
        assert_eq!(none, Err(Errno::ENOENT));
    }

    proptest! {
        #[test]
        fn any_bytes_give_messages_within_them(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let held: usize = messages(&bytes).map(|(.., body)| NLMSG_HEADER + body.len()).sum();
            prop_assert!(held <= bytes.len());
            let _ = family_id(&bytes);
        }
    }
}
