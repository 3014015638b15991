//! The rule that sends packets to us: a table of our own in the kernel's nf_tables.
//!
//! ```text
//! table inet freshline-eth1 {        # owned: the kernel takes it away with our socket
//!     chain out {
//!         type filter hook postrouting priority 50
//!         oifname "eth1" queue num 3774 bypass
//!     }
//! }
//! ```
//!
//! The kernel is asked by netlink, so no `nft` or `iptables` needs to be installed. The queue is
//! reached by nf_tables' own expression, or where the kernel was built without it
//! (`CONFIG_NFT_QUEUE`), by the target of iptables through the layer of compatibility
//! (`CONFIG_NFT_COMPAT`, `xt_NFQUEUE`).
//!
//! - **Ownership** (Linux 5.12): when our socket closes, however that comes about, the kernel
//!   removes the table. A crash leaves nothing behind, nobody else can change the table, and a
//!   second instance for the same device is refused.
//! - **A chain of our own**, rather than a rule in somebody else's: a verdict of ours lets a packet
//!   go on to the next chain, so the host's own filters all see it, before or after us.
//! - **The hook** sees all that leaves through the device, forwarded or from the router itself:
//!   both share the link. At this priority, between `mangle` (-150) and source NAT (100), packets
//!   have the marks that the host gives them, and still the addresses of the inner network.
//! - **`bypass`**: packets pass while nobody listens to the queue.

use std::io;

use super::message::{Attributes, Head, Messages};
use super::socket::Socket;

/// A table with our rule. It is there as long as this is.
#[derive(Debug)]
pub(super) struct Table {
    owner: Socket,
    name: String,
}

/// Which packets go where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule<'a> {
    /// The device through which they leave.
    pub(super) device: &'a str,
    /// The queue's number.
    pub(super) queue: u16,
}

/// How a rule reaches a queue.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// nf_tables' `queue`.
    Queue,
    /// iptables' `NFQUEUE`.
    Target,
}

impl Table {
    /// Makes the table. Fails with [`io::ErrorKind::AlreadyExists`] or
    /// [`io::ErrorKind::PermissionDenied`] if there is one for the device, and with
    /// [`io::ErrorKind::NotFound`] if the kernel has neither way to a queue.
    pub(super) fn install(rule: Rule<'_>) -> io::Result<Self> {
        let owner = Socket::open()?;
        let name = format!("freshline-{}", rule.device);
        match owner.request(&installation(&name, rule, Way::Queue)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                owner.request(&installation(&name, rule, Way::Target))?;
            }
            answered => answered?,
        }
        Ok(Self { owner, name })
    }

    /// Removes the rule, so that nothing more comes. The chain stays as long as this: when a chain
    /// goes, the kernel drops all that waits in its queues to user space.
    pub(super) fn remove_rule(&self) -> io::Result<()> {
        self.owner.request(&transaction(|messages| {
            messages.push(head(DELETE_RULE, 0), |put| {
                put.text(1, &self.name).text(2, CHAIN);
            });
        }))
    }
}

const NFPROTO_UNSPEC: u8 = 0;
const NFPROTO_INET: u8 = 1;
const POSTROUTING: u32 = 4;
const PRIORITY: u32 = 50;
const CHAIN: &str = "out";

const NFTABLES: u16 = 10;
const NEW_TABLE: u16 = 0;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const DELETE_RULE: u16 = 8;

/// `NLM_F_*`.
mod flag {
    pub(super) const ACK: u16 = 0x4;
    pub(super) const EXCLUSIVE: u16 = 0x200;
    pub(super) const CREATE: u16 = 0x400;
    pub(super) const APPEND: u16 = 0x800;
}

/// All of it or nothing.
fn transaction(content: impl FnOnce(&mut Messages)) -> Messages {
    const BEGIN: u16 = 0x10;
    const END: u16 = 0x11;
    let bracket = |kind| Head { kind, flags: 0, family: NFPROTO_UNSPEC, resource: NFTABLES };
    let mut messages = Messages::default();
    messages.push(bracket(BEGIN), |_| {});
    content(&mut messages);
    messages.push(bracket(END), |_| {});
    messages
}

fn head(kind: u16, flags: u16) -> Head {
    Head { kind: NFTABLES << 8 | kind, flags: flag::ACK | flags, family: NFPROTO_INET, resource: 0 }
}

/// The table, its chain and its rule.
fn installation(name: &str, rule: Rule<'_>, way: Way) -> Messages {
    const OWNED: u32 = 2;
    transaction(|messages| {
        messages.push(head(NEW_TABLE, flag::CREATE | flag::EXCLUSIVE), |put| {
            put.text(1, name).u32(2, OWNED);
        });
        messages.push(head(NEW_CHAIN, flag::CREATE), |put| {
            put.text(1, name)
                .text(3, CHAIN)
                .nested(4, |hook| _ = hook.u32(1, POSTROUTING).u32(2, PRIORITY))
                .text(7, "filter");
        });
        messages.push(head(NEW_RULE, flag::CREATE | flag::APPEND), |put| {
            put.text(1, name).text(2, CHAIN).nested(4, |list| expressions(list, rule, way));
        });
    })
}

/// `oifname DEVICE queue num QUEUE bypass`.
fn expressions(list: &mut Attributes<'_>, rule: Rule<'_>, way: Way) {
    const REGISTER: u32 = 1;
    const OUTPUT_NAME: u32 = 7;
    const EQUAL: u32 = 0;
    const BYPASS: u16 = 1;
    const NAME_LEN: usize = 16;
    let mut name = [0; NAME_LEN];
    for (to, from) in name.iter_mut().zip(rule.device.bytes()) {
        *to = from;
    }
    expression(list, "meta", |put| _ = put.u32(1, REGISTER).u32(2, OUTPUT_NAME));
    expression(list, "cmp", |put| {
        put.u32(1, REGISTER).u32(2, EQUAL).nested(3, |data| _ = data.put(1, &name));
    });
    match way {
        Way::Queue => expression(list, "queue", |put| {
            put.u16(1, rule.queue).u16(2, 1).u16(3, BYPASS);
        }),
        Way::Target => expression(list, "target", |put| {
            // `struct xt_NFQ_info_v3` in the host's order: first queue, how many, flags, padding.
            let info = [rule.queue, 1, BYPASS, 0].map(u16::to_ne_bytes).concat();
            put.text(1, "NFQUEUE").u32(2, 3).put(3, &info);
        }),
    }
}

fn expression(list: &mut Attributes<'_>, name: &str, data: impl FnOnce(&mut Attributes<'_>)) {
    list.nested(1, |put| _ = put.text(1, name).nested(2, data));
}
