//! The rule that sends packets to the router: a table in the kernel's nf_tables.
//!
//! ```text
//! table inet freshline-eth1 {        # owned: the kernel takes it away with our socket
//!     set running { type ifname; flags timeout; timeout 5s; elements = { "eth1" } }
//!     chain out {
//!         type filter hook postrouting priority 50
//!         oifname "eth1" ip6 hoplimit 255 icmpv6 type 133-137 accept              # discovery
//!         oifname "eth1" ip6 hoplimit 1 ip6 daddr ff02::/16 icmpv6 type 130-143 accept   # MLD
//!         oifname @running queue num 3774 bypass
//!     }
//! }
//! ```
//!
//! The table is created by netlink, so neither `nft` nor `iptables` needs to be installed. The rule
//! reaches the queue by the nf_tables expression `queue` or, in a kernel without it
//! (`CONFIG_NFT_QUEUE`), by the iptables target through the compatibility layer
//! (`CONFIG_NFT_COMPAT`, `xt_NFQUEUE`).
//!
//! - **Ownership** (Linux 5.12): when the router's socket closes, for any reason, the kernel
//!   removes the table. A crash leaves nothing behind, no other process can change the table, and a
//!   second instance for the same device is refused.
//! - **Its own chain**, rather than a rule in an existing chain: a verdict lets a packet continue
//!   to the next chain, so the host's own filters all see it, before or after the router.
//! - **The hook** sees all packets that leave through the device, forwarded or from the router
//!   itself: both share the link. At this priority, between `mangle` (-150) and source NAT (100),
//!   packets have the host's marks, and still the addresses of the inner network.
//! - **Neighbour discovery and MLD** pass, as does ARP, which the hook does not see: behind a full
//!   queue the neighbour would appear unreachable. The hop limits ensure that no forwarded packet
//!   passes this way.
//! - **`bypass`**: packets pass while no process listens to the queue.
//! - **`@running`**: packets are queued while the set contains the device's name. The router adds
//!   it again and again (`lease.rs`), and the kernel removes it after a timeout. So packets pass if
//!   the router hangs or is stopped, for whatever reason, and are queued again as soon as it runs;
//!   this needs no second process, which could hang as well. A stopped process keeps its socket: in
//!   that case `bypass` does not help, and the kernel's queue only fills.

use std::io;

use freshline_core::unit::Span;
use freshline_system::netlink::flags::{ACK, APPEND, CREATE, EXCLUSIVE};
use freshline_system::netlink::{Client, Protocol, Requests, TIMEOUT, Writer};

use nix::errno::Errno;

use super::lease::Leased;
use super::message::Head;

/// The installed table. Dropping this removes it.
#[derive(Debug)]
pub(super) struct Table {
    owner: Client,
    name: String,
    device: String,
}

/// Which packets go to which queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule<'a> {
    /// The device through which they leave.
    pub(super) device: &'a str,
    /// The queue's number.
    pub(super) queue: u16,
    /// How long the rule is in force without a renewal, in whole ms.
    pub(super) lease: Span,
}

/// How a rule reaches a queue.
#[derive(Debug, Clone, Copy)]
enum QueueTarget {
    /// nf_tables' `queue`.
    Queue,
    /// iptables' `NFQUEUE`.
    Target,
}

impl Table {
    /// Creates the table. Fails with [`io::ErrorKind::AlreadyExists`] or
    /// [`io::ErrorKind::PermissionDenied`] if the device has one, and with
    /// [`io::ErrorKind::NotFound`] if the kernel supports neither target.
    pub(super) fn install(rule: Rule<'_>) -> io::Result<Self> {
        let mut owner = Client::open(Protocol::Netfilter, TIMEOUT)?;
        let name = format!("freshline-{}", rule.device);
        match owner.change_all(&mut installation(&name, rule, QueueTarget::Queue)) {
            Err(error) if error.errno() == Some(Errno::ENOENT as i32) => {
                owner.change_all(&mut installation(&name, rule, QueueTarget::Target))?;
            }
            answered => answered?,
        }
        let mut table = Self { owner, name, device: rule.device.to_owned() };
        table.renew()?;
        Ok(table)
    }
}

