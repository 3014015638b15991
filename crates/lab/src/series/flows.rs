//! The lines of flows in time series.

use std::io::{self, Write};

use freshline_core::age::{AgeProcess, BacklogProcess, Integral};
use freshline_core::unit::{Bytes, Span, Time};
use freshline_core::wlan::{Belief, Bottleneck};

use crate::scenario::MultipathConfig;
use crate::world::{
    Cross, Downlink, Exchange, External, Multipath, Stream, TopicsFlow, UpdateFlow,
};

/// Where the running sums of a flow are at a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mark {
    age: Integral,
    backlog: Integral,
    /// Updates sent, for a flow of updates.
    sent: u64,
    delivered: Bytes,
    /// Of an exchange, its responses; of a downlink, its packets and their delays; of external datagrams, those
    /// that arrived.
    round_trips: u64,
    round_trip_sum: Span,
    /// Of a source with topics, their weighted ages in s and how many are stale.
    topics: (f64, usize),
    /// Of a stream over several paths, payload delivered over each.
    by_path: [Bytes; MultipathConfig::MAX_PATHS],
}

/// What a flow did in an interval.
pub(super) struct Gained {
    pub(super) before: Mark,
    pub(super) after: Mark,
    pub(super) interval: Span,
}

/// A flow that has a table of its own.
pub(super) trait Tabled {
    /// The columns behind the time and the number of the flow.
    fn columns(&self) -> &'static str;

    /// Where its running sums are now.
    fn mark(&self, now: Time) -> Mark;

    /// Writes what it did in an interval, behind `front`: the time and its number.
    fn write_line(&self, gained: &Gained, front: &str, out: &mut impl Write) -> io::Result<()>;
}

impl Tabled for UpdateFlow {
    fn columns(&self) -> &'static str {
        "age_s,updates_per_s,backlog,rtt_s"
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

    fn write_line(&self, gained: &Gained, front: &str, out: &mut impl Write) -> io::Result<()> {
        let sent = (gained.after.sent - gained.before.sent) as f64;
        let rate = sent / gained.interval.as_secs_f64();
        let backlog = BacklogProcess::mean_between(gained.before.backlog, gained.after.backlog);
        let (age, rtt) = (seconds(gained.age(self.age())), seconds(gained.rtt()));
        writeln!(out, "{front},{age},{rate},{},{rtt}", known(backlog))
    }
}

impl Tabled for Box<TopicsFlow> {
    fn columns(&self) -> &'static str {
        "weighted_age_s,updates_per_s,rtt_s,stale"
    }

    fn mark(&self, now: Time) -> Mark {
        let (round_trips, round_trip_sum) = self.round_trips();
        let (sent, topics) = (self.sent(), self.present(now));
        Mark { sent, round_trips, round_trip_sum, topics, ..Mark::default() }
    }

    fn write_line(&self, gained: &Gained, front: &str, out: &mut impl Write) -> io::Result<()> {
        let sent = (gained.after.sent - gained.before.sent) as f64;
        let rate = sent / gained.interval.as_secs_f64();
        let (age, stale) = gained.after.topics;
        writeln!(out, "{front},{age},{rate},{},{stale}", seconds(gained.rtt()))
    }
}

impl Tabled for Stream {
    fn columns(&self) -> &'static str {
        "age_s,goodput_bps,cwnd_packets,srtt_s,rtt_s,queued_bytes,buffer_bytes"
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

    fn write_line(&self, gained: &Gained, front: &str, out: &mut impl Write) -> io::Result<()> {
        let (age, goodput) = (seconds(gained.age(self.age())), gained.bps());
        let (window, srtt) = (self.sender().window().get(), seconds(self.sender().srtt()));
        let (rtt, buffer) = (seconds(gained.rtt()), self.sender().buffer());
        let (queued, size) = (buffer.queued.get(), buffer.size.get());
        writeln!(out, "{front},{age},{goodput},{window},{srtt},{rtt},{queued},{size}")
    }
}

