//! Frames as captured on the air: the radiotap header of a frame, and its packets.
//!
//! ```text
//! ┌──────────┬─────────────────┬──────────┬────────┬─────┐
//! │ radiotap │ 802.11 header   │ LLC/SNAP │ IP …   │ FCS │   one record of a capture, an MPDU
//! └──────────┴─────────────────┴──────────┴────────┴─────┘
//!   Radiotap   DataFrame::parse  DataFrame::packets
//!   └─ Phy ─► rate
//! ```
//!
//! Records of one frame have the same [`Stamp`], by which [`Aggregation`](super::Aggregation)
//! counts. All parsers are total: any bytes give a value or an error, in one pass and without
//! allocation.
//!
//! ```
//! use freshline_core::unit::BitRate;
//! use freshline_core::wlan::air::{Ampdu, DataFrame, Phy, Radiotap, Stamp, Width};
//! use freshline_core::wlan::mac::Guard;
//!
//! let phy = Phy::Vht { mcs: 9, streams: 2, width: Width::Mhz80, guard: Guard::Short };
//! let radio = Radiotap {
//!     tsft: Some(17),
//!     phy: Some(phy),
//!     ampdu: Some(Ampdu { reference: 3, is_last: false }),
//!     ..Radiotap::default()
//! };
//! let mut record = Vec::new();
//! radio.write(&mut record);
//! let frame = DataFrame { from_ap: true, station: [2, 0, 0, 0, 0, 1], ..DataFrame::default() };
//! frame.write(&[0x45, 0, 0, 20], &mut record);
//!
//! let (read, mpdu) = Radiotap::parse(&record)?;
//! assert_eq!((read, read.stamp()), (radio, Some(Stamp::Reference(3))));
//! assert_eq!(phy.rate(), Some(BitRate::from_bps(866_666_666)));
//! let mut packets = DataFrame::parse(mpdu, false)?.1.packets();
//! assert_eq!(packets.next(), Some(&[0x45, 0, 0, 20][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod data;
mod phy;
mod radiotap;

pub use data::{DataError, DataFrame, Packets, Payload};
pub use phy::{Phy, Width};
pub use radiotap::{Ampdu, Radiotap, RadiotapError, Stamp};
