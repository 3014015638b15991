//! Passes states from samplers to a session that asks for them. Reads no clock and no socket, so
//! that tests run it in virtual time.

use freshline_core::session::{
    self, KeyError, MAX_STREAMS, Need, RecordError, RecordsView, StateTooLarge, TopicId,
};
use freshline_core::unit::Time;

use super::TooLarge;
use super::sampler::{Sampler, StampError, Supplied, Supply, Take};

/// The states that a source sends.
pub(crate) struct Feed {
    /// One input, or one per topic; empty with a supply.
    inputs: Vec<Input>,
    /// The supply of discovered topics, and whether it had nothing yet.
    supply: Option<(Box<dyn Supply>, bool)>,
    state: Vec<u8>,
    /// Troubles that have not been reported.
    troubles: Vec<Trouble>,
}

/// The origin of the states of a source, or of one of its topics.
struct Input {
    topic: Option<TopicId>,
    /// Whether its states are sent before the law's next time.
    is_urgent: bool,
    sampler: Box<dyn Sampler>,
    /// For a topic of records.
    records: Option<Records>,
    /// Whether the sampler had nothing yet, and will wake the source.
    awaits_waker: bool,
    /// A sampler that has failed is not asked before this time.
    rests_until: Option<Time>,
    /// It has ended, which was reported, or has failed permanently.
    over: Option<Result<(), String>>,
}

/// The statistics of an input's records.
#[derive(Default)]
struct Records {
    put: u64,
    refused: u64,
    /// A record for which the session has no room yet.
    kept: Option<(Time, Vec<u8>)>,
}

/// The statistics of a topic's records.
pub(super) struct RecordTally {
    /// Records that the session has accepted.
    pub(super) put: u64,
    /// Records that were left out.
    pub(super) refused: u64,
    /// Records that were read but not accepted yet.
    pub(super) queued: usize,
}

/// Why there is no usable new state.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// No sample could be taken.
    NoSample(String),
    /// One of several topics has no more states: its stream has ended, or failed.
    TopicOver { topic: TopicId, why: Option<String> },
    /// A state is longer than the source sends.
    TooLarge(TooLarge),
    /// A state of a key is invalid.
    Key { topic: TopicId, why: KeyError },
    /// Records cannot be sent.
    Record { topic: TopicId, why: RecordError },
    /// A generation time was not used; without topics, `topic` is `None`.
    Stamp { topic: Option<TopicId>, why: StampError },
}

/// An input's answer to a request for the next state.
enum Said {
    /// It was put.
    Put,
    /// Records were put, but no state.
    Records,
    /// It will wake the source.
    NotYet,
    NotBefore(Time),
    RetryAt(Time),
    Ended,
}

impl Feed {
    /// Uses samplers that were started: one, or one per topic of the session.
    pub(crate) fn new(samplers: Vec<Box<dyn Sampler>>, session: &session::Source) -> Self {
        let topics = session.topics().map(|(topic, params)| {
            (Some(topic), params.is_urgent, params.kind.is_every().then(Records::default))
        });
        let topics = topics.chain([(None, false, None)]);
        let inputs = samplers.into_iter().zip(topics);
        let inputs = inputs.map(|(sampler, (topic, is_urgent, records))| Input {
            topic,
            is_urgent,
            sampler,
            records,
            awaits_waker: false,
            rests_until: None,
            over: None,
        });
        let inputs = inputs.collect();
        Self { inputs, supply: None, state: Vec::new(), troubles: Vec::new() }
    }

    /// Uses the states of discovered topics.
    pub(crate) fn supplied_by(supply: Box<dyn Supply>) -> Self {
        let supply = Some((supply, false));
        Self { inputs: Vec::new(), supply, state: Vec::new(), troubles: Vec::new() }
    }

