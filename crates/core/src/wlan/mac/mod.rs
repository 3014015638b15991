//! A Wi-Fi cell: the 802.11 PHY and MAC in virtual time.
//!
//! ```text
//! enqueue ─► queue per receiver ─► turns ─► contention ─► medium ─► reorder ─► poll
//!            and category                  (backoff)      (errors)
//!              │          ▲                    │             │
//!              ▼          └──── retry ─────────┴─────────────┘
//!            drops
//! ```
//!
//! Everything follows from the standard, IEEE 802.11-2016; no parameter is fitted. A packet is
//! queued in the queue of its sender, receiver and category ([`Category`]), which is drop-tail or
//! any discipline of [`router`](crate::router). The queues of one sender and category take turns;
//! together they contend with all others for the medium. The winner sends a frame, or an A-MPDU of
//! the packets queued for that receiver, and learns from the acknowledgement which ones arrived. It
//! sends the others again until their retry limit or their lifetime is reached. A receiver delivers
//! packets in order: it holds packets back behind a missing one until that one arrives or is given
//! up. Delivery is at the end of the frame or of each MPDU ([`Delivery`]).
//!
//! [`Cell`] is a state machine on the driver's time, as [`Hop`](crate::link::Hop) is:
//!
//! ```
//! # use freshline_core::router::Packet;
//! # use freshline_core::unit::{Bytes, Time};
//! # use freshline_core::wlan::mac::{Category, CellConfig, Transmission};
//! # use rand_pcg::Pcg64;
//! # struct Update;
//! # impl Packet for Update { fn size(&self) -> Bytes { Bytes::new(1052) } }
//! let config = CellConfig { stations: 2, ..CellConfig::default() };
//! let mut cell = config.build(Pcg64::new(7, 7))?;
//! let sent = Transmission { from: 1, to: 0, category: Category::BestEffort, packet: Update };
//! cell.enqueue(Time::ZERO, sent, &mut |drop| println!("{:?}", drop.reason));
//! let mut arrivals = Vec::new();
//! while let Some(now) = cell.poll_timeout() {
//!     while let Some(delivered) = cell.poll(now, &mut |drop| println!("{:?}", drop.reason)) {
//!         arrivals.push(delivered.at);
//!     }
//! }
//! // DIFS and 182 symbols behind the preamble.
//! assert_eq!(arrivals, [Time::from_nanos(34_000 + 748_000)]);
//! # Ok::<(), freshline_core::wlan::mac::CellError>(())
//! ```
//!
//! # Time
//!
//! A late driver does not change the result. Idle time costs no computation: the next access is the
//! earliest end of a backoff, and the backoff counters are computed when the medium becomes busy. A
//! packet queued at the time of an access finds the medium idle if it is queued before that access
//! is polled.
//!
//! # Memory
//!
//! Each drop-tail queue holds `queue` packets, packets on the air and in the receiver's reorder
//! buffer included; disciplines have their own limits. Once all queues have reached their maximum
//! length, nothing more is allocated.
//!
//! # Not modelled
//!
//! - Every station hears every other one: no hidden stations; propagation takes no time.
//! - RTS and CTS, with [`Protection`], are never lost to noise.
//! - Acknowledgements are never lost, and block acknowledgement agreements always hold. When a
//!   sender gives up an MPDU, its receiver knows at once and releases the packets behind it, as if
//!   the next A-MPDU had announced it.
//! - A frame that its receiver lost to noise is unreadable for all other stations too; a frame that
//!   it received is readable for all.
//! - Beacons, association, power saving, fragmentation, STBC, LDPC and beamforming.
//! - 802.11n is at 5 GHz, in mixed format; 802.11g has no 802.11b stations around.

pub mod bianchi;
mod category;
mod cell;
mod channel;
mod config;
mod contention;
mod error_model;
mod flow;
mod frame;
mod front;
mod medium;
mod mode;
mod msdu;
mod parts;
mod protection;
mod rate;
mod rules;
mod standard;
mod stats;
mod timing;

pub use category::{Access, Category, CategoryParams, user_priority};
pub use cell::Cell;
pub use channel::{Channel, Place, Propagation, Shadowing};
pub use config::{AccessConfig, CellConfig, CellError, ParseRateError, RateConfig};
pub use error_model::log_success_per_bit;
pub use frame::{ACK, BLOCK_ACK, Delivery, Framing, MAX_ON_AIR, Received};
pub use front::{FrontError, Queues};
pub use mode::{CodeRate, Guard, Mode, Modulation, Width};
pub use parts::{CellParts, Delivered, Transmission};
pub use protection::{Exchange, Protection, Reservation};
pub use rate::RateChoice;
pub use rules::{Countdown, Recovery, Rules};
pub use standard::Standard;
pub use stats::{CellStats, StationStats};
pub use timing::{Slot, Timing};
