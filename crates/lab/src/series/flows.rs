//! The lines of flows in time series.

use std::io;

use freshline_core::age::{AgeProcess, BacklogProcess, Integral};
use freshline_core::unit::{Bytes, Span, Time};
use freshline_core::wlan::{Belief, Bottleneck};

use super::table::{Table, Value};
use crate::scenario::MultipathConfig;
use crate::world::{
    Cross, Downlink, Exchange, External, Multipath, Stream, TopicsFlow, UpdateFlow,
};

/// The running sums of a flow at one time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mark {
    age: Integral,
    backlog: Integral,
    /// Updates sent, for a flow of updates.
    sent: u64,
    delivered: Bytes,
    /// For an exchange, its responses; for a downlink, its packets and their delays; for external
    /// datagrams, the number of arrivals.
    round_trips: u64,
    round_trip_sum: Span,
    /// For a source with topics, their weighted ages in s, and the number of stale topics.
    topics: (f64, usize),
    /// For a stream over several paths, the payload delivered over each.
    by_path: [Bytes; MultipathConfig::MAX_PATHS],
}

/// The changes of a flow's sums in an interval.
pub(super) struct Gained {
    pub(super) before: Mark,
    pub(super) after: Mark,
    pub(super) interval: Span,
}

/// The first values of a line: the time, and the number of the flow.
type Front = [Value; 2];

/// A flow that has its own table.
pub(super) trait Tabled {
    /// The columns after the time and the number of the flow.
    fn columns(&self) -> &'static [&'static str];

    /// The present values of its running sums.
    fn mark(&self, now: Time) -> Mark;

    /// Adds its line or lines for an interval, after `front`: the time and its number.
    fn add_lines(&self, gained: &Gained, front: Front, out: &mut impl Table) -> io::Result<()>;
}

impl Tabled for UpdateFlow {
    fn columns(&self) -> &'static [&'static str] {
        &["age_s", "updates_per_s", "backlog", "rtt_s"]
    }

    fn mark(&self, now: Time) -> Mark {
        let (round_trips, round_trip_sum) = self.round_trips();
        let now = self.measured_until(now);
        Mark {
            age: self.age().mark(now),
            backlog: self.backlog().mark(now),
            sent: self.sent(),
            round_trips,
            round_trip_sum,
            ..Mark::default()
        }
    }

    fn add_lines(
        &self,
        gained: &Gained,
        [time, number]: Front,
        out: &mut impl Table,
    ) -> io::Result<()> {
        let rate = gained.updates_per_s();
        let backlog = BacklogProcess::mean_between(gained.before.backlog, gained.after.backlog);
        let (age, rtt) = (gained.age(self.age()), gained.rtt());
        out.line(&[time, number, age.into(), rate.into(), backlog.into(), rtt.into()])
    }
}

impl Tabled for Box<TopicsFlow> {
    fn columns(&self) -> &'static [&'static str] {
        &["weighted_age_s", "updates_per_s", "rtt_s", "stale"]
    }

    fn mark(&self, now: Time) -> Mark {
        let (round_trips, round_trip_sum) = self.round_trips();
        let (sent, topics) = (self.sent(), self.present(now));
        Mark { sent, round_trips, round_trip_sum, topics, ..Mark::default() }
    }

    fn add_lines(
        &self,
        gained: &Gained,
        [time, number]: Front,
        out: &mut impl Table,
    ) -> io::Result<()> {
        let rate = gained.updates_per_s();
        let (age, stale) = gained.after.topics;
        let (rtt, stale) = (gained.rtt(), stale as u64);
        out.line(&[time, number, age.into(), rate.into(), rtt.into(), stale.into()])
    }
}

impl Tabled for Stream {
    fn columns(&self) -> &'static [&'static str] {
        &["age_s", "goodput_bps", "cwnd_packets", "srtt_s", "rtt_s", "queued_bytes", "buffer_bytes"]
    }

    fn mark(&self, now: Time) -> Mark {
        let stats = self.sender().stats();
        Mark {
            age: self.age().mark(self.measured_until(now)),
            delivered: self.delivered(),
            round_trips: stats.rtt_samples,
            round_trip_sum: stats.rtt_sum,
            ..Mark::default()
        }
    }

    fn add_lines(
        &self,
        gained: &Gained,
        [time, number]: Front,
        out: &mut impl Table,
    ) -> io::Result<()> {
        let (sender, buffer) = (self.sender(), self.sender().buffer());
        out.line(&[
            time,
            number,
            gained.age(self.age()).into(),
            gained.bps().into(),
            sender.window().get().into(),
            sender.srtt().into(),
            gained.rtt().into(),
            buffer.queued.get().into(),
            buffer.size.get().into(),
        ])
    }
}