    /// The session wants a state: asks the samplers for states.
    ///
    /// # Errors
    /// The reason why a sampler has failed permanently, when all have ended.
    pub(crate) fn answer(
        &mut self,
        now: Time,
        need: Need,
        session: &mut session::Source,
    ) -> Result<Vec<Trouble>, String> {
        if let Some((supply, awaits_waker)) = &mut self.supply {
            let supplied = supply.supply(now, need, session);
            *awaits_waker = supplied != Supplied::Put;
            if let Supplied::RetryAt(time) = supplied {
                session.ask_again_at(time);
            }
            return Ok(Vec::new());
        }
        let (mut has_put, mut again_at) = (false, None);
        let mut troubles = std::mem::take(&mut self.troubles);
        let (mut fails, mut has_more) = (false, false);
        for input in &mut self.inputs {
            let said = input.take(now, need, &mut self.state, session, &mut troubles);
            has_more |= !matches!(said, Said::Ended);
            match said {
                Said::Put => has_put = true,
                Said::Records | Said::NotYet | Said::Ended => {}
                Said::NotBefore(time) => again_at = Time::earliest([again_at, Some(time)]),
                Said::RetryAt(time) => {
                    (again_at, fails) = (Time::earliest([again_at, Some(time)]), true);
                }
            }
        }
        if !has_more {
            // Records that were read are not lost if the stream fails later.
            let is_waiting = |records: RecordsView| records.done < records.next;
            let are_waiting =
                session.topics().filter_map(|(topic, _)| session.records(topic)).any(is_waiting);
            if !are_waiting {
                self.failure().map_or(Ok(()), Err)?;
            }
            session.finish();
        } else if let Some(time) = again_at.filter(|_| !has_put) {
            session.ask_again_at(time);
            if fails && session.keep_alive_at().is_some_and(|at| at <= now) {
                session.repeat();
            }
        }
        Ok(troubles)
    }

    /// Why one of the samplers has failed permanently, if all have ended.
    pub(crate) fn failure(&self) -> Option<String> {
        let are_over = self.inputs.iter().all(|input| input.over.is_some());
        self.inputs.iter().find_map(Input::failure).filter(|_| are_over)
    }

    /// Whether [`Feed::on_woken`] may have something to do.
    pub(crate) fn awaits_waker(&self) -> bool {
        let may_put =
            |input: &Input| input.awaits_waker || input.is_urgent || input.records.is_some();
        self.supply.is_some() || self.inputs.iter().any(may_put)
    }

    /// A sampler has woken the source; returns whether a state was awaited. The sampler is asked
    /// again when an update is due; an urgent state and records are put now.
    pub(crate) fn on_woken(&mut self, now: Time, session: &mut session::Source) -> bool {
        let Self { inputs, supply, state, troubles } = self;
        let mut is_awaited = supply.as_mut().is_some_and(|(supply, awaits_waker)| {
            std::mem::take(awaits_waker) | supply.supply_records(now, session)
        });
        // All samplers, because the waker does not identify the sampler.
        for input in inputs {
            is_awaited |= std::mem::take(&mut input.awaits_waker);
            if input.is_urgent || input.records.is_some() {
                // Other results are returned again when states are wanted.
                let said = input.take(now, Need::Newer, state, session, troubles);
                is_awaited |= matches!(said, Said::Put | Said::Records);
            }
        }
        if is_awaited {
            session.ask_again();
        }
        is_awaited
    }

    /// Takes the troubles that have not been reported.
    pub(super) fn take_troubles(&mut self) -> Vec<Trouble> {
        std::mem::take(&mut self.troubles)
    }

    /// More records of a topic are done.
    pub(crate) fn on_records_done(
        &mut self,
        now: Time,
        topic: TopicId,
        session: &mut session::Source,
    ) {
        let Self { inputs, supply, state, troubles } = self;
        if let Some(((supply, _), records)) = supply.as_mut().zip(session.records(topic)) {
            supply.on_records_done(topic, &records);
            // There may be room now for records that found none.
            supply.supply_records(now, session);
            return;
        }
        let Some(input) = inputs.iter_mut().find(|input| input.topic == Some(topic)) else {
            return;
        };
        if let Some(records) = session.records(topic) {
            input.sampler.on_records(now, &records);
        }
        if input.records.as_ref().is_some_and(|records| records.kept.is_some()) {
            // Other results are returned again when states are wanted.
            let _ = input.take(now, Need::Newer, state, session, troubles);
        }
    }

