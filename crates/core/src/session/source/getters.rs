//! The getters of a source.

use super::AckedUpdate;
use super::types::Cut;
use super::{KeyView, Reach, Source, SourceCounters, TopicCounters, TopicId, TopicParams};
use crate::age::{AgeMeter, AgeProcess, BacklogProcess};
use crate::dscp::Dscp;
use crate::path::PathId;
use crate::session::PathMarks;
use crate::session::clock_offset::ClockOffset;
use crate::session::cookie::SessionLabel;
use crate::session::paths::Paths;
use crate::source::{Limit, RateLaw};
use crate::state::Layout;
use crate::unit::Span;
use crate::wire::{self, Frame, SessionId, TopicName, Update};

impl Source {
    /// The session's id on the wire. It is secret: show [`Source::label`] instead.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The longest datagram that its transport carries, in bytes.
    pub fn max_datagram(&self) -> usize {
        self.params.max_datagram
    }

    /// Its updates ask for states of the return direction from now on, which a
    /// [`Receiver`](crate::session::Receiver) takes.
    pub fn want_return(&mut self) {
        self.params.wants_return = true;
    }

    /// The name under which it opens sessions; may be empty.
    pub fn name(&self) -> &str {
        &self.params.name
    }

    /// The public label of the session; the monitor has another label for it.
    pub fn label(&self) -> SessionLabel {
        self.secret.label(self.session)
    }

    /// Whether the monitor is known to receive updates.
    pub fn reach(&self) -> Reach {
        self.opener.reach()
    }

    /// The smoothed round trip; before the first ack, the time for which the first opening waits
    /// for one.
    pub(in crate::session) fn round_trip(&self) -> Span {
        self.acks.srtt().unwrap_or(self.params.first_wait)
    }

    /// The smoothed round trip of fresh acks (RFC 6298); `None` before the first.
    pub fn srtt(&self) -> Option<Span> {
        self.acks.srtt()
    }

    /// The rate law.
    pub fn law(&self) -> &dyn RateLaw {
        self.law.law()
    }

    /// The limit that at present restricts the law, if any.
    pub fn limited_by(&self) -> Option<Limit> {
        self.law.limited_by()
    }

    /// The age at the monitor as reported by acks: an upper bound, as an ack takes time. Not
    /// measured without [`SourceParams::measure_age`](super::SourceParams::measure_age), nor for a
    /// source with topics: each topic has its own, [`Source::topic_age`].
    pub fn age(&self) -> &AgeMeter {
        self.acks.age()
    }

    /// Updates sent and not yet acknowledged.
    pub fn backlog(&self) -> &BacklogProcess {
        self.acks.backlog()
    }

    /// Its paths.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The offset of the monitor's clock against the source's.
    pub fn clock_offset(&self) -> &ClockOffset {
        self.acks.clock_offset()
    }

    /// The code point of updates with a whole state in an open session.
    pub fn dscp(&self) -> Dscp {
        self.params.dscp
    }

    /// Whether a path preserves code points; `None` if there is no such path.
    pub fn marks(&self, path: PathId) -> Option<&PathMarks> {
        self.marks.of(path)
    }

    /// The longest state in bytes: [`SourceParams::max_state`](super::SourceParams::max_state), or
    /// the content of the maximum number of symbols, if that is less.
    pub fn max_state(&self) -> usize {
        let in_parts = usize::from(self.symbol_len()).saturating_mul(Layout::MAX_SYMBOLS as usize);
        self.params.max_state.min(in_parts.max(self.max_whole()))
    }

    /// The longest state that one update carries, in bytes.
    pub fn max_whole(&self) -> usize {
        self.room(Frame::MAX_OVERHEAD + self.name_len())
    }

    /// How states are cut into several updates.
    pub(super) fn cut(&self) -> Cut {
        Cut { symbol_len: self.symbol_len(), has_repair: self.params.repair }
    }

    /// The length of a symbol of a state that takes several updates.
    pub(super) fn symbol_len(&self) -> u16 {
        let room = self.room(Frame::MAX_OVERHEAD_OF_PART + self.name_len());
        room.min(Layout::MAX_SYMBOL_LEN.into()) as u16 & !1
    }

    /// Room for the name of the topic that leads an update.
    fn name_len(&self) -> usize {
        match (self.topics.has_any(), self.topics.have_keys()) {
            (false, _) => 0,
            (true, false) => TopicName::MAX_LEN,
            (true, true) => TopicName::MAX_LEN_OF_KEY,
        }
    }

    /// The room for content in an update with an opening and `overhead` further bytes: in the
    /// datagram, and in the field of its length.
    pub(super) fn room(&self, overhead: usize) -> usize {
        let opening = 18 + self.params.name.len() + self.params.token.len();
        let frames = self.params.max_datagram.saturating_sub(Update::HEADER_LEN + opening);
        frames.min(u16::MAX.into()).saturating_sub(overhead)
    }

    /// Whether [`Source::finish`] was called.
    pub fn is_finishing(&self) -> bool {
        self.states.has_ended()
    }

    /// Whether [`Source::finish`] was called, and the monitor has the last state.
    pub fn has_finished(&self) -> bool {
        let has_arrived = self.repeat_at().is_none()
            && !self.transfers.is_incomplete()
            && self.topics.are_delivered();
        let has_state = self.states.has_last() || self.topics.has_state();
        self.is_finishing() && (!has_state || has_arrived)
    }

    // ---- topics ----

    /// Its topics, in the order of [`Source::with_topics`].
    pub fn topics(&self) -> impl Iterator<Item = (TopicId, &TopicParams)> {
        let ids = (0..self.topics.len()).map(|number| TopicId(number as u8));
        ids.filter_map(|id| Some((id, self.topics.params(id)?)))
    }

    /// The keys of a topic that are not removed, in the order of their bytes.
    pub fn keys(&self, topic: TopicId) -> impl Iterator<Item = KeyView<'_>> {
        self.topics.keys(topic)
    }

    /// The age of a topic at the monitor as acks report it: an upper bound, as an ack takes time.
    /// `None` if there is no such topic; of a topic with keys each has its own, [`Source::keys`].
    pub fn topic_age(&self, topic: TopicId) -> Option<&AgeProcess> {
        self.topics.age(topic)
    }

    /// The counters of a topic, of all its keys together; `None` if there is no such topic.
    pub fn topic_counters(&self, topic: TopicId) -> Option<TopicCounters> {
        self.topics.counters(topic)
    }

    /// The counters.
    pub fn counters(&self) -> &SourceCounters {
        &self.counters
    }

    /// The newest update that is acknowledged.
    pub fn newest_acked(&self) -> Option<AckedUpdate> {
        self.acks.newest()
    }

    /// The freshest ack, with the monitor's counts.
    pub fn newest_ack(&self) -> Option<&wire::Ack> {
        self.acks.last()
    }
}
