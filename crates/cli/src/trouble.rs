//! Messages for conditions that keep a session from opening.

use freshline::driver::source::{Event, LinkEvent};
use freshline_core::session::{self, Reach, SourceEvent};

/// The number of unanswered openings after which the user is informed.
const ATTEMPTS: u32 = 3;

pub(crate) const NO_PATH: &str = "no path to the monitor yet: is an interface up, with an address?";

pub(crate) const NO_ANSWER: &str = "no answer: does a monitor listen there, by the same scheme, and does a \
                                    firewall let UDP through?";

/// Whether several openings had no answer.
pub(crate) fn is_unanswered(session: &session::Source) -> bool {
    matches!(session.reach(), Reach::Opening { attempts } if attempts >= ATTEMPTS)
}

/// The problem that an event reports, if it is one that may resolve itself.
pub(crate) fn trouble(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::Session(SourceEvent::Closed(reason)) => reason.to_string(),
        Event::Session(SourceEvent::Silent) => "the monitor is silent".into(),
        Event::Link(LinkEvent::Lost(reason)) => reason.to_string(),
        Event::Link(LinkEvent::Unreachable) => "nothing listens at the monitor's address".into(),
        Event::Link(LinkEvent::Waiting(why)) => why.clone(),
        Event::NoSample(why) => (*why).to_owned(),
        Event::Session(_) | Event::Link(LinkEvent::Ready) => return None,
        Event::Path { .. } | Event::TooLarge(_) => return None,
        Event::KeyRefused { .. } | Event::RecordRefused { .. } => return None,
        Event::InvalidStamp { .. } | Event::TopicOver { .. } => return None,
    })
}
