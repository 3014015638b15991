//! Both directions between two hosts: either may send, independent of which one dials.
//!
//! ```text
//!   dialer                                              listener
//!   Source ── updates (states of the return wanted) ──► Monitor     the forward direction
//!   Monitor ◄── updates, opened by the forward id ──── Source       the return direction
//! ```
//!
//! Each direction is an ordinary session with its own law, id and topics. The return direction uses
//! the forward one's address or connection, so it passes NATs that only the dialer can open.
//!
//! An update's flag asks for the return direction, in each update: it costs no byte, and a
//! restarted listener learns of it from the first update that it accepts. The listener opens the
//! return session only towards a peer whose forward session is open, so its address is proven, and
//! at the pace of openings. The token of the opening is the forward session's id, which only its
//! two ends know; so the dialer does not require a cookie, and the return session is open half a
//! round trip after the forward one.

mod dialer;
mod listener;
mod receiver;
mod returns;
mod ride;

pub use dialer::{Dialer, DialerEvent};
pub use listener::{Listener, ListenerEvent, ListenerTransmit};
pub use receiver::Receiver;
pub use returns::{ReturnError, ReturnParams};

use super::monitor::Ignored as MonitorIgnored;
use super::source::Ignored as SourceIgnored;

/// Why a datagram was ignored, by the direction to which it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Ignored {
    /// Ignored by the receiving end.
    #[error(transparent)]
    Monitor(#[from] MonitorIgnored),
    /// Ignored by the sending end.
    #[error(transparent)]
    Source(#[from] SourceIgnored),
}
