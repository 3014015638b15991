//! The topics of a source in addition to its states.

use freshline_core::session::{Source, StreamId, TopicId, TopicParams};
use freshline_core::unit::Time;
use freshline_core::wire::SessionId;

use super::keys::{self, Keys};
use super::ledger::Ledger;
use super::log::{self, Log};
use super::plan::SourcePlan;
use super::stops::{self, Stops};

/// The application's records, keys and urgent states in addition to its states, over all processes.
#[derive(Debug)]
pub(super) struct Topics {
    pub(super) log: Option<Log>,
    keys: Option<Keys>,
    stops: Option<Stops>,
}

impl Topics {
    pub(super) fn new(plan: &SourcePlan) -> Self {
        Self {
            // Ids need not differ between sources: a stream is identified by its source's name as
            // well.
            log: plan.records.then(|| Log::new(StreamId(1))),
            keys: plan.keys.then(|| Keys::new(plan.large)),
            stops: plan.urgent.then(|| Stops::new(plan.hurries)),
        }
    }

    /// A new process of the source.
    pub(super) fn begin(&mut self, source: Source, name: &str, now: Time) -> Source {
        let log = self.log.as_ref().map(Log::params);
        let keys = self.keys.as_mut().map(|keys| {
            keys.begin();
            Keys::params()
        });
        let stops = self.stops.as_mut().map(|stops| {
            stops.begin();
            stops.params()
        });
        let further: Vec<_> = [log, keys, stops].into_iter().flatten().collect();
        if further.is_empty() {
            return source;
        }
        let all = [TopicParams::new("state")].into_iter().chain(further).collect();
        let mut source = source.with_topics(all).expect("they are legal");
        if let Some(log) = &self.log {
            let topic = id(&source, log::TOPIC);
            log.put_again(&mut source, topic, name, now);
        }
        source
    }

    /// The source has put its state number `states`.
    pub(super) fn follow(
        &mut self,
        source: &mut Source,
        (process, states): (SessionId, u64),
        (now, local): (Time, Time),
        ledger: &mut Ledger,
    ) {
        if let Some(log) = &mut self.log {
            let topic = id(source, log::TOPIC);
            log.follow(source, topic, states, local);
        }
        if let Some(keys) = &mut self.keys {
            let topic = id(source, keys::TOPIC);
            keys.follow((source, topic), (process, states), (now, local), ledger);
        }
        if let Some(stops) = &mut self.stops {
            stops.follow(source, states, local);
        }
    }

    /// When [`Topics::handle_timeout`] is due, by the clock of the source.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.stops.as_ref().and_then(Stops::due)
    }

    /// Puts the urgent states that are due.
    pub(super) fn handle_timeout(
        &mut self,
        source: &mut Source,
        process: SessionId,
        (now, local): (Time, Time),
        ledger: &mut Ledger,
    ) {
        if let Some(stops) = &mut self.stops {
            let topic = id(source, stops::TOPIC);
            stops.put((source, topic), process, (now, local), ledger);
        }
    }

    /// The application at the monitor has received more records.
    pub(super) fn forget_done(&mut self, source: &Source) {
        if let Some(log) = &mut self.log {
            log.forget_done(source, id(source, log::TOPIC));
        }
    }
}

/// The topic with this name.
pub(super) fn id(source: &Source, name: &str) -> TopicId {
    let mut topics = source.topics();
    topics.find(|(_, params)| params.name == name).expect("it is declared").0
}
