//! Passes the newest states of a source, and its records, to its session at a destination.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use freshline_core::session::{
    self, MAX_STREAMS, Need, RecordsView, TopicId, TopicKind, TopicParams,
};
use freshline_core::unit::{Span, Time};

use super::records::New;
use super::states::{Changes, Relayed, State, Until, Which};
use crate::source::sampler::{Supplied, Supply};

/// The first retry of a state for which no key number was free: numbers of removed keys become free
/// when the destination has acknowledged the removal. Each failed retry doubles the pause, up to
/// [`MAX_RETRY`].
const RETRY: Span = Span::from_millis(100);
const MAX_RETRY: Span = Span::from_secs(30);

/// States for which no number was free.
#[derive(Default)]
struct Late {
    which: BTreeSet<Arc<Which>>,
    /// The time of the next retry, and the pause after it.
    at: Time,
    pause: Span,
}

impl Late {
    /// Removes the late states from the new ones; adds them again when their retry is due.
    fn sift(&mut self, now: Time, states: &mut Vec<(Arc<Which>, State)>, source: &Relayed) {
        states.retain(|(which, _)| !self.which.contains(which));
        if !self.which.is_empty() && now >= self.at {
            let held = source.states(&self.which);
            self.which = held.iter().map(|(which, _)| Arc::clone(which)).collect();
            states.extend(held);
        }
    }

    /// Schedules the next retry of the late states. If keys are removed, numbers become free soon.
    fn put_off(&mut self, now: Time, are_keys_removed: bool) {
        let is_new = self.which.is_empty() || are_keys_removed;
        let pause = if is_new { RETRY } else { (self.pause * 2).min(MAX_RETRY) };
        if self.which.is_empty() || now >= self.at {
            (self.at, self.pause) = (now + pause, pause);
        } else if are_keys_removed {
            (self.at, self.pause) = (self.at.min(now + pause), pause);
        }
    }
}

/// The states of one source, for one destination.
pub(super) struct Newest {
    source: Arc<Relayed>,
    /// The number of the destination.
    destination: usize,
    taken: Until,
    /// The chunk up to which records have been put, per topic.
    records: HashMap<Arc<str>, u64>,
    /// The maximum error by which generation times can be too late, of the new states and of the
    /// previous ones: one of the previous states may still be leaving in parts.
    label_errors: [Span; 2],
    /// The error that the session has been given, which includes the errors of records.
    label_error: Span,
    late: Late,
    /// By name.
    topics: HashMap<Arc<str>, TopicId>,
}

impl Newest {
    pub(super) fn new(source: Arc<Relayed>, destination: usize) -> Self {
        Self {
            source,
            destination,
            taken: Until::default(),
            records: HashMap::new(),
            label_errors: [Span::ZERO; 2],
            label_error: Span::ZERO,
            late: Late::default(),
            topics: HashMap::new(),
        }
    }

    /// Removes the keys of a topic that the source no longer has.
    fn remove_keys(&self, now: Time, topic: &Arc<str>, session: &mut session::Source) {
        let Some(id) = self.topics.get(topic) else { return };
        let missing = self.source.missing(topic, session.keys(*id).map(|key| key.key));
        for key in missing {
            // They are keys of this topic.
            let _ = session.remove_key(now, *id, &key);
        }
    }

    /// Puts a state; returns whether the session has room for it.
    fn put(
        &mut self,
        now: Time,
        which: &Which,
        state: &State,
        session: &mut session::Source,
    ) -> bool {
        let State { generated_at, bytes, .. } = state;
        // The session counts states that are too long.
        if which.topic.is_empty() {
            let _ = session.put(now, *generated_at, bytes);
            return true;
        }
        let kind = match which.key {
            None => TopicKind::Latest,
            Some(_) => TopicKind::Keyed { max_keys: MAX_STREAMS as u16 },
        };
        let Some(id) = self.topic(&which.topic, kind, session) else { return false };
        match &which.key {
            None => {
                let _ = session.put_topic(now, id, *generated_at, bytes);
                true
            }
            Some(key) => {
                let put = session.put_keyed(now, id, key, *generated_at, bytes);
                !matches!(put, Err(session::KeyError::TooMany { .. }))
            }
        }
    }

    /// The maximum error by which the generation time of anything in the session can be too late.
    fn known_label_error(&self) -> Span {
        let [new, former] = self.label_errors;
        new.max(former).max(self.source.records.label_error())
    }

    /// Finds or adds a topic. Weights and limits are local to the sender and unknown here.
    fn topic(
        &mut self,
        name: &Arc<str>,
        kind: TopicKind,
        session: &mut session::Source,
    ) -> Option<TopicId> {
        if let Some(id) = self.topics.get(name) {
            return Some(*id);
        }
        let params = TopicParams { kind, ..TopicParams::new(&**name) };
        let id = session.add_topic(params).ok()?;
        self.topics.insert(Arc::clone(name), id);
        Some(id)
    }
}

