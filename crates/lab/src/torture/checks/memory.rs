//! The monitor's memory is bounded: by its cap, by the payloads, and in time, since silent sources
//! are forgotten. Every record that ever existed is accounted for.

use freshline_core::session::MonitorParams;
use freshline_core::unit::Span;

use super::Check;
use crate::torture::hosts::Hosts;
use crate::torture::plan::Plan;
use crate::torture::source_host::MAX_WHOLE;

pub(super) struct Memory {
    max_sources: usize,
    max_payload: usize,
    max_large: usize,
    /// The maximum silence before a record is forgotten: `idle`, and at most as long again.
    max_silence: Span,
}

impl Memory {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            max_sources: plan.monitor.max_sources,
            max_payload: MonitorParams::default().max_payload,
            max_large: plan.monitor.max_large,
            // Waking up in 64 steps adds a rounding error each.
            max_silence: plan.monitor.idle * 2 + Span::from_millis(1),
        }
    }
}

impl Check for Memory {
    fn property(&self) -> &'static str {
        "memory is bounded"
    }

    fn on_step(&mut self, hosts: &Hosts) -> Result<(), String> {
        let Some(monitor) = hosts.monitor.monitor() else { return Ok(()) };
        let records = monitor.len();
        if records > self.max_sources {
            return Err(format!("{records} records, {} are allowed", self.max_sources));
        }
        let counted = monitor.counters();
        let ended = counted.closed + counted.expired + counted.superseded;
        if counted.opened != ended + records as u64 {
            return Err(format!("{records} records, but {counted:?}"));
        }
        if let Some(wrong) = hosts.monitor.wrong_return() {
            return Err(wrong);
        }
        for record in hosts.monitor.records() {
            let silence = hosts.monitor.silence(hosts.now, record);
            if silence > self.max_silence {
                return Err(format!("{:?} is held though silent for {silence}", record.session));
            }
            if record.payload_memory() > self.max_payload {
                return Err(format!("{:?}: too long a state is held", record.session));
            }
        }
        let large = hosts.monitor.records().map(|record| record.payload_memory());
        let large: usize = large.filter(|capacity| *capacity > MAX_WHOLE).sum();
        let counted = monitor.large_memory();
        if large > counted || counted > self.max_large {
            let max = self.max_large;
            return Err(format!("{large} bytes of large states, {counted} counted, {max} allowed"));
        }
        Ok(())
    }
}
