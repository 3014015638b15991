//! TUN devices, and what it takes to configure them.

mod device;
mod netlink;

pub(crate) use device::{Device, IPV6_MIN_MTU, IpPacket, Pool};
pub(crate) use netlink::Netlink;
