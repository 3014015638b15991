//! Packet captures: what a real one tells of age, and captures of the lab's own.
//!
//! ```text
//! file ─► reader ─► packet ─┬─► tcp         age, delay and goodput of each direction of a flow
//!         pcap,    link, IP,└─► session     age of our own sessions, at the source and at the
//!         pcapng   TCP, UDP                 monitor
//!                          analysis         which packet belongs where; all bounds, all counts
//! ```
//!
//! [`measure`] streams a file through this and returns a [`Report`], also where the file ends
//! badly. The other way go the [`PcapWriter`] and, for what leaves hops and cells of the
//! lab, [`Captures`].

mod ages;
mod analysis;
mod bytes;
mod carriers;
mod error;
mod feed;
mod frame;
mod frames;
mod in_order;
mod link_type;
mod outstanding;
pub(crate) mod packet;
mod reader;
mod report;
mod round_trips;
mod session;
mod tcp;
mod writer;

pub use ages::Ages;
pub use analysis::{Limits, Measured, measure};
pub use carriers::{Captures, NoSuchCarrier, carrier_called};
pub use error::{CaptureError, Timeless};
pub use frame::Frame;
pub use link_type::LinkType;
pub use reader::read_frames;
pub use report::{FlowReport, Packets, Report, SessionReport};
pub use round_trips::RoundTripTimes;
pub use writer::PcapWriter;
