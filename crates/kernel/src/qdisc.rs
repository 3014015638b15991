//! Queueing disciplines and their classes, as the kernel's netlink tells and takes them, in the
//! network namespace of the calling thread.
//!
//! Attributes stay the bytes that they are: what is put back must be what was found, of whatever
//! kind it was.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use freshline_core::unit::Bytes;
use netlink_packet_core::{
    DefaultNla, Emitable, NLA_F_NESTED, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE,
    NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, Nla, NlaBuffer, NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcHeader, TcMessage};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// Numbers of attributes (`TCA_*` of <linux/rtnetlink.h>).
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const STATS2: u16 = 7;
/// In STATS2 (`TCA_STATS_QUEUE` of <linux/gen_stats.h>).
const STATS_QUEUE: u16 = 3;

/// The length of a message's header, from where its attributes begin.
const HEADER: usize = 20;
/// The same of a message about a device (`struct ifinfomsg`), and the attribute with its MTU.
const LINK_HEADER: usize = 16;
const IFLA_MTU: u16 = 4;
/// Longer than what the kernel tells at once.
const MAX_ANSWER: usize = 1 << 16;

/// A connection to the kernel's traffic control.
#[derive(Debug)]
pub(crate) struct TrafficControl {
    socket: OwnedFd,
}

/// A queueing discipline or a class, as the kernel tells it.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) handle: TcHandle,
    pub(crate) parent: TcHandle,
    attributes: Vec<DefaultNla>,
}

/// What waits in a class, and what it did not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Waiting {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) drops: u64,
}

/// What to make: of which kind, with which options.
pub(crate) fn attributes(kind: &str, options: Vec<u8>) -> Vec<DefaultNla> {
    vec![DefaultNla::new(KIND, [kind.as_bytes(), &[0]].concat()), DefaultNla::new(OPTIONS, options)]
}

/// Attributes as bytes, one after the other.
pub(crate) fn to_bytes(attributes: &[DefaultNla]) -> Vec<u8> {
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);
    bytes
}

/// And back.
pub(crate) fn from_bytes(bytes: &[u8]) -> Vec<DefaultNla> {
    let attribute = |buffer: NlaBuffer<&[u8]>| {
        let nested = if buffer.nested_flag() { NLA_F_NESTED } else { 0 };
        DefaultNla::new(buffer.kind() | nested, buffer.value().to_vec())
    };
    NlasIterator::new(bytes).map_while(Result::ok).map(attribute).collect()
}

impl Told {
    fn parse(payload: &[u8]) -> Option<(i32, Self)> {
        let header = TcHeader::parse(payload).ok()?;
        let attributes = from_bytes(payload.get(HEADER..)?);
        Some((header.index, Self { handle: header.handle, parent: header.parent, attributes }))
    }

    fn value(&self, wanted: u16) -> Option<Vec<u8>> {
        let found = self.attributes.iter().find(|one| one.kind() & !NLA_F_NESTED == wanted)?;
        let mut value = vec![0; found.value_len()];
        found.emit_value(&mut value);
        Some(value)
    }

    /// The name of its kind.
    pub(crate) fn kind(&self) -> String {
        let name = self.value(KIND).unwrap_or_default();
        String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
    }

    /// What makes another one like it.
    pub(crate) fn settings(self) -> Vec<DefaultNla> {
        let belongs = |one: &DefaultNla| matches!(one.kind() & !NLA_F_NESTED, KIND | OPTIONS);
        self.attributes.into_iter().filter(belongs).collect()
    }

    /// What waits in it.
    pub(crate) fn waiting(&self) -> Waiting {
        let stats = from_bytes(&self.value(STATS2).unwrap_or_default());
        let of_queue = Self { attributes: stats, ..*self };
        let numbers = of_queue.value(STATS_QUEUE).unwrap_or_default();
        let mut numbers = numbers
            .chunks_exact(4)
            .map(|word| u64::from(u32::from_ne_bytes(word.try_into().expect("4 bytes"))));
        let mut next = || numbers.next().unwrap_or_default();
        Waiting { packets: next(), bytes: next(), drops: next() }
    }
}

