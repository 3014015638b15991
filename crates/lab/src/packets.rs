//! Packets of downlinks as received by their clients: training data for estimators of frames.

use freshline_core::unit::Time;

use crate::scenario::{Scenario, ScenarioError};
use crate::world::PacketSeen;

/// The packets of one downlink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packets {
    /// The name of its flow in the scenario.
    pub flow: String,
    /// The number of the flow among equal ones, from 0.
    pub number: usize,
    /// In the order of arrival, after the warm-up.
    pub seen: Vec<PacketSeen>,
}

/// Runs a scenario once. Returns the packets of all its downlinks.
///
/// # Errors
/// The scenario cannot be built.
pub fn packets(scenario: &Scenario, run: u32) -> Result<Vec<Packets>, ScenarioError> {
    let mut built = scenario.build(run)?;
    let world = &mut built.world;
    world.run_until(Time::ZERO + scenario.warm_up);
    world.begin_measuring();
    for downlink in world.downlinks_mut() {
        downlink.keep_packets();
    }
    world.run_until(Time::ZERO + scenario.duration);
    let mut all = Vec::new();
    for (config, range) in scenario.flows.iter().zip(built.flows) {
        for (number, flow) in built.world.flows()[range].iter().enumerate() {
            if let Some(downlink) = flow.flow.downlink() {
                let seen = downlink.packets().to_vec();
                all.push(Packets { flow: config.name.clone(), number, seen });
            }
        }
    }
    Ok(all)
}
