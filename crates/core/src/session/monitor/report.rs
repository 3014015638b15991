//! Reports the changes of an update, and withholds states that are too old.

use core::hash::Hash;

use super::Monitor;
use super::deadlines::{Arrived, Topic, Verdict};
use super::events::MonitorEvent;
use crate::session::change::Change;
use crate::session::held::Arrival;
use crate::session::record::SourceKey;
use crate::unit::Time;

impl<P: Copy + Hash> Monitor<P> {
    /// Withholds states that are, or may be, too old. The driver gets no event of a fresh state for
    /// them.
    pub(super) fn judge(&mut self, now: Time, key: u32) {
        if self.deadlines.are_none() {
            return;
        }
        let Self { deadlines, records, counters, large, .. } = self;
        let record = &mut records[key as usize];
        for change in &mut large.changes {
            let (number, is_new) = match *change {
                Change::Fresh(number) => (number, true),
                Change::Repeated(number) | Change::Aged(number) => (number, false),
                Change::Dropped(number) => {
                    deadlines.forget(key, number, &record.name);
                    continue;
                }
                Change::Removed(_) | Change::Record(_) => continue,
            };
            let arrived = Arrived {
                is_new,
                was_withheld: record.is_topic_withheld(number),
                since: record.since_of(number),
                age: record.age_of(number, now),
            };
            let topic = Topic::of(key, record, number);
            let Verdict { withhold, hand_out } = deadlines.judge(now, topic, arrived);
            record.withhold(number, withhold);
            *change = match &*change {
                _ if hand_out => Change::Fresh(number),
                Change::Aged(_) if !withhold => Change::Aged(number),
                _ => Change::Repeated(number),
            };
        }
        counters.too_old = deadlines.too_old();
    }

    /// Whether the first topic has a state that is new to the driver.
    fn is_first_fresh(&self) -> bool {
        self.large.changes.iter().any(|change| matches!(change, Change::Fresh(0)))
    }

    /// Reports the result of an update for the state of the first topic.
    pub(super) fn report_first(&mut self, source: SourceKey, arrival: Arrival) {
        let is_new = self.is_first_fresh();
        self.events.push(match arrival {
            Arrival::Fresh | Arrival::Repeat { .. } => {
                self.counters.fresh += 1;
                // A delivered state is new to the driver; a withheld one is not visible to it.
                match self.records[source.index()].is_withheld() {
                    true => MonitorEvent::Withheld { source },
                    false => MonitorEvent::Fresh {
                        source,
                        opened: false,
                        is_repeat: !is_new,
                        brings_age: !is_new && arrival == Arrival::Repeat { brings_age: true },
                    },
                }
            }
            Arrival::Part | Arrival::NoRoom => {
                self.counters.fresh += 1;
                MonitorEvent::Part { source }
            }
            Arrival::Late => {
                self.counters.stale += 1;
                MonitorEvent::Stale { source }
            }
            Arrival::Copy => {
                self.counters.duplicates += 1;
                MonitorEvent::Stale { source }
            }
        });
        let is_reported = matches!(arrival, Arrival::Fresh | Arrival::Repeat { .. });
        if is_new && !is_reported {
            // A late repeat has brought the age of a state that was withheld.
            let (is_repeat, brings_age) = (false, false);
            self.events.push(MonitorEvent::Fresh { source, opened: false, is_repeat, brings_age });
        }
    }

    /// Reports changes of topics other than the first, whose state is that of the record.
    pub(super) fn report_topics(&mut self, source: SourceKey) {
        for change in self.large.changes.drain(..) {
            self.events.push(match change {
                Change::Fresh(0) | Change::Repeated(_) | Change::Dropped(_) => continue,
                Change::Fresh(topic) => MonitorEvent::Topic { source, topic },
                Change::Aged(topic) => MonitorEvent::TopicAged { source, topic },
                Change::Record(topic) => MonitorEvent::Record { source, topic },
                Change::Removed(topic) => MonitorEvent::Removed { source, topic },
            });
        }
        self.count_records();
    }
}