    /// The statistics of a topic's records; `None` if the topic is not of records.
    pub(super) fn records(&self, topic: TopicId) -> Option<RecordTally> {
        let input = self.inputs.iter().find(|input| input.topic == Some(topic))?;
        let Records { put, refused, kept } = input.records.as_ref()?;
        let queued = input.sampler.queued() + usize::from(kept.is_some());
        Some(RecordTally { put: *put, refused: *refused, queued })
    }

    /// The number of unused generation times of a topic, or of a source without topics; `None` if
    /// the states have none.
    pub(super) fn invalid_stamps(&self, topic: Option<TopicId>) -> Option<u64> {
        self.inputs.iter().find(|input| input.topic == topic)?.sampler.invalid_stamps()
    }
}

impl Input {
    fn take(
        &mut self,
        now: Time,
        need: Need,
        state: &mut Vec<u8>,
        session: &mut session::Source,
        troubles: &mut Vec<Trouble>,
    ) -> Said {
        if let Some(at) = self.rests_until.filter(|at| *at > now) {
            return Said::RetryAt(at);
        }
        if self.failure().is_some() {
            return Said::Ended;
        }
        let (taken, has_put) = match self.records {
            Some(_) => self.take_records(now, need, state, session, troubles),
            None => self.take_keys(now, need, state, session, troubles),
        };
        let topic = self.topic;
        let stamps = self.sampler.take_stamp_errors().into_iter();
        troubles.extend(stamps.map(|why| Trouble::Stamp { topic, why }));
        self.awaits_waker = matches!(taken, Take::NotYet | Take::NotBefore(_));
        match taken {
            // The next call takes the stream's end.
            Take::NotYet | Take::End if has_put && self.records.is_some() => Said::Records,
            Take::Key { .. } | Take::NotYet | Take::End if has_put => Said::Put,
            Take::Sample { .. } | Take::Key { .. } if self.records.is_some() => {
                self.end(Err("its sampler gives states, and its records count".into()), troubles)
            }
            Take::Record { .. } | Take::Refused { .. } => {
                self.end(Err("its sampler gives records, and its states count".into()), troubles)
            }
            Take::Key { .. } => Said::NotYet,
            Take::Sample { generated_at } => {
                session.handle_label_error(self.sampler.label_error());
                troubles.extend(self.put(now, generated_at, state, session));
                Said::Put
            }
            Take::NotYet => Said::NotYet,
            Take::NotBefore(time) => Said::NotBefore(time),
            Take::RetryAt(time, why) => {
                // A sampler without topics is not asked before this time anyway.
                self.rests_until = Some(time).filter(|_| self.topic.is_some());
                troubles.push(Trouble::NoSample(why));
                Said::RetryAt(time)
            }
            Take::End => self.end(Ok(()), troubles),
            Take::Failed(why) => self.end(Err(why), troubles),
        }
    }

    /// Passes on the states of keys, as many as possible; returns the result that follows them, and
    /// whether there were states.
    fn take_keys(
        &mut self,
        now: Time,
        need: Need,
        state: &mut Vec<u8>,
        session: &mut session::Source,
        troubles: &mut Vec<Trouble>,
    ) -> (Take, bool) {
        let mut has_put = false;
        for _ in 0..MAX_STREAMS {
            state.clear();
            let taken = self.sampler.take(now, need, state);
            let Take::Key { generated_at, key, is_removed } = taken else {
                return (taken, has_put);
            };
            let topic = self.topic.unwrap_or(TopicId::FIRST);
            let before = session.counters().too_large;
            let put = match is_removed {
                true => session.remove_key(now, topic, &key).map(drop),
                false => session.put_keyed(now, topic, &key, generated_at, state),
            };
            has_put |= put.is_ok();
            match put {
                Err(KeyError::TooLarge(StateTooLarge { given, max })) => {
                    let is_news = session.counters().too_large > before;
                    let trouble = Trouble::TooLarge(TooLarge { given, max });
                    troubles.extend(is_news.then_some(trouble));
                }
                Err(why) => troubles.push(Trouble::Key { topic, why }),
                Ok(()) => {}
            }
        }
        (Take::NotYet, has_put)
    }

