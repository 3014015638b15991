//! What a record has of topics of which each record counts.

use super::{More, Record};
use crate::session::cursors::Cursor;
use crate::session::held::{Arrival, LargeStates};
use crate::session::streams::TakenRecord;
use crate::session::topic_record::TopicRecord;
use crate::unit::Time;
use crate::wire::{TopicName, TopicStream};

impl More {
    /// The name of a topic of records has come, with their stream.
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
    /// The next record of a topic, which the application gets.
    pub(in crate::session) fn next_record(
        &mut self,
        now: Time,
        topic: u16,
        large: &mut LargeStates,
    ) -> Option<TakenRecord> {
        self.more.as_mut()?.streams.next(now, (&self.name, topic), large)
    }

    /// The application is done with records; whether their stream is here.
    pub(in crate::session) fn on_records_done(
        &mut self,
        cursor: &Cursor,
        large: &mut LargeStates,
    ) -> bool {
        self.more.as_mut().is_some_and(|more| more.streams.on_done(cursor, large))
    }
}
