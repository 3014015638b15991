//! Queueing disciplines and their classes.

use netlink_packet_core::NlaBuffer;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcHandle, TcHeader, TcMessage, TcStatsBasic, TcStatsQueue};

use super::{Route, behind};
use crate::netlink::attributes::{encoded, find};
use crate::netlink::error::NetlinkError;
use crate::netlink::request::flags::{CREATE, ECHO, REPLACE};
use crate::netlink::request::{Writer, encode};

/// Attributes (`TCA_*` of `linux/rtnetlink.h`).
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const STATS2: u16 = 7;
/// Attributes in `STATS2` (`TCA_STATS_*` of `linux/gen_stats.h`).
const STATS_BASIC: u16 = 1;
const STATS_QUEUE: u16 = 3;

/// The number of a queueing discipline, or of a class in it: `major:minor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Handle {
    /// That of the discipline.
    pub major: u16,
    /// That of the class; 0 for the discipline itself.
    pub minor: u16,
}

impl Handle {
    /// No discipline; one that the kernel has put in place by itself.
    pub const UNSPEC: Self = Self { major: 0, minor: 0 };
    /// The parent of a device's root discipline.
    pub const ROOT: Self = Self { major: u16::MAX, minor: u16::MAX };
}

impl From<u32> for Handle {
    fn from(number: u32) -> Self {
        Self { major: (number >> 16) as u16, minor: number as u16 }
    }
}

impl From<Handle> for u32 {
    fn from(handle: Handle) -> Self {
        Self::from(handle.major) << 16 | Self::from(handle.minor)
    }
}

/// The counters of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueStats {
    /// Queued packets; a super-packet is one.
    pub queued: u32,
    /// Queued bytes.
    pub queued_bytes: u32,
    /// Packets that have left since the queue was made, by segments; wraps.
    pub sent: u32,
    /// Bytes that have left since the queue was made.
    pub sent_bytes: u64,
    /// Dropped packets since the queue was made; wraps.
    pub drops: u32,
}

/// A queueing discipline as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// The device's index.
    pub device: u32,
    /// Its own number.
    pub handle: Handle,
    /// The class, or the discipline, directly above it.
    pub parent: Handle,
    /// The name of its kind.
    pub kind: String,
    /// Its kind and options, encoded as the kernel sent them; they can create an equal one.
    pub settings: Vec<u8>,
    /// `None` if the kernel sent none.
    pub stats: Option<QueueStats>,
}

impl Qdisc {
    /// Reads the body of a message (`RTM_NEWQDISC`).
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let header = TcHeader::parse(body).ok()?;
        let attributes = behind::<TcHeader>(body)?;
        let kind = find(attributes, KIND).unwrap_or_default();
        let is_setting = |one: &&[u8]| matches!(NlaBuffer::new(*one).kind(), KIND | OPTIONS);
        Some(Self {
            device: header.index.cast_unsigned(),
            handle: u32::from(header.handle).into(),
            parent: u32::from(header.parent).into(),
            kind: String::from_utf8_lossy(kind).trim_end_matches('\0').to_owned(),
            settings: encode(|put| {
                encoded(attributes).filter(is_setting).for_each(|one| _ = put.raw_attribute(one));
            }),
            stats: find(attributes, STATS2).and_then(stats),
        })
    }

    /// The settings of a queueing discipline or class of this kind with these options, for
    /// [`Route::put_qdisc`].
    #[must_use]
    pub fn settings(kind: &str, options: &[u8]) -> Vec<u8> {
        encode(|put| _ = put.text(KIND, kind).put(OPTIONS, options))
    }
}

fn stats(attributes: &[u8]) -> Option<QueueStats> {
    let basic = TcStatsBasic::parse(find(attributes, STATS_BASIC)?).ok()?;
    let queue = TcStatsQueue::parse(find(attributes, STATS_QUEUE)?).ok()?;
    Some(QueueStats {
        queued: queue.qlen,
        queued_bytes: queue.backlog,
        sent: basic.packets,
        sent_bytes: basic.bytes,
        drops: queue.drops,
    })
}