    /// Passes on records, as many as there are and the session has room for; returns the result
    /// that follows them, and whether there were records.
    fn take_records(
        &mut self,
        now: Time,
        need: Need,
        state: &mut Vec<u8>,
        session: &mut session::Source,
        troubles: &mut Vec<Trouble>,
    ) -> (Take, bool) {
        let Self { topic, sampler, records, .. } = self;
        let (topic, records) = (topic.unwrap_or(TopicId::FIRST), records.get_or_insert_default());
        let mut has_put = false;
        loop {
            state.clear();
            let generated_at = match records.kept.take() {
                Some((generated_at, record)) => {
                    *state = record;
                    generated_at
                }
                None => match sampler.take(now, need, state) {
                    Take::Record { generated_at } => generated_at,
                    Take::Refused { count, why } => {
                        records.refused += count;
                        troubles.push(Trouble::Record { topic, why });
                        continue;
                    }
                    taken => return (taken, has_put),
                },
            };
            match session.put_record(now, topic, generated_at, state) {
                Ok(_) => (records.put, has_put) = (records.put + 1, true),
                Err(RecordError::Full { .. }) => {
                    records.kept = Some((generated_at, std::mem::take(state)));
                    return (Take::NotYet, has_put);
                }
                Err(why) => {
                    records.refused += 1;
                    troubles.push(Trouble::Record { topic, why });
                }
            }
            if let Some(view) = session.records(topic) {
                sampler.on_records(now, &view);
            }
        }
    }

    fn end(&mut self, how: Result<(), String>, troubles: &mut Vec<Trouble>) -> Said {
        if let Some(topic) = self.topic.filter(|_| self.over.is_none()) {
            troubles.push(Trouble::TopicOver { topic, why: how.clone().err() });
        }
        self.over = Some(how);
        Said::Ended
    }

    /// Why it has failed permanently.
    fn failure(&self) -> Option<String> {
        self.over.clone()?.err()
    }