impl Tabled for Multipath {
    fn columns(&self) -> &'static str {
        "path,goodput_bps,cwnd_packets,srtt_s,device_queue_packets,held_bytes"
    }

    fn mark(&self, _now: Time) -> Mark {
        let mut by_path = [Bytes::ZERO; MultipathConfig::MAX_PATHS];
        let subflows = self.sender().subflows().len();
        for (path, delivered) in by_path.iter_mut().enumerate().take(subflows) {
            *delivered = self.receiver().delivered_by(path);
        }
        Mark { by_path, ..Mark::default() }
    }

    /// A line per path.
    fn write_line(&self, gained: &Gained, front: &str, out: &mut impl Write) -> io::Result<()> {
        let sender = self.sender();
        for (path, subflow) in sender.subflows().iter().enumerate() {
            let bytes = gained.after.by_path[path] - gained.before.by_path[path];
            let goodput = bytes.get() as f64 * 8.0 / gained.interval.as_secs_f64();
            let window = subflow.sender().window().get();
            let srtt = seconds(subflow.sender().srtt());
            let (device, held) = (subflow.device().queue().packets, sender.held().get());
            writeln!(out, "{front},{},{goodput},{window},{srtt},{device},{held}", path + 1)?;
        }
        Ok(())
    }
}

impl Tabled for Exchange {
    fn columns(&self) -> &'static str {
        "responses_per_s,response_s,goodput_bps"
    }

    fn mark(&self, _now: Time) -> Mark {
        let (round_trips, round_trip_sum) = self.response_times();
        let delivered = self.responses().delivered();
        Mark { round_trips, round_trip_sum, delivered, ..Mark::default() }
    }

    fn write_line(&self, gained: &Gained, front: &str, out: &mut impl Write) -> io::Result<()> {
        let complete = (gained.after.round_trips - gained.before.round_trips) as f64;
        let rate = complete / gained.interval.as_secs_f64();
        writeln!(out, "{front},{rate},{},{}", seconds(gained.rtt()), gained.bps())
    }
}

impl Tabled for Downlink {
    fn columns(&self) -> &'static str {
        "rate_bps,level,target,delay_s,goodput_bps,overhead_s,slowest_target,control_level,place"
    }

    fn mark(&self, _now: Time) -> Mark {
        let (round_trips, round_trip_sum) = self.delays();
        Mark { round_trips, round_trip_sum, delivered: self.delivered(), ..Mark::default() }
    }

    fn write_line(&self, gained: &Gained, front: &str, out: &mut impl Write) -> io::Result<()> {
        let (level, target) = (known(self.level()), known(self.target()));
        let (rate, delay) = (self.rate().as_bps(), seconds(gained.rtt()));
        let Belief { overhead, slowest_target, control_level } = self.belief();
        let (overhead, control_level) = (seconds(overhead), known(control_level));
        let (slowest, place) = (known(slowest_target), place(self.bottleneck()));
        let goodput = gained.bps();
        writeln!(
            out,
            "{front},{rate},{level},{target},{delay},{goodput},{overhead},{slowest},{control_level},{place}"
        )
    }
}

impl Tabled for Cross {
    fn columns(&self) -> &'static str {
        "throughput_bps"
    }

    fn mark(&self, _now: Time) -> Mark {
        Mark { delivered: self.delivered(), ..Mark::default() }
    }

    fn write_line(&self, gained: &Gained, front: &str, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{front},{}", gained.bps())
    }
}

impl Tabled for External {
    fn columns(&self) -> &'static str {
        "datagrams_per_s"
    }

    fn mark(&self, _now: Time) -> Mark {
        Mark { round_trips: self.arrivals(), ..Mark::default() }
    }

    fn write_line(&self, gained: &Gained, front: &str, out: &mut impl Write) -> io::Result<()> {
        let arrived = gained.after.round_trips - gained.before.round_trips;
        writeln!(out, "{front},{}", arrived as f64 / gained.interval.as_secs_f64())
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

    fn bps(&self) -> f64 {
        let bytes = self.after.delivered - self.before.delivered;
        bytes.get() as f64 * 8.0 / self.interval.as_secs_f64()
    }
}

/// The answer of a locator; empty where there is none.
fn place(bottleneck: Option<Bottleneck>) -> &'static str {
    match bottleneck {
        Some(Bottleneck::Wireless) => "wireless",
        Some(Bottleneck::Backhaul) => "backhaul",
        None => "",
    }
}

fn seconds(span: Option<Span>) -> String {
    known(span.map(Span::as_secs_f64))
}

pub(super) fn known(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}
