//! TUN devices.

mod device;
mod packet;

pub(crate) use device::{Device, IPV6_MIN_MTU};
pub(crate) use packet::{IpPacket, Pool};
