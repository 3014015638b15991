//! A source with topics of records: putting records, and finding out which ones are done.

use super::ahead::Ahead;
use super::states::Asking;
use super::{RecordError, RecordsView, Source, TopicError, TopicId, TopicParams};
use crate::unit::{Bytes, Span, Time};
use crate::wire::{Frame, RecordChunk, TopicName};

/// The part of the burst of `max_bandwidth` that records leave free, so that a state can follow at
/// once.
const RESERVE: Bytes = Bytes::new(2_400);

/// Turns that records took because there was no state.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// When the last update was sent, if it was such a turn.
    since: Option<Time>,
    /// The total time by which states were sent early because records had taken a turn.
    debt: Ahead,
}

impl Lent {
    /// An update is sent that the law's pace allows at `due`; `is_lending` if it is a turn of
    /// records.
    pub(super) fn on_update(&mut self, now: Time, due: Time, period: Span, is_lending: bool) {
        match self.since.is_some() && now < due {
            true => self.debt.on_early(now, due, period),
            false => self.debt.on_late(now, due, period),
        }
        self.since = is_lending.then_some(now);
    }
}

impl Source {
    /// The next record of a topic of kind [`TopicKind::Every`](super::TopicKind), generated at
    /// `generated_at` on the source's clock, with the rules of [`Source::put`]. It is held until
    /// the application at the monitor has received it. Returns its first number; all numbers below
    /// [`RecordsView::next`] belong to records up to this one.
    ///
    /// # Errors
    /// [`RecordError`] if the topic is not of records, if the record is too long, or if there is no
    /// room for it now. Then nothing changes.
    pub fn put_record(
        &mut self,
        now: Time,
        topic: TopicId,
        generated_at: Time,
        record: &[u8],
    ) -> Result<u64, RecordError> {
        self.topics.put_record(topic, generated_at.min(now), record)
    }

    /// The maximum length of a record for which there is room now; 0 also if there is no room for
    /// an empty one, and if the topic is not of records.
    pub fn record_room(&self, topic: TopicId) -> usize {
        self.topics.records(topic).map_or(0, |records| records.room())
    }

    /// The application at the monitor has received all chunks of records with lower numbers. Never
    /// decreases; 0 if the topic is not of records.
    pub fn records_done(&self, topic: TopicId) -> u64 {
        self.topics.records(topic).map_or(0, |records| records.done())
    }

    /// The records of a topic; `None` if it is not of records.
    pub fn records(&self, topic: TopicId) -> Option<RecordsView> {
        self.topics.records(topic).map(|records| records.view())
    }

    /// When a state may be sent that the law's pace allows at `due`: earlier if the last update
    /// carried records because there was no state.
    pub(super) fn not_lent(&self, due: Time) -> Time {
        let since = self.lent.since.map(|since| since.max(self.not_before()));
        since.map_or(due, |since| since.min(due))
    }

    /// From when on records, or a request for a cursor, may be sent if no state is.
    pub(super) fn records_at(&self) -> Option<Time> {
        let at = self.topics.records_at().filter(|_| self.opener.is_open())?;
        Some(at.max(self.records_not_before()?))
    }

    /// Whether records may be sent now without a state: the driver has been asked for a state, or
    /// has reported that it has no state, or the limit of states does not allow one yet.
    pub(super) fn are_records_due(&self, now: Time) -> bool {
        let is_answered = match self.states.asking() {
            Asking::Asked(_) => true,
            Asking::NotBefore(time) => time > now || self.is_ahead(now),
            Asking::ByLaw | Asking::Wanted(_) => self.is_ahead(now),
        };
        is_answered && self.records_at().is_some_and(|at| at <= now)
    }

    fn records_not_before(&self) -> Option<Time> {
        let debt = self.lent.debt.debt(self.law.rate().period());
        let by_law = self.law.next_part_at()? + debt + self.late_by();
        Some(by_law.max(self.law.affordable_with(RESERVE)))
    }

    /// A chunk of a record of this topic fits into an update with the opening and the topic's name.
    pub(super) fn check_room_for_records(&self, params: &TopicParams) -> Result<(), TopicError> {
        let overhead = TopicName::MAX_LEN_OF_STREAM + Frame::MAX_OVERHEAD_OF_RECORD;
        let (needed, room) = (overhead + RecordChunk::MAX_LEN, self.room(0));
        if params.kind.is_every() && needed > room {
            let name = params.name.clone();
            return Err(TopicError::NoRoomForRecords { name, needed, room });
        }
        Ok(())
    }
}