impl Tabled for Multipath {
    fn columns(&self) -> &'static [&'static str] {
        &["path", "goodput_bps", "cwnd_packets", "srtt_s", "device_queue_packets", "held_bytes"]
    }

    fn mark(&self, _now: Time) -> Mark {
        let mut by_path = [Bytes::ZERO; MultipathConfig::MAX_PATHS];
        let subflows = self.sender().subflows().len();
        for (path, delivered) in by_path.iter_mut().enumerate().take(subflows) {
            *delivered = self.receiver().delivered_by(path);
        }
        Mark { by_path, ..Mark::default() }
    }

    /// One line per path.
    fn add_lines(
        &self,
        gained: &Gained,
        [time, number]: Front,
        out: &mut impl Table,
    ) -> io::Result<()> {
        let sender = self.sender();
        for (path, subflow) in sender.subflows().iter().enumerate() {
            let bytes = gained.after.by_path[path] - gained.before.by_path[path];
            let goodput = bytes.get() as f64 * 8.0 / gained.interval.as_secs_f64();
            out.line(&[
                time,
                number,
                (path as u64 + 1).into(),
                goodput.into(),
                subflow.sender().window().get().into(),
                subflow.sender().srtt().into(),
                subflow.device().queue().packets.into(),
                sender.held().get().into(),
            ])?;
        }
        Ok(())
    }
}

impl Tabled for Exchange {
    fn columns(&self) -> &'static [&'static str] {
        &["responses_per_s", "response_s", "goodput_bps"]
    }

    fn mark(&self, _now: Time) -> Mark {
        let (round_trips, round_trip_sum) = self.response_times();
        let delivered = self.responses().delivered();
        Mark { round_trips, round_trip_sum, delivered, ..Mark::default() }
    }

    fn add_lines(
        &self,
        gained: &Gained,
        [time, number]: Front,
        out: &mut impl Table,
    ) -> io::Result<()> {
        let complete = (gained.after.round_trips - gained.before.round_trips) as f64;
        let rate = complete / gained.interval.as_secs_f64();
        out.line(&[time, number, rate.into(), gained.rtt().into(), gained.bps().into()])
    }
}

impl Tabled for Downlink {
    fn columns(&self) -> &'static [&'static str] {
        &[
            "rate_bps",
            "level",
            "target",
            "delay_s",
            "goodput_bps",
            "overhead_s",
            "slowest_target",
            "control_level",
            "place",
        ]
    }

    fn mark(&self, _now: Time) -> Mark {
        let (round_trips, round_trip_sum) = self.delays();
        Mark { round_trips, round_trip_sum, delivered: self.delivered(), ..Mark::default() }
    }

    fn add_lines(
        &self,
        gained: &Gained,
        [time, number]: Front,
        out: &mut impl Table,
    ) -> io::Result<()> {
        let Belief { overhead, slowest_target, control_level } = self.belief();
        out.line(&[
            time,
            number,
            self.rate().as_bps().into(),
            self.level().into(),
            self.target().into(),
            gained.rtt().into(),
            gained.bps().into(),
            overhead.into(),
            slowest_target.into(),
            control_level.into(),
            Value::Text(place(self.bottleneck())),
        ])
    }
}

impl Tabled for Cross {
    fn columns(&self) -> &'static [&'static str] {
        &["throughput_bps"]
    }

    fn mark(&self, _now: Time) -> Mark {
        Mark { delivered: self.delivered(), ..Mark::default() }
    }

    fn add_lines(
        &self,
        gained: &Gained,
        [time, number]: Front,
        out: &mut impl Table,
    ) -> io::Result<()> {
        out.line(&[time, number, gained.bps().into()])
    }
}

impl Tabled for External {
    fn columns(&self) -> &'static [&'static str] {
        &["datagrams_per_s"]
    }

    fn mark(&self, _now: Time) -> Mark {
        Mark { round_trips: self.arrivals(), ..Mark::default() }
    }

    fn add_lines(
        &self,
        gained: &Gained,
        [time, number]: Front,
        out: &mut impl Table,
    ) -> io::Result<()> {
        let arrived = gained.after.round_trips - gained.before.round_trips;
        let rate = arrived as f64 / gained.interval.as_secs_f64();
        out.line(&[time, number, rate.into()])
    }
}

impl Gained {
    fn age(&self, process: &AgeProcess) -> Option<Span> {
        process.mean_between(self.before.age, self.after.age)
    }

    fn rtt(&self) -> Option<Span> {
        let count = self.after.round_trips - self.before.round_trips;
        let sum = self.after.round_trip_sum - self.before.round_trip_sum;
        (count > 0).then(|| sum / count)
    }

    fn updates_per_s(&self) -> f64 {
        (self.after.sent - self.before.sent) as f64 / self.interval.as_secs_f64()
    }

    fn bps(&self) -> f64 {
        let bytes = self.after.delivered - self.before.delivered;
        bytes.get() as f64 * 8.0 / self.interval.as_secs_f64()
    }
}

/// The verdict of a locator; empty without a verdict.
fn place(bottleneck: Option<Bottleneck>) -> &'static str {
    match bottleneck {
        Some(Bottleneck::Wireless) => "wireless",
        Some(Bottleneck::Backhaul) => "backhaul",
        None => "",
    }
}