impl Supply for Newest {
    fn supply(&mut self, now: Time, need: Need, session: &mut session::Source) -> Supplied {
        // A session with topics resends the newest state of each topic itself.
        let is_again = need == Need::Newest && self.topics.is_empty();
        let number = if is_again { 0 } else { self.taken.number };
        let changes = self.source.changes(Until { number, ..self.taken });
        let Changes { mut states, removed, label_error, until } = changes;
        if !states.is_empty() {
            self.label_errors = [label_error, self.label_errors[0]];
        }
        self.taken = until;
        self.late.sift(now, &mut states, &self.source);
        self.supply_records(now, session);
        self.label_error = self.known_label_error();
        session.handle_label_error(self.label_error);
        for topic in &removed {
            self.remove_keys(now, topic, session);
        }
        let mut has_put = !removed.is_empty();
        self.late.put_off(now, !removed.is_empty());
        for (which, state) in states {
            if self.put(now, &which, &state, session) {
                has_put = true;
                self.late.which.remove(&which);
            } else {
                self.late.which.insert(which);
            }
        }
        match has_put {
            true => Supplied::Put,
            false if self.late.which.is_empty() => Supplied::NotYet,
            false => Supplied::RetryAt(self.late.at),
        }
    }

    fn supply_records(&mut self, now: Time, session: &mut session::Source) -> bool {
        let mut has_put = false;
        let label_error = self.known_label_error();
        if label_error > self.label_error {
            // Otherwise the next states report it.
            self.label_error = label_error;
            session.handle_label_error(label_error);
        }
        let new = self.source.records.after(self.destination, |it| self.records.get(it).copied());
        for New { topic, stream, records } in new {
            let Some(first) = records.first().map(|record| record.number) else { continue };
            let kind = TopicKind::Every { stream, first, max_bytes: TopicKind::DEFAULT_BYTES };
            let Some(id) = self.topic(&topic, kind, session) else { continue };
            for record in records {
                let Some(view) = session.records(id) else { break };
                let is_there = record.end <= view.next;
                if is_there {
                    // The destination has these records from before this session, as its cursor
                    // shows.
                    self.source.records.on_done(self.destination, &topic, view.done);
                } else {
                    let put = session.put_record(now, id, record.generated_at, &record.bytes);
                    if put.is_err() {
                        // A record window fits into the session, so the session is temporarily full
                        // of other records. No record is too long: the monitor would not hold it.
                        break;
                    }
                }
                self.records.insert(Arc::clone(&topic), record.end);
                has_put |= !is_there;
            }
        }
        has_put
    }

    fn on_records_done(&mut self, topic: TopicId, records: &RecordsView) {
        let name = self.topics.iter().find(|(_, id)| **id == topic).map(|(name, _)| name);
        if let Some(name) = name {
            self.source.records.on_done(self.destination, name, records.done);
        }
    }
}

#[cfg(test)]
mod tests {
    use freshline_core::session::{Secret, SourceParams};
    use freshline_core::source::Fixed;
    use freshline_core::state::Budget;
    use freshline_core::unit::UpdateRate;

    use super::super::states::tests::relayed;
    use super::*;

    #[test]
    fn a_state_for_which_no_number_is_free_is_put_again_ever_more_rarely_until_keys_are_removed() {
        let (source, budget) = (Arc::new(relayed()), &mut Budget::new(1 << 30));
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let put = |which: &Which, millis, budget: &mut Budget| {
            source.put(which, (at(millis), Span::ZERO), b"state", budget);
        };
        let key = |number: usize| Which::new("tf", Some(&number.to_be_bytes()));
        (1..MAX_STREAMS).for_each(|number| put(&key(number), 0, budget));
        put(&Which::new("pose", None), 0, budget);
        let law = Box::new(Fixed::new(UpdateRate::saturating(100.0)));
        let (params, secret) = (SourceParams::default(), Secret::new([1; 16]));
        let mut session = session::Source::new(params, secret, law, at(0)).expect("legal");
        let mut newest = Newest::new(Arc::clone(&source), 0);
        let mut supply = |millis| newest.supply(at(millis), Need::Newer, &mut session);
        assert_eq!(supply(0), Supplied::Put);
        // Topics use numbers, too: no number is left for the pose.
        for (now, again) in [(50, 100), (100, 300), (200, 300), (300, 700), (700, 1_500)] {
            assert_eq!(supply(now), Supplied::RetryAt(at(again)), "at {now} ms");
        }
        put(&key(1), 800, budget);
        assert_eq!(supply(800), Supplied::Put, "other states are not delayed");
        assert_eq!(supply(810), Supplied::RetryAt(at(1_500)));
        assert!(source.remove(&key(1), budget));
        assert_eq!(supply(820), Supplied::Put, "the removal");
        assert_eq!(supply(830), Supplied::RetryAt(at(920)), "numbers become free soon");
    }
}
