//! The topics of records in the record of a source.

use alloc::vec::Vec;

use super::{More, Record};
use crate::session::change::Change;
use crate::session::cursors::Cursor;
use crate::session::held::{Arrival, By, LargeStates};
use crate::session::streams::{NextRecord, TakenRecord};
use crate::session::topic_record::TopicRecord;
use crate::unit::Time;
use crate::wire::{Frame, TopicName, TopicStream, Update};

impl More {
    /// The name of a topic of records has arrived, with their stream.
    pub(super) fn on_stream(
        &mut self,
        source: &str,
        name: TopicName<'_>,
        stream: TopicStream,
        large: &mut LargeStates,
    ) -> Arrival {
        let has_name = |topic: &TopicRecord| topic.name() == name.name && topic.key().is_none();
        let is_named = self.topics.get(name.topic).is_some_and(has_name);
        let has_room =
            is_named && self.streams.announce((source, name.name), name.topic, stream, large);
        if has_room { Arrival::Part } else { Arrival::NoRoom }
    }
}

impl<P> Record<P> {
    /// An update has arrived, which may carry the clock offset.
    pub(super) fn note_clock_offset(&mut self, update: &Update<'_>, changes: &mut Vec<Change>) {
        if let Some(more) = &mut self.more {
            more.streams.note_clock_offset(update, changes);
        }
    }

    /// Notes the changes by a frame of a topic other than the first.
    pub(super) fn note_arrival(
        &mut self,
        topic: u16,
        arrival: Arrival,
        update: &Update<'_>,
        changes: &mut Vec<Change>,
    ) {
        match arrival {
            Arrival::Repeat { brings_age: true } => changes.push(Change::Aged(topic)),
            Arrival::Repeat { .. } => changes.push(Change::Repeated(topic)),
            Arrival::Fresh if update.clock_offset.is_none() => {
                self.more.get_or_insert_default().topics.lacks_ages();
            }
            Arrival::NoRoom => self.more.get_or_insert_default().topics.refuse(update.seq),
            _ => {}
        }
    }

    /// An update has arrived. If it carries the clock offset, the ages of states that arrived
    /// without it become known. Call it after the frames, so that it skips states that the update
    /// has replaced.
    pub(super) fn learn_ages(
        &mut self,
        update: &Update<'_>,
        received_at: Time,
        changes: &mut Vec<Change>,
    ) {
        if let Some(more) = &mut self.more {
            more.topics.learn_ages(&By { update, received_at }, changes);
        }
    }

    /// The source requests the cursor of a topic.
    pub(super) fn on_question(&mut self, topic: u16, large: &mut LargeStates) -> Arrival {
        self.more.get_or_insert_default().streams.sync((&self.name, topic), large);
        Arrival::Part
    }

    /// A copy of an update has arrived, or an update too old for the window. Its ack reports its
    /// arrival, so its records count.
    pub(super) fn on_late_records(
        &mut self,
        update: &Update<'_>,
        received_at: Time,
        large: &mut LargeStates,
    ) {
        let Some(more) = &mut self.more else { return };
        for frame in update.frames.iter().filter(|_| update.seq >= self.first_seq) {
            if let Frame::Record(chunk) = frame
                && more.streams.on_chunk(&By { update, received_at }, &chunk, large)
                    == Arrival::NoRoom
            {
                more.topics.refuse(update.seq);
            }
        }
    }

    /// Hands out the next record of a topic to the application.
    pub(in crate::session) fn next_record(
        &mut self,
        now: Time,
        topic: u16,
        large: &mut LargeStates,
    ) -> Option<TakenRecord> {
        self.more.as_mut()?.streams.next(now, (&self.name, topic), large)
    }

    /// The name of the topic of records with this number, which is [`Cursor::topic`]: if the number
    /// was renamed since, [`Record::topic`](Self::topic) has another name.
    pub fn record_topic(&self, number: u16) -> Option<&str> {
        self.more.as_ref()?.streams.name(number)
    }

    /// Information on the next record of a topic.
    pub(in crate::session) fn peek_record(
        &mut self,
        topic: u16,
        large: &mut LargeStates,
    ) -> Option<NextRecord> {
        self.more.as_mut()?.streams.peek((&self.name, topic), large)
    }

    /// The application has dropped records before processing them; returns whether their stream is
    /// here.
    pub(in crate::session) fn give_records_again(
        &mut self,
        cursor: &Cursor,
        large: &mut LargeStates,
    ) -> bool {
        let streams = self.more.as_mut().map(|more| &mut more.streams);
        streams.is_some_and(|streams| streams.give_again(cursor, &mut large.changes))
    }

    /// The application has processed records; returns whether their stream is here.
    pub(in crate::session) fn on_records_done(
        &mut self,
        cursor: &Cursor,
        large: &mut LargeStates,
    ) -> bool {
        self.more.as_mut().is_some_and(|more| more.streams.on_done(cursor, large))
    }
}
