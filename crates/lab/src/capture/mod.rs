//! Packet captures: measures ages in real ones, and writes captures of the lab's packets.
//!
//! ```text
//! file ─► reader ─► packet ─┬─► tcp         age, delay and goodput of each direction of a flow
//!         pcap,    link, IP,└─► session     age of Freshline's sessions, at the source and at
//!         pcapng   TCP, UDP                 the monitor
//!                          analysis         assigns packets to flows and sessions, within limits
//! ```
//!
//! [`measure`] streams a file through this and returns a [`Report`], even if the file is damaged or
//! truncated. [`PcapWriter`] writes captures, and [`Captures`] writes those of packets that leave
//! hops and cells of the lab.

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