impl Leased for Table {
    /// Sends packets to the queue for another lease.
    fn renew(&mut self) -> io::Result<()> {
        let Self { owner, name, device } = self;
        let list = |put: &mut Writer<'_>| _ = put.text(1, name).text(2, RUNNING);
        Ok(owner.change_all(&mut transaction(|messages| {
            // An element keeps its timeout when it is added again (before Linux 6.12), and an
            // expired element cannot be deleted: so the set is flushed, which always works.
            head(DELETE_ELEMENTS, 0).push(messages, list);
            head(NEW_ELEMENTS, CREATE).push(messages, |put| {
                list(put);
                put.nested(3, |elements| {
                    elements.nested(1, |element| {
                        element.nested(1, |key| _ = key.put(1, &padded(device)));
                    });
                });
            });
        }))?)
    }

    /// Removes the rule, so that no more packets are queued. The chain stays until this is dropped:
    /// when a chain is removed, the kernel drops all packets in its queues to user space.
    fn remove(&mut self) -> io::Result<()> {
        let Self { owner, name, .. } = self;
        Ok(owner.change_all(&mut transaction(|messages| {
            head(DELETE_RULE, 0).push(messages, |put| _ = put.text(1, name).text(2, CHAIN));
        }))?)
    }
}

const NFPROTO_UNSPEC: u8 = 0;
const NFPROTO_INET: u8 = 1;
const POSTROUTING: u32 = 4;
const PRIORITY: u32 = 50;
const CHAIN: &str = "out";
const RUNNING: &str = "running";

const NFTABLES: u16 = 10;
const NEW_TABLE: u16 = 0;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const DELETE_RULE: u16 = 8;
const NEW_SET: u16 = 9;
const NEW_ELEMENTS: u16 = 12;
const DELETE_ELEMENTS: u16 = 14;

/// A batch that is applied as a whole or not at all.
fn transaction(content: impl FnOnce(&mut Requests)) -> Requests {
    const BEGIN: u16 = 0x10;
    const END: u16 = 0x11;
    let bracket = |kind| Head { kind, flags: 0, family: NFPROTO_UNSPEC, resource: NFTABLES };
    let mut messages = Requests::default();
    bracket(BEGIN).push(&mut messages, |_| ());
    content(&mut messages);
    bracket(END).push(&mut messages, |_| ());
    messages
}

fn head(kind: u16, flags: u16) -> Head {
    Head { kind: NFTABLES << 8 | kind, flags: ACK | flags, family: NFPROTO_INET, resource: 0 }
}

/// The table, its set, its chain and its rules.
fn installation(name: &str, rule: Rule<'_>, target: QueueTarget) -> Requests {
    const OWNED: u32 = 2;
    /// `NFT_SET_TIMEOUT`.
    const TIMEOUT: u32 = 0x10;
    /// The number by which `nft` knows the type; the kernel only stores it.
    const IFNAME: u32 = 41;
    const NUMBER: u32 = 1;
    transaction(|messages| {
        head(NEW_TABLE, CREATE | EXCLUSIVE).push(messages, |put| {
            put.text(1, name).be_u32(2, OWNED);
        });
        head(NEW_SET, CREATE).push(messages, |put| {
            put.text(1, name).text(2, RUNNING).be_u32(3, TIMEOUT);
            put.be_u32(4, IFNAME).be_u32(5, NAME_LEN as u32).be_u32(10, NUMBER);
            put.put(11, &(rule.lease.as_nanos() / 1_000_000).to_be_bytes());
        });
        head(NEW_CHAIN, CREATE).push(messages, |put| {
            put.text(1, name)
                .text(3, CHAIN)
                .nested(4, |hook| _ = hook.be_u32(1, POSTROUTING).be_u32(2, PRIORITY))
                .text(7, "filter");
        });
        for control in [LinkControl::Discovery, LinkControl::Mld] {
            head(NEW_RULE, CREATE | APPEND).push(messages, |put| {
                put.text(1, name).text(2, CHAIN).nested(4, |list| {
                    leaves_through(list, rule.device);
                    passes(list, control);
                });
            });
        }
        head(NEW_RULE, CREATE | APPEND).push(messages, |put| {
            put.text(1, name).text(2, CHAIN).nested(4, |list| {
                leaves_while_running(list);
                queues(list, rule, target);
            });
        });
    })
}

/// ICMPv6 that keeps the link working.
#[derive(Debug, Clone, Copy)]
enum LinkControl {
    /// RFC 4861: hop limit 255.
    Discovery,
    /// RFC 3810: hop limit 1, to a link-local group.
    Mld,
}

const REGISTER: u32 = 1;