    /// Passes the state on; reports a state that is too long, but the same state only once.
    fn put(
        &self,
        now: Time,
        generated_at: Time,
        state: &[u8],
        session: &mut session::Source,
    ) -> Option<Trouble> {
        let before = session.counters().too_large;
        let put = match self.topic {
            Some(topic) => session.put_topic(now, topic, generated_at, state),
            None => session.put(now, generated_at, state),
        };
        let StateTooLarge { given, max } = put.err()?;
        let is_news = session.counters().too_large > before;
        is_news.then_some(Trouble::TooLarge(TooLarge { given, max }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use crate::waker::Waker;
    use freshline_core::session::{Monitor, MonitorParams, Secret, SourceEvent, SourceParams};
    use freshline_core::source::Fixed;
    use freshline_core::unit::{Span, UpdateRate};
    use freshline_core::wire::Message;

    use super::*;
    use crate::clock::Clock;

    /// A state that the test sets; if a time is set, the sampler has no state between the first
    /// second and that time.
    struct Set(Arc<Mutex<Vec<u8>>>, Option<Time>);

    impl Sampler for Set {
        fn start(&mut self, _clock: Clock, _waker: Arc<Waker>) -> std::io::Result<()> {
            Ok(())
        }

        fn take(&mut self, now: Time, _need: Need, into: &mut Vec<u8>) -> Take {
            if let Some(time) = self.1.filter(|_| now > Time::ZERO + Span::from_secs(1)) {
                return Take::NotBefore(time);
            }
            into.extend_from_slice(&self.0.lock().unwrap());
            Take::Sample { generated_at: now }
        }
    }

    struct World {
        now: Time,
        state: Arc<Mutex<Vec<u8>>>,
        feed: Feed,
        source: session::Source,
        monitor: Monitor<u8>,
        /// Whether updates arrive.
        is_up: bool,
        /// The updates sent.
        sent: Vec<Vec<u8>>,
    }

    impl World {
        /// 100 updates/s, without delays.
        fn new(on_change: bool) -> Self {
            let state = Arc::new(Mutex::new(b"shut".to_vec()));
            let keep_alive = Span::from_secs(1);
            let params = SourceParams { on_change, keep_alive, ..SourceParams::default() };
            let law = Box::new(Fixed::new(UpdateRate::saturating(100.0)));
            let source = session::Source::new(params, Secret::new([1; 16]), law, Time::ZERO);
            let source = source.expect("no name");
            Self {
                now: Time::ZERO,
                feed: Feed::new(vec![Box::new(Set(Arc::clone(&state), None))], &source),
                state,
                source,
                monitor: Monitor::new(MonitorParams::default(), Secret::new([2; 16])),
                is_up: true,
                sent: Vec::new(),
            }
        }

        /// Runs for this many ms; returns the updates sent.
        fn run(&mut self, millis: u64) -> Vec<Vec<u8>> {
            let end = self.now + Span::from_millis(millis);
            self.sent.clear();
            loop {
                self.now = self.source.poll_timeout().expect("it goes on").max(self.now);
                if self.now > end {
                    self.now = end;
                    return self.sent.clone();
                }
                self.turn();
            }
        }

        fn turn(&mut self) {
            let now = self.now;
            self.source.handle_timeout(now);
            while let Some(event) = self.source.poll_event() {
                if let SourceEvent::StateWanted(need) = event {
                    let trouble = self.feed.answer(now, need, &mut self.source);
                    assert!(trouble.as_ref().is_ok_and(Vec::is_empty), "{trouble:?}");
                }
            }
            let mut out = Vec::new();
            while let Some(transmit) = self.source.poll_transmit(now, &mut out) {
                let update = &out[..transmit.len];
                let Ok(Message::Update(it)) = Message::parse(update) else { panic!("{update:?}") };
                self.sent.push(it.frames.state().expect("a state").1.to_vec());
                if self.is_up {
                    self.monitor.handle_datagram(now, 1, update).expect("an update");
                    let mut reply = Vec::new();
                    if let Some(answer) = self.monitor.poll_transmit(now, &mut reply) {
                        let reply = &reply[..answer.len];
                        let _ = self.source.handle_datagram(now, transmit.path, reply);
                    }
                }
            }
        }

        fn set(&mut self, state: &[u8]) {
            *self.state.lock().unwrap() = state.to_vec();
        }
    }

    #[test]
    fn an_unchanged_state_is_left_out_but_for_keep_alives() {
        let mut world = World::new(true);
        world.run(100);
        assert_eq!(world.run(10_000).len(), 10);
        assert!(world.source.counters().unchanged > 900, "it is sampled at the law's rate");
        assert!(World::new(false).run(10_000).len() >= 1_000, "without the flag each is sent");
    }

    #[test]
    fn a_feed_has_something_to_do_for_a_waker_only_while_it_awaits_one() {
        let mut world = World::new(false);
        let late = Time::ZERO + Span::from_secs(3600);
        let set = Box::new(Set(Arc::clone(&world.state), Some(late)));
        world.feed = Feed::new(vec![set], &world.source);
        world.run(500);
        assert!(!world.feed.awaits_waker(), "the sampler has states");
        world.run(1_000);
        assert!(world.feed.awaits_waker(), "the sampler has no states");
    }

    #[test]
    fn a_state_that_comes_after_many_keep_alives_does_not_stop_them() {
        let mut world = World::new(false);
        let late = Time::ZERO + Span::from_secs(3600);
        let set = Box::new(Set(Arc::clone(&world.state), Some(late)));
        world.feed = Feed::new(vec![set], &world.source);
        assert!(world.run(1_000).len() >= 100);
        assert_eq!(world.run(10_500), vec![b"shut".to_vec(); 10], "one each second");
        assert_eq!(world.source.counters().opened, 1);
    }

    #[test]
    fn a_change_leaves_with_the_next_look_and_once() {
        let mut world = World::new(true);
        world.run(1_500);
        for state in [&b"open"[..], b"shut"] {
            world.set(state);
            assert_eq!(world.run(20), [state]);
            assert!(world.run(300).is_empty());
        }
    }

    #[test]
    fn a_change_that_is_lost_is_repeated_at_the_laws_rate() {
        let mut world = World::new(true);
        world.run(1_500);
        world.is_up = false;
        world.set(b"open");
        assert!((20..=21).contains(&world.run(205).len()));
        world.is_up = true;
        assert_eq!(world.run(300), [b"open"]);
    }
}
