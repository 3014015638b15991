//! TUN devices.

mod device;

pub(crate) use device::{Device, IPV6_MIN_MTU, IpPacket, Pool};
