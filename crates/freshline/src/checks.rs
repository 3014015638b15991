//! Checks of settings that sources share with relays and simulations.

use freshline_core::session;
use freshline_core::unit::Span;
#[cfg(feature = "status")]
use freshline_net::source::{MIN_STATUS_INTERVAL, STATUS_TOPIC};

use crate::error::Error;

/// Updates would leave without a pause with less.
pub(crate) fn check_keep_alive(interval: Span) -> Result<(), Error> {
    match interval < Span::from_millis(1) {
        true => Err(Error::Setting { setting: "`keep_alive`", why: "give at least 1 ms" }),
        false => Ok(()),
    }
}

/// The longest status: eight paths of some 600 bytes.
#[cfg(feature = "status")]
const MAX_STATUS: usize = 8_000;

/// The status must not take much of the path, and it needs a named topic to distinguish it from
/// states.
#[cfg(feature = "status")]
pub(crate) fn check_status(session: &session::Source, interval: Span) -> Result<(), Error> {
    let why = match session.topics().next() {
        None => "the status is a topic: name the other states, too, by `topic`",
        Some(_) if session.topics().any(|(_, topic)| topic.name == STATUS_TOPIC) => {
            "no other topic may be `freshline.status`"
        }
        Some(_) if session.max_state() < MAX_STATUS => "it needs a `max_state` of 8 kB or more",
        Some(_) if interval < MIN_STATUS_INTERVAL => "give at least 100 ms",
        Some(_) => return Ok(()),
    };
    Err(Error::Setting { setting: "`status`", why })
}

/// Whether the transport carries states of this length.
pub(crate) fn check_max_state(session: &session::Source, given: usize) -> Result<(), Error> {
    match session.max_state() {
        max if max < given => Err(Error::MaxState { given, max }),
        _ => Ok(()),
    }
}
