//! Wi-Fi information that a client gets in addition to its packets: from captures, and from the
//! driver.
//!
//! ```text
//! monitor interface ─┐                     ┌─ MAC time, rate and datagram of each packet
//!                    ├─► Capture (thread) ─┤
//! radiotap capture ──┘                     └─► core's `Aggregation` counts packets a frame
//!
//! nl80211 ─► station_info ─► the MCS rate, without a capture and without privilege
//! ```

pub mod capture;
mod error;
mod monitor_socket;
pub mod station_info;
