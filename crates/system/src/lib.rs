//! The common base of the crates that use the operating system: locks on folders, netlink, network
//! devices, ICMP, restriction of privileges and file access, real-time priority, and the user that
//! runs a command.

#[cfg(feature = "confinement")]
pub mod confinement;
pub mod folder_lock;
pub mod icmp;
pub mod net_device;
pub mod netlink;
pub mod privileges;
mod scheduling;
mod user;

pub use scheduling::RealTime;
pub use user::{User, UserError};