impl TrafficControl {
    /// Connects.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        Ok(Self { socket })
    }

    /// All queueing disciplines of a device that were made or chosen for it, the root among them.
    pub(crate) fn qdiscs(&self, device: u32) -> io::Result<Vec<Told>> {
        self.told_of(device, RouteNetlinkMessage::GetQueueDiscipline)
    }

    /// What waits in a device's root queueing discipline, and in those below it.
    pub(crate) fn backlog(&self, device: u32) -> io::Result<Bytes> {
        let all = self.qdiscs(device)?;
        let root = all.iter().find(|one| one.parent == TcHandle::ROOT);
        Ok(Bytes::new(root.map_or(0, |root| root.waiting().bytes)))
    }

    /// The MTU of a device, in bytes.
    pub(crate) fn mtu(&self, device: u32) -> io::Result<u32> {
        let mut request = LinkMessage::default();
        request.header.index = device;
        let mut mtu = None;
        self.ask(RouteNetlinkMessage::GetLink(request), NLM_F_ACK, |payload| {
            let attributes = from_bytes(payload.get(LINK_HEADER..).unwrap_or_default());
            let found = attributes.iter().find(|one| one.kind() == IFLA_MTU);
            let mut value = [0; 4];
            if let Some(found) = found.filter(|found| found.value_len() == value.len()) {
                found.emit_value(&mut value);
                mtu = Some(u32::from_ne_bytes(value));
            }
        })?;
        mtu.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Puts a queueing discipline where `parent` says, in place of another.
    pub(crate) fn put_qdisc(
        &self,
        device: u32,
        parent: TcHandle,
        handle: TcHandle,
        attributes: Vec<DefaultNla>,
    ) -> io::Result<()> {
        let message = message(device, parent, handle, attributes);
        self.order(RouteNetlinkMessage::NewQueueDiscipline(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Makes a class.
    pub(crate) fn add_class(
        &self,
        device: u32,
        parent: TcHandle,
        handle: TcHandle,
        attributes: Vec<DefaultNla>,
    ) -> io::Result<()> {
        let message = message(device, parent, handle, attributes);
        self.order(RouteNetlinkMessage::NewTrafficClass(message), NLM_F_CREATE)
    }

    /// Removes the root with all below it; the kernel then puts what it chooses itself.
    pub(crate) fn remove_root(&self, device: u32) -> io::Result<()> {
        let message = message(device, TcHandle::ROOT, TcHandle::UNSPEC, Vec::new());
        self.order(RouteNetlinkMessage::DelQueueDiscipline(message), 0)
    }

    fn order(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(message, NLM_F_ACK | flags, |_| ())
    }

    fn told_of(
        &self,
        device: u32,
        what: impl FnOnce(TcMessage) -> RouteNetlinkMessage,
    ) -> io::Result<Vec<Told>> {
        let request = what(message(device, TcHandle::UNSPEC, TcHandle::UNSPEC, Vec::new()));
        let mut all = Vec::new();
        // The kernel tells queueing disciplines of all devices, asked for those of one.
        self.ask(request, NLM_F_DUMP, |payload| match Told::parse(payload) {
            Some((index, told)) if index as u32 == device => all.push(told),
            _ => {}
        })?;
        Ok(all)
    }

    /// Sends a request, and hands on what the kernel tells until the end of its answer.
    fn ask(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
        mut tell: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut request = vec![0; message.buffer_len()];
        message.serialize(&mut request);
        send(self.socket.as_raw_fd(), &request, MsgFlags::empty())?;

        let mut buffer = vec![0; MAX_ANSWER];
        loop {
            let length = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            let mut rest = &buffer[..length];
            while !rest.is_empty() {
                let part = NetlinkBuffer::new_checked(rest).map_err(io::Error::other)?;
                match part.message_type() {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return verdict(part.payload()),
                    _ => tell(part.payload()),
                }
                let length = (part.length() as usize).next_multiple_of(4);
                rest = rest.get(length..).unwrap_or_default();
            }
        }
    }
}

fn message(
    device: u32,
    parent: TcHandle,
    handle: TcHandle,
    attributes: Vec<DefaultNla>,
) -> TcMessage {
    let mut message = TcMessage::with_index(device.cast_signed());
    message.header.parent = parent;
    message.header.handle = handle;
    message.attributes = attributes.into_iter().map(TcAttribute::Other).collect();
    message
}

/// An acknowledgement is an error with the number 0.
fn verdict(payload: &[u8]) -> io::Result<()> {
    match payload.first_chunk().map(|code| i32::from_ne_bytes(*code)) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_back_is_what_was_told() {
        let mut told = attributes("fq_codel", vec![1, 2, 3, 4, 5]);
        told.push(DefaultNla::new(STATS2 | NLA_F_NESTED, vec![0; 8]));
        let told = Told { handle: TcHandle::UNSPEC, parent: TcHandle::ROOT, attributes: told };
        assert_eq!(told.kind(), "fq_codel");
        let settings = told.settings();
        assert_eq!(settings, attributes("fq_codel", vec![1, 2, 3, 4, 5]));
        assert_eq!(from_bytes(&to_bytes(&settings)), settings);
        let nested = vec![DefaultNla::new(OPTIONS | NLA_F_NESTED, vec![1, 2, 3, 4])];
        assert_eq!(from_bytes(&to_bytes(&nested)), nested);
    }

    #[test]
    fn any_bytes_are_some_attributes_or_none() {
        for length in 0..16 {
            for byte in [0, 1, 4, 255] {
                let bytes = vec![byte; length];
                from_bytes(&bytes);
                assert!(Told::parse(&bytes).is_none());
                let _ = verdict(&bytes);
            }
        }
    }
}