/// How a register is compared (`NFT_CMP_*`).
mod compare {
    pub(super) const EQUAL: u32 = 0;
    pub(super) const AT_MOST: u32 = 3;
    pub(super) const AT_LEAST: u32 = 5;
}

/// Where a header begins (`NFT_PAYLOAD_*`).
mod base {
    pub(super) const NETWORK: u32 = 1;
    pub(super) const TRANSPORT: u32 = 2;
}

fn meta(list: &mut Writer<'_>, key: u32) {
    expression(list, "meta", |put| _ = put.be_u32(1, REGISTER).be_u32(2, key));
}

fn payload(list: &mut Writer<'_>, base: u32, offset: u32, length: u32) {
    expression(list, "payload", |put| {
        put.be_u32(1, REGISTER).be_u32(2, base).be_u32(3, offset).be_u32(4, length);
    });
}

fn holds(list: &mut Writer<'_>, compare: u32, value: &[u8]) {
    expression(list, "cmp", |put| {
        put.be_u32(1, REGISTER).be_u32(2, compare).nested(3, |data| _ = data.put(1, value));
    });
}

/// `... accept`.
fn passes(list: &mut Writer<'_>, control: LinkControl) {
    const NFPROTO: u32 = 15;
    const L4PROTO: u32 = 16;
    const IPV6: u8 = 10;
    const ICMPV6: u8 = 58;
    const HOP_LIMIT_AT: u32 = 7;
    const DESTINATION_AT: u32 = 24;
    const VERDICT: u32 = 0;
    const ACCEPT: u32 = 1;
    let (hop_limit, types) = match control {
        LinkControl::Discovery => (255, [133, 137]),
        LinkControl::Mld => (1, [130, 143]),
    };
    meta(list, NFPROTO);
    holds(list, compare::EQUAL, &[IPV6]);
    meta(list, L4PROTO);
    holds(list, compare::EQUAL, &[ICMPV6]);
    payload(list, base::NETWORK, HOP_LIMIT_AT, 1);
    holds(list, compare::EQUAL, &[hop_limit]);
    if let LinkControl::Mld = control {
        payload(list, base::NETWORK, DESTINATION_AT, 2);
        holds(list, compare::EQUAL, &[0xff, 2]);
    }
    payload(list, base::TRANSPORT, 0, 1);
    holds(list, compare::AT_LEAST, &[types[0]]);
    holds(list, compare::AT_MOST, &[types[1]]);
    expression(list, "immediate", |put| {
        put.be_u32(1, VERDICT).nested(2, |data| {
            data.nested(2, |verdict| _ = verdict.be_u32(1, ACCEPT));
        });
    });
}

const OUTPUT_NAME: u32 = 7;
const NAME_LEN: usize = 16;

/// The name of a device, padded to the size of a register.
fn padded(device: &str) -> [u8; NAME_LEN] {
    let mut name = [0; NAME_LEN];
    for (to, from) in name.iter_mut().zip(device.bytes()) {
        *to = from;
    }
    name
}

/// `oifname DEVICE`.
fn leaves_through(list: &mut Writer<'_>, device: &str) {
    meta(list, OUTPUT_NAME);
    holds(list, compare::EQUAL, &padded(device));
}

/// `oifname @running`.
fn leaves_while_running(list: &mut Writer<'_>) {
    meta(list, OUTPUT_NAME);
    expression(list, "lookup", |put| _ = put.text(1, RUNNING).be_u32(2, REGISTER));
}

/// `queue num QUEUE bypass`.
fn queues(list: &mut Writer<'_>, rule: Rule<'_>, target: QueueTarget) {
    const BYPASS: u16 = 1;
    match target {
        QueueTarget::Queue => expression(list, "queue", |put| {
            put.be_u16(1, rule.queue).be_u16(2, 1).be_u16(3, BYPASS);
        }),
        QueueTarget::Target => expression(list, "target", |put| {
            // `struct xt_NFQ_info_v3` in host byte order: first queue, number of queues, flags,
            // padding.
            let info = [rule.queue, 1, BYPASS, 0].map(u16::to_ne_bytes).concat();
            put.text(1, "NFQUEUE").be_u32(2, 3).put(3, &info);
        }),
    }
}

fn expression(list: &mut Writer<'_>, name: &str, data: impl FnOnce(&mut Writer<'_>)) {
    list.nested(1, |put| _ = put.text(1, name).nested(2, data));
}
