//! The memory of sent updates, by their numbers.

use alloc::collections::VecDeque;

use crate::unit::{Span, Time};

/// The minimum number of remembered updates, however old they are.
const FEWEST: usize = 64;

/// The minimum number of remembered updates of the last [`RECENT`] time: acks may overtake
/// each other by that much.
const RECENT_UPDATES: usize = 1024;

const RECENT: Span = Span::from_secs(1);

/// The maximum number of remembered updates: 10,000 updates per second over a round trip of 3 s. An
/// ack of an older update is timed from the time that it carries, and its payload counts as zero
/// bytes.
const MOST: usize = 1 << 15;

/// One update as it was sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SentUpdate {
    /// When the whole state in it was sampled; `None` if it carries none.
    pub(super) generated_at: Option<Time>,
    pub(super) sent_at: Time,
    /// The bytes of the whole state in it.
    pub(super) payload_len: u32,
    /// All bytes of content: states, parts, records.
    pub(super) len: u32,
}

/// The newest updates: those in flight and the recent ones, within [`FEWEST`] and [`MOST`].
#[derive(Debug)]
pub(super) struct SentUpdates {
    /// Up to number `next_seq − 1`.
    sent: VecDeque<SentUpdate>,
    next_seq: u64,
}

impl SentUpdates {
    pub(super) fn new() -> Self {
        Self { sent: VecDeque::new(), next_seq: 0 }
    }

    /// The number of the next update.
    pub(super) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The next update is sent; all up to `acked` have been answered or overtaken.
    pub(super) fn push(&mut self, sent: SentUpdate, acked: Option<u64>) {
        self.next_seq += 1;
        let in_flight = self.next_seq - acked.map_or(0, |acked| acked + 1);
        let keep = usize::try_from(in_flight).unwrap_or(MOST).clamp(FEWEST, MOST);
        // Two at most, so that a backlog that empties at once costs no update much time.
        for _ in 0..2 {
            let Some(oldest) = self.sent.front().filter(|_| self.sent.len() >= keep) else { break };
            let is_recent = sent.sent_at.since(oldest.sent_at) < RECENT;
            if is_recent && self.sent.len() < RECENT_UPDATES {
                break;
            }
            self.sent.pop_front();
        }
        self.sent.push_back(sent);
    }

    /// The last update that was sent.
    pub(super) fn last(&self) -> Option<&SentUpdate> {
        self.sent.back()
    }

    /// Update `seq`; `None` if it is forgotten, or was never sent.
    pub(super) fn get(&self, seq: u64) -> Option<&SentUpdate> {
        let back = usize::try_from(self.next_seq.checked_sub(seq)?).ok()?;
        self.sent.get(self.sent.len().checked_sub(back)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Update `seq` of a source that sends one per ms.
    fn sent(seq: u64) -> SentUpdate {
        let sent_at = Time::ZERO + Span::from_millis(seq);
        SentUpdate { payload_len: seq as u32, sent_at, ..SentUpdate::default() }
    }

    /// The oldest remembered number after `updates` updates, each acknowledged when `in_flight`
    /// later ones have been sent.
    fn oldest(updates: u64, in_flight: u64) -> u64 {
        let mut memory = SentUpdates::new();
        for seq in 0..updates {
            memory.push(sent(seq), seq.checked_sub(in_flight));
            assert_eq!(memory.get(seq).map(|sent| sent.payload_len), Some(seq as u32));
        }
        assert!(memory.get(updates).is_none(), "not sent yet");
        (0..updates).find(|seq| memory.get(*seq).is_some()).expect("some")
    }

    #[test]
    fn the_updates_in_flight_are_remembered_within_bounds() {
        assert_eq!(oldest(10, 2), 0);
        assert_eq!(oldest(5_000, 2), 4_000, "those of the last second");
        assert_eq!(oldest(20_000, 7_000), 20_000 - 7_000);
        assert_eq!(oldest(100_000, 100_000), 100_000 - MOST as u64);
    }

    #[test]
    fn a_source_that_sends_rarely_remembers_few_updates() {
        let mut memory = SentUpdates::new();
        for seq in 0..5_000 {
            memory.push(
                SentUpdate { sent_at: Time::ZERO + Span::from_millis(100 * seq), ..sent(seq) },
                Some(seq),
            );
        }
        assert_eq!(memory.sent.len(), FEWEST);
        assert!(memory.sent.capacity() <= 2 * FEWEST);
    }
}
