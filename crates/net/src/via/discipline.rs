//! The counters of a queue on this host, in the form of a queueing discipline's.

use freshline_system::netlink::{Qdisc, QueueStats};

/// The counters of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueCounters {
    /// Queued packets; a super-packet is one.
    pub queued: u64,
    /// Queued bytes.
    pub queued_bytes: u64,
    /// Packets that have left since the queue was created, counted as segments; wraps.
    pub left: u32,
    /// Bytes that have left since the queue was created.
    pub left_bytes: u64,
    /// The device has no queueing discipline.
    pub is_noqueue: bool,
}

impl QueueCounters {
    /// An empty queue without departures.
    #[cfg(test)]
    pub(super) const EMPTY: Self =
        Self { queued: 0, queued_bytes: 0, left: 0, left_bytes: 0, is_noqueue: false };

    /// Combines two parallel queues.
    pub(super) fn and(&self, other: &Self) -> Self {
        Self {
            queued: self.queued + other.queued,
            queued_bytes: self.queued_bytes + other.queued_bytes,
            left: self.left.wrapping_add(other.left),
            left_bytes: self.left_bytes.wrapping_add(other.left_bytes),
            is_noqueue: self.is_noqueue && other.is_noqueue,
        }
    }

    /// Combines this queue with the queue `behind` it, whose departures count.
    pub(super) fn followed_by(&self, behind: &Self) -> Self {
        Self {
            queued: self.queued + behind.queued,
            queued_bytes: self.queued_bytes + behind.queued_bytes,
            ..*behind
        }
    }
}

impl QueueCounters {
    /// The counters of a queueing discipline, if the kernel has sent its statistics.
    pub(super) fn of(qdisc: &Qdisc) -> Option<Self> {
        let QueueStats { queued, queued_bytes, sent, sent_bytes, .. } = qdisc.stats?;
        Some(Self {
            queued: queued.into(),
            queued_bytes: queued_bytes.into(),
            left: sent,
            left_bytes: sent_bytes,
            is_noqueue: qdisc.kind == "noqueue",
        })
    }
}

/// Reads a description of a discipline (`RTM_NEWQDISC`), without the header of netlink.
pub fn parse(body: &[u8]) -> Option<QueueCounters> {
    QueueCounters::of(&Qdisc::parse(body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_added_beside_and_behind_each_other() {
        let counters = |queued, left| QueueCounters {
            queued,
            queued_bytes: 100 * queued,
            left,
            left_bytes: 100 * u64::from(left),
            is_noqueue: false,
        };
        assert_eq!(
            counters(2, 100).and(&counters(5, u32::MAX)),
            QueueCounters {
                left_bytes: counters(0, 100).left_bytes + counters(0, u32::MAX).left_bytes,
                ..counters(7, 99)
            }
        );
        assert_eq!(
            counters(2, 100).followed_by(&counters(5, 90)),
            QueueCounters { left_bytes: 9_000, ..counters(7, 90) }
        );
    }
}
