//! The ages of flows, and the deliveries that reset them.

use freshline_core::unit::Time;

use super::{AgeRecord, Flow, Period, World};

impl World {
    /// From now on the deliveries that reset an age are recorded: of flows of updates, with and without
    /// topics, and of TCP streams over one path.
    pub fn record_ages(&mut self) {
        for routed in &mut self.flows {
            match &mut routed.flow {
                Flow::Updates(updates) => updates.record_ages(),
                Flow::Topics(topics) => topics.record_ages(),
                Flow::Stream(stream) => stream.record_ages(),
                Flow::Multipath(_)
                | Flow::Exchange(_)
                | Flow::Downlink(_)
                | Flow::Cross(_)
                | Flow::External(_) => {}
            }
        }
    }
}

impl Flow {
    /// The period in which its age is measured in a run that is at `now`; `None` for a flow without
    /// an age.
    pub fn age_period(&self, now: Time) -> Option<Period> {
        match self {
            Self::Updates(updates) => Some(updates.age_period(now)),
            Self::Topics(topics) => Some(topics.age_period(now)),
            Self::Stream(stream) => Some(stream.age_period(now)),
            Self::Multipath(_)
            | Self::Exchange(_)
            | Self::Downlink(_)
            | Self::Cross(_)
            | Self::External(_) => None,
        }
    }

    /// The ages that [`World::record_ages`] recorded of this flow: one, or one per topic and key.
    pub fn ages(&self) -> Vec<AgeRecord<'_>> {
        let one = |deliveries| vec![AgeRecord { topic: "", key: None, deliveries }];
        match self {
            Self::Updates(updates) => one(updates.deliveries()),
            Self::Topics(topics) => topics.deliveries().collect(),
            Self::Stream(stream) => one(stream.deliveries()),
            Self::Multipath(_)
            | Self::Exchange(_)
            | Self::Downlink(_)
            | Self::Cross(_)
            | Self::External(_) => Vec::new(),
        }
    }
}