impl Route {
    /// All queueing disciplines of a device that were created or chosen for it, including the root.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn qdiscs(&mut self, device: u32) -> Result<Vec<Qdisc>, NetlinkError> {
        let request = RouteNetlinkMessage::GetQueueDiscipline(message(
            device,
            Handle::UNSPEC,
            Handle::UNSPEC,
        ));
        // The kernel lists those of all devices, whatever it is asked for.
        self.dump(&request, |body| Qdisc::parse(body).filter(|qdisc| qdisc.device == device))
    }

    /// The root queueing discipline of a device.
    ///
    /// # Errors
    /// [`NetlinkError`]: `ENODEV` if there is no such device.
    pub fn root_qdisc(&mut self, device: u32) -> Result<Qdisc, NetlinkError> {
        let message = message(device, Handle::ROOT, Handle::UNSPEC);
        // Without ECHO the kernel describes a single discipline only to subscribers of changes.
        self.get(&RouteNetlinkMessage::GetQueueDiscipline(message), ECHO, Qdisc::parse)
    }

    /// Puts a queueing discipline with these settings below `parent`, in place of another.
    ///
    /// # Errors
    /// [`NetlinkError`]: `ENOENT` where the kernel does not know its kind.
    pub fn put_qdisc(
        &mut self,
        device: u32,
        parent: Handle,
        handle: Handle,
        settings: &[u8],
    ) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewQueueDiscipline(message(device, parent, handle));
        self.put(&message, CREATE | REPLACE, settings)
    }

    /// Makes a class with these settings.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn add_class(
        &mut self,
        device: u32,
        parent: Handle,
        handle: Handle,
        settings: &[u8],
    ) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewTrafficClass(message(device, parent, handle));
        self.put(&message, CREATE, settings)
    }

    /// Removes the root with all below it; the kernel then puts its default there.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn remove_root(&mut self, device: u32) -> Result<(), NetlinkError> {
        let message = message(device, Handle::ROOT, Handle::UNSPEC);
        self.change(&RouteNetlinkMessage::DelQueueDiscipline(message), 0)
    }

    fn put(
        &mut self,
        message: &RouteNetlinkMessage,
        flags: u16,
        settings: &[u8],
    ) -> Result<(), NetlinkError> {
        let body = |put: &mut Writer<'_>| _ = put.emit(message).raw(settings);
        self.client.change(message.message_type(), flags, body)
    }
}

fn message(device: u32, parent: Handle, handle: Handle) -> TcMessage {
    let mut message = TcMessage::with_index(device.cast_signed());
    message.header.parent = TcHandle::from(u32::from(parent));
    message.header.handle = TcHandle::from(u32::from(handle));
    message
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{Emitable, NLA_F_NESTED};
    use proptest::prelude::*;

    use super::*;

    /// A description of a root, with an unknown attribute in front of each other one.
    fn description(kind: &str, options: &[u8], stats: QueueStats) -> Vec<u8> {
        let mut header = TcHeader { index: 3, ..TcHeader::default() };
        (header.handle, header.parent) = (TcHandle { major: 5, minor: 0 }, TcHandle::ROOT);
        let sent = [&stats.sent_bytes.to_ne_bytes()[..], &stats.sent.to_ne_bytes(), &[0; 4]];
        let numbers = [stats.queued, stats.queued_bytes, stats.drops, 0, 0];
        encode(|put| {
            put.emit(&header).put(99, b"unknown").text(KIND, kind).put(99, b"unknown");
            put.put(OPTIONS | NLA_F_NESTED, options).nested(STATS2, |put| {
                put.put(99, b"unknown").put(STATS_BASIC, &sent.concat());
                put.put(STATS_QUEUE, &numbers.map(u32::to_ne_bytes).concat());
            });
        })
    }

    fn stats() -> QueueStats {
        QueueStats { queued: 2, queued_bytes: 3000, sent: 7, sent_bytes: 9000, drops: 1 }
    }

    #[test]
    fn settings_are_kind_and_options_as_the_kernel_sent_them() {
        let qdisc = Qdisc::parse(&description("fq_codel", &[1, 2, 3, 4, 5], stats())).unwrap();
        let mut settings = Qdisc::settings("fq_codel", &[1, 2, 3, 4, 5]);
        // The flag of the options is kept, too.
        let flag = settings.len() - 10;
        settings[flag..][..2].copy_from_slice(&(OPTIONS | NLA_F_NESTED).to_ne_bytes());
        assert_eq!(qdisc.settings, settings);
        assert_eq!((qdisc.device, &*qdisc.kind, qdisc.stats), (3, "fq_codel", Some(stats())));
        assert_eq!((qdisc.parent, u32::from(qdisc.handle)), (Handle::ROOT, 0x5_0000));
    }

    #[test]
    fn a_description_that_is_cut_says_less() {
        let whole = description("pfifo", &[1; 4], stats());
        for len in 0..TcHeader::default().buffer_len() {
            assert_eq!(Qdisc::parse(&whole[..len]), None, "{len}");
        }
        for len in TcHeader::default().buffer_len()..whole.len() {
            let cut = Qdisc::parse(&whole[..len]).unwrap();
            assert_eq!(cut.stats, None, "{len}");
            assert!(["", "pfifo"].contains(&&*cut.kind), "{len}: {cut:?}");
        }
    }

    #[test]
    fn handles_are_numbers() {
        let handle = Handle { major: 0x50c0, minor: 6 };
        assert_eq!((u32::from(handle), Handle::from(0x50c0_0006)), (0x50c0_0006, handle));
        assert_eq!(u32::from(Handle::ROOT), u32::MAX);
    }

    #[test]
    fn the_loopback_device_has_a_root() {
        let mut route = Route::open().unwrap();
        let root = route.root_qdisc(1).unwrap();
        assert_eq!((root.device, root.parent), (1, Handle::ROOT));
        assert!(route.qdiscs(1).unwrap().contains(&root) || root.kind == "noqueue", "{root:?}");
        assert!(route.root_qdisc(u32::MAX).is_err());
    }

    proptest! {
        #[test]
        fn any_body_is_read_without_harm(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(),
            byte: u8,
        ) {
            let _ = Qdisc::parse(&bytes);
            let mut whole = description("pfifo", &[1; 4], stats());
            let len = whole.len();
            whole[at.index(len)] = byte;
            let _ = Qdisc::parse(&whole);
        }
    }
}
