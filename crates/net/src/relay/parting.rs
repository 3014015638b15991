//! How sessions at destinations end.

use freshline_core::session::End;

/// How a session at a destination ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parting {
    /// Its source has closed its session, or lost the right to it: the session is closed.
    Close,
    /// Its source has fallen silent: so does the session, and the destination keeps the name with a
    /// growing age, as this monitor does.
    Leave,
}

impl Parting {
    /// The parting of a source that ended for this reason. Nothing is kept of a source without a
    /// name.
    pub(super) fn of(why: End, name: &str) -> Self {
        match why {
            End::Displaced | End::Idle if !name.is_empty() => Self::Leave,
            _ => Self::Close,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_closed_with_its_source_and_silent_with_it_if_it_has_a_name() {
        use Parting::{Close, Leave};
        for (why, named) in [
            (End::Closed, Close),
            (End::Revoked, Close),
            (End::Idle, Leave),
            (End::Displaced, Leave),
        ] {
            assert_eq!((Parting::of(why, "robot"), Parting::of(why, "")), (named, Close));
        }
    }
}
