//! Messages of netlink's netfilter family.
//!
//! ```text
//! nlmsghdr │ family u8 │ version u8 │ resource u16 (network's order) │ attributes
//! ```

use freshline_system::netlink::{Requests, Writer};

/// The length of the header behind that of netlink, in bytes.
const HEADER: usize = 4;

/// The front of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    /// The subsystem and what is asked of it.
    pub(super) kind: u16,
    /// `NLM_F_*`.
    pub(super) flags: u16,
    /// An `NFPROTO_*`.
    pub(super) family: u8,
    /// What it is about: a queue's number, or a batch's subsystem.
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

/// The attributes of a message, from what follows netlink's header.
pub(super) fn attributes_of(body: &[u8]) -> &[u8] {
    body.get(HEADER..).unwrap_or_default()
}
