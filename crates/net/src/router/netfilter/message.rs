//! Messages of netlink's netfilter family.
//!
//! ```text
//! nlmsghdr │ family u8 │ version u8 │ resource u16 (network's order) │ attributes
//! ```

use freshline_system::netlink::{Requests, Writer};

/// The length of the header behind the netlink header, in bytes.
const HEADER: usize = 4;

/// The header fields of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// The subsystem and the request.
    pub(super) kind: u16,
    /// `NLM_F_*`.
    pub(super) flags: u16,
    /// An `NFPROTO_*`.
    pub(super) family: u8,
    /// The subject: a queue's number, or a batch's subsystem.
    pub(super) resource: u16,
}

impl Head {
    /// Adds a message with these attributes.
    pub(super) fn push(self, to: &mut Requests, attributes: impl FnOnce(&mut Writer<'_>)) {
        let Self { kind, flags, family, resource } = self;
        to.push(kind, flags, |put| {
            attributes(put.raw(&[family, 0]).raw(&resource.to_be_bytes()));
        });
    }
}

/// The attributes of a message, given its body behind the netlink header.
pub(super) fn attributes_of(body: &[u8]) -> &[u8] {
    body.get(HEADER..).unwrap_or_default()
}
