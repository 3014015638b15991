//! A Wi-Fi cell: the 802.11 PHY and MAC in virtual time.

pub mod bianchi;
mod category;
mod cell;
mod channel;
mod config;
mod contention;
mod error_model;
mod flow;
mod frame;
mod medium;
mod mode;
mod rate;
mod rules;
mod stats;
mod timing;

pub use category::{Access, Category, CategoryParams, user_priority};
pub use cell::{Cell, CellParts, Delivered, Transmission};
pub use channel::{Channel, Place, Propagation};
pub use config::{CellConfig, CellError, ParseRateError, RateConfig};
pub use contention::Countdown;
pub use error_model::log_success_per_bit;
pub use frame::{ACK, BLOCK_ACK, Framing, MAX_ON_AIR};
pub use mode::{CodeRate, Guard, Mode, Modulation, Width};
pub use rate::RateChoice;
pub use rules::{Recovery, Rules};
pub use stats::{CellStats, StationStats};
pub use timing::{Standard, Timing};
