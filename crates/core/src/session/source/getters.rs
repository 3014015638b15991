//! What a source shows of itself.

use super::{Reach, Source, SourceCounters};
use crate::age::{AgeMeter, BacklogProcess};
use crate::path::PathSet;
use crate::session::clock_offset::ClockOffset;
use crate::session::cookie::SessionLabel;
use crate::session::paths::Paths;
use crate::source::{Limit, RateLaw};
use crate::wire::{self, SessionId};

impl Source {
    /// The session's id on the wire. It is not to be shown: [`Source::label`] is there instead.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The name under which it opens sessions; may be empty.
    pub fn name(&self) -> &str {
        &self.params.name
    }

    /// What people see of the session; the monitor has another label for it.
    pub fn label(&self) -> SessionLabel {
        self.secret.label(self.session)
    }

    /// Whether the next opening is due because something came: a challenge, or a transport that is
    /// ready.
    pub fn is_prompted(&self) -> bool {
        self.attempt_by != PathSet::EMPTY
    }

    /// Whether the monitor is known to hear us.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// The law at work.
    pub fn law(&self) -> &dyn RateLaw {
        self.law.law()
    }

    /// The limit without which it would, or might, send more.
    pub fn limited_by(&self) -> Option<Limit> {
        self.law.limited_by()
    }

    /// The age at the monitor as acks tell it: an upper bound, by the way of the ack.
    pub fn age(&self) -> &AgeMeter {
        &self.age
    }

    /// Updates sent and not yet acknowledged.
    pub fn backlog(&self) -> &BacklogProcess {
        &self.backlog
    }

    /// Its paths.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// How far the monitor's clock is ahead.
    pub fn clock_offset(&self) -> &ClockOffset {
        &self.clock_offset
    }

    /// What was counted here.
    pub fn counters(&self) -> &SourceCounters {
        &self.counters
    }

    /// The freshest ack, with the monitor's counts.
    pub fn newest_ack(&self) -> Option<&wire::Ack> {
        self.monitor_counts.as_ref()
    }
}
