//! The return direction at a source: the methods of its application.

use crate::events::Events;
use crate::monitor_event::MonitorEvent;
use crate::receiving::Receiving;
use crate::source::Source;
use crate::state::State;
use crate::subscription::Subscription;

/// The return direction: topics that the monitor sends, for a source with [`SourceBuilder::receive`](crate::SourceBuilder::receive).
impl Source {
    /// The newest state of a topic that the monitor sends, such as `monitor/cmd`; see
    /// [`Monitor::latest`](crate::Monitor::latest). `None` without [`SourceBuilder::receive`](crate::SourceBuilder::receive).
    pub fn latest(&self, name: &str) -> Option<State> {
        self.receiving()?.board().latest(name)
    }

    /// Events of the return direction, such as that all states of a topic are too old
    /// ([`SourceBuilder::max_age`](crate::SourceBuilder::max_age)). `None` without [`SourceBuilder::receive`](crate::SourceBuilder::receive).
    pub fn received_events(&self) -> Option<&Events<MonitorEvent>> {
        Some(self.receiving()?.board().events())
    }

    /// Subscribes to received topics; see [`Monitor::subscribe`](crate::Monitor::subscribe). Without
    /// [`SourceBuilder::receive`](crate::SourceBuilder::receive) the subscription is over from the start.
    pub fn subscribe(&self, pattern: &str) -> Subscription {
        Receiving::subscribe(self.receiving(), pattern)
    }
}
