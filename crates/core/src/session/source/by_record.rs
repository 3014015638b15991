//! A source with topics of which each record counts: what its driver hands in, and what has arrived.

use super::{RecordError, RecordsView, Source, TopicError, TopicId};
use crate::unit::Time;
use crate::wire::{Frame, RecordChunk, TopicName};

impl Source {
    /// The next record of a topic of kind [`TopicKind::Every`](super::TopicKind), generated at `generated_at` on
    /// the source's clock. It is held until the application at the monitor has got it. Gives its first number;
    /// all below [`RecordsView::next`] are of records up to this one.
    ///
    /// # Errors
    /// [`RecordError`] if the topic is not of records, if the record is too long, or if there is no room for it
    /// now. Then nothing changes.
    pub fn put_record(
        &mut self,
        now: Time,
        topic: TopicId,
        generated_at: Time,
        record: &[u8],
    ) -> Result<u64, RecordError> {
        self.topics.put_record(topic, generated_at.min(now), record)
    }

    /// How many bytes a record can have for which there is room now; 0 also if there is no room for an empty
    /// one, and if the topic is not of records.
    pub fn record_room(&self, topic: TopicId) -> usize {
        self.topics.records(topic).map_or(0, |records| records.room())
    }

    /// The application at the monitor has got all chunks of records with lower numbers. It only grows; 0 if the
    /// topic is not of records.
    pub fn records_done(&self, topic: TopicId) -> u64 {
        self.topics.records(topic).map_or(0, |records| records.done())
    }

    /// The records of a topic; `None` if it is not of records.
    pub fn records(&self, topic: TopicId) -> Option<RecordsView> {
        self.topics.records(topic).map(|records| records.view())
    }

    /// A chunk of a record fits into an update with the opening and the topic's name.
    pub(super) fn check_records(&self) -> Result<(), TopicError> {
        let overhead = TopicName::MAX_LEN_OF_STREAM + Frame::MAX_OVERHEAD_OF_RECORD;
        let (needed, room) = (overhead + RecordChunk::MAX_LEN, self.room(0));
        let mut topics = self.topics().filter(|(_, params)| params.kind.is_every());
        match topics.next().filter(|_| needed > room) {
            Some((_, params)) => {
                let name = params.name.clone();
                Err(TopicError::NoRoomForRecords { name, needed, room })
            }
            None => Ok(()),
        }
    }
}
