//! How the device queue of a path is read, and its contents, for people and programs.

use std::fmt;

use freshline_core::path::DeviceQueue;
use freshline_core::unit::Span;
use serde::Serialize;

/// The means by which the queue of a device is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum SeenBy {
    /// The queueing discipline at the device's root (`RTM_GETQDISC`).
    #[serde(rename = "qdisc")]
    Discipline,
    /// The discipline, and the bytes in the driver's rings (byte queue limits).
    #[serde(rename = "qdisc+bql")]
    DisciplineAndRings,
    /// The bytes in the driver's rings alone: the device has no discipline.
    #[serde(rename = "bql")]
    Rings,
    /// The queues of a Wi-Fi device per station (nl80211), and the discipline in front of them.
    #[serde(rename = "nl80211")]
    Stations,
}

impl SeenBy {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Discipline => "qdisc",
            Self::DisciplineAndRings => "qdisc+bql",
            Self::Rings => "bql",
            Self::Stations => "nl80211",
        }
    }
}

/// The source of the time that packets spend in a device queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueingDelaySource {
    /// The kernel's stamp of each departure (`SO_TIMESTAMPING`).
    Stamps,
    /// Queued packets over dequeue rate, with the bytes in the driver's rings (byte queue limits).
    Bql,
    /// Queued packets over dequeue rate, without rings.
    Estimate,
}

impl QueueingDelaySource {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stamps => "stamps",
            Self::Bql => "bql",
            Self::Estimate => "estimate",
        }
    }
}

impl From<SeenBy> for QueueingDelaySource {
    fn from(seen_by: SeenBy) -> Self {
        match seen_by {
            SeenBy::DisciplineAndRings | SeenBy::Rings => Self::Bql,
            SeenBy::Discipline | SeenBy::Stations => Self::Estimate,
        }
    }
}

/// The device queue of a path, as its scheduler sees it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct QueueReport {
    /// How the queue is read; none if it cannot be read, and the scheduler uses round trips only.
    pub queue_source: Option<SeenBy>,
    /// Packets in the queue, of any program.
    pub queue_packets: Option<u64>,
    /// The dequeue rate in packets per second while packets are queued; none before the first
    /// departures.
    pub queue_rate_pps: Option<f64>,
    /// The queueing delay of a packet that is sent now, in ms: packets over rate.
    pub queueing_delay_ms: Option<f64>,
    /// The source of queueing delays; none if they are unknown, and count as zero.
    pub queueing_delay_source: Option<QueueingDelaySource>,
    /// The queueing delay of the packet that was acknowledged last, in ms, by its departure stamp.
    pub stamped_queueing_delay_ms: Option<f64>,
    /// The scheduler's estimate of the time from the device to the ack, in ms, if it has one (QAware).
    pub service_time_ms: Option<f64>,
}

impl QueueReport {
    /// The report of a queue as its path's scheduler sees it, with the scheduler's service time.
    pub fn of(seen_by: Option<SeenBy>, queue: Option<DeviceQueue>, service: Option<Span>) -> Self {
        let queue = queue.filter(|_| seen_by.is_some());
        Self {
            queue_source: seen_by,
            queue_packets: queue.map(|queue| queue.packets),
            queue_rate_pps: queue.map(|queue| queue.rate).filter(|rate| *rate > 0.0),
            queueing_delay_ms: queue.and_then(|queue| queue.wait()).map(Span::as_millis_f64),
            queueing_delay_source: seen_by.map(QueueingDelaySource::from),
            stamped_queueing_delay_ms: None,
            service_time_ms: service.map(Span::as_millis_f64),
        }
    }

    /// Adds the queueing delay of the last packet by its departure stamp, if such stamps arrive.
    #[must_use]
    pub fn with_stamps(self, wait: Option<Span>) -> Self {
        let queueing_delay_source =
            wait.map(|_| QueueingDelaySource::Stamps).or(self.queueing_delay_source);
        Self {
            queueing_delay_source,
            stamped_queueing_delay_ms: wait.map(Span::as_millis_f64),
            ..self
        }
    }
}

/// Formats it for a line of a table.
impl fmt::Display for QueueReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.queue_source, self.queue_packets) {
            (Some(by), Some(packets)) => write!(f, "queue {packets} ({})", by.name())?,
            _ => write!(f, "queue not seen")?,
        }
        if let Some(rate) = self.queue_rate_pps {
            write!(f, " {rate:.0}/s")?;
        }
        if let Some(wait) = self.queueing_delay_ms {
            write!(f, " wait {wait:.1} ms")?;
        }
        if let Some(wait) = self.stamped_queueing_delay_ms {
            write!(f, " stamped {wait:.1} ms")?;
        }
        if let Some(service) = self.service_time_ms {
            write!(f, " service {service:.1} ms")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_is_seen_is_shown_with_its_means_and_one_that_is_not_is_said_to_be_so() {
        let queue = DeviceQueue { packets: 6, rate: 500.0 };
        let service = Some(Span::from_millis(20));
        let report = QueueReport::of(Some(SeenBy::Discipline), Some(queue), service);
        assert_eq!(report.to_string(), "queue 6 (qdisc) 500/s wait 12.0 ms service 20.0 ms");
        let json = serde_json::to_value(report).unwrap();
        assert_eq!(json["queue_source"], "qdisc");
        assert_eq!(json["queue_rate_pps"], 500.0);
        assert_eq!(json["queueing_delay_source"], "estimate");
        let stamped = report.with_stamps(Some(Span::from_millis(11)));
        assert_eq!(
            stamped.to_string(),
            "queue 6 (qdisc) 500/s wait 12.0 ms stamped 11.0 ms service 20.0 ms"
        );
        assert_eq!(serde_json::to_value(stamped).unwrap()["queueing_delay_source"], "stamps");
        assert_eq!(report.with_stamps(None), report);
        let unseen = QueueReport::of(None, None, None);
        assert_eq!(unseen.to_string(), "queue not seen");
        assert_eq!(serde_json::to_value(unseen).unwrap()["queue_packets"], serde_json::Value::Null);
        // Blocked: packets are queued, and none has left yet.
        let blocked = DeviceQueue { packets: 6, rate: 0.0 };
        let report = QueueReport::of(Some(SeenBy::Rings), Some(blocked), None);
        assert_eq!(report.to_string(), "queue 6 (bql)");
        for by in [SeenBy::Discipline, SeenBy::DisciplineAndRings, SeenBy::Rings, SeenBy::Stations]
        {
            assert_eq!(serde_json::to_value(by).unwrap(), by.name());
            let waits_by = QueueingDelaySource::from(by);
            assert_eq!(serde_json::to_value(waits_by).unwrap(), waits_by.name());
        }
    }
}
