//! The output of `freshline advise`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::diagnose::queueing_delay;
use super::finding::{Direction, Fault, Finding, Stop};
use super::gain::Gain;
use super::observation::{Interface, Observation, Probe, median};
use super::remedy::{note, remedies};
use super::words::{mbit, printable, summary, with_unit};

/// `docs/json.md` describes each key.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    duration_s: f64,
    /// The place at which the most time is lost; null without a fault.
    stop: Option<Stop>,
    connections: usize,
    interfaces: Vec<InterfaceReport>,
    findings: Vec<FindingReport>,
    probes: Option<ProbeReport>,
}

#[derive(Debug, Serialize)]
struct InterfaceReport {
    interface: String,
    driver: Option<String>,
    wireless: bool,
    queue_discipline: String,
    link_bps: Option<f64>,
    sent_bps: f64,
    received_bps: f64,
    own_queueing_delay_ms: f64,
    own_queue_drops: u64,
}

#[derive(Debug, Serialize)]
struct FindingReport {
    stop: Stop,
    direction: Direction,
    fault: Fault,
    interface: Option<String>,
    summary: String,
    slowdown: f64,
    evidence: BTreeMap<&'static str, f64>,
    recommendation: Option<RemedyReport>,
    alternatives: Vec<RemedyReport>,
    withheld: Vec<RemedyReport>,
    note: Option<&'static str>,
}

/// A command with the results of the lab.
#[derive(Debug, Serialize)]
struct RemedyReport {
    command: String,
    note: Option<&'static str>,
    gain: Option<Gain>,
    /// Why it is not recommended.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct ProbeReport {
    sent: usize,
    answered: usize,
    rtt_p50_ms: Option<f64>,
    rtt_min_ms: Option<f64>,
}

impl Report {
    /// Tries the remedies of all findings in the lab.
    pub(super) fn new(seen: &Observation, findings: &[Finding]) -> Self {
        Self {
            duration_s: seen.seconds,
            stop: findings.first().map(|finding| finding.stop),
            connections: seen.connections.len(),
            interfaces: seen.interfaces.iter().map(InterfaceReport::new).collect(),
            findings: findings.iter().map(|finding| FindingReport::new(seen, finding)).collect(),
            probes: (!seen.probes.is_empty()).then(|| ProbeReport::new(&seen.probes)),
        }
    }

    /// Prints the report in plain words.
    pub(super) fn print(&self) -> io::Result<()> {
        let mut text = Vec::new();
        self.write(&mut text)?;
        io::stdout().lock().write_all(printable(&String::from_utf8_lossy(&text)).as_bytes())
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { duration_s, connections, .. } = self;
        writeln!(
            out,
            "observed for {duration_s:.1} s: {connections} TCP connections to other hosts"
        )?;
        for one in &self.interfaces {
            let InterfaceReport { interface, queue_discipline, own_queueing_delay_ms, .. } = one;
            writeln!(
                out,
                "  {interface}: sent {}, received {}, own queue ({queue_discipline}) \
                 {own_queueing_delay_ms:.0} ms",
                mbit(one.sent_bps),
                mbit(one.received_bps),
            )?;
        }
        if let Some(ProbeReport { sent, answered, rtt_p50_ms, .. }) = &self.probes {
            let rtt = rtt_p50_ms.map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
            writeln!(out, "  {answered} of {sent} probes answered, median round trip {rtt}")?;
        }
        if self.findings.is_empty() {
            let little = self.interfaces.iter().all(|it| it.sent_bps + it.received_bps < 20_000.0);
            writeln!(out, "\nno fault found")?;
            if little {
                writeln!(out, "There was hardly any traffic: run it while the network is slow.")?;
            }
        }
        self.findings.iter().try_for_each(|finding| finding.print(out))
    }
}

impl InterfaceReport {
    fn new(interface: &Interface) -> Self {
        Self {
            interface: interface.name.clone(),
            driver: interface.driver.clone(),
            wireless: interface.is_wireless,
            queue_discipline: interface.discipline.clone(),
            link_bps: interface.link_bps,
            sent_bps: interface.bps(|sample| sample.sent_bytes),
            received_bps: interface.bps(|sample| sample.received_bytes),
            own_queueing_delay_ms: queueing_delay(interface).unwrap_or_default() * 1e3,
            own_queue_drops: interface.difference(|sample| sample.drops),
        }
    }
}

impl FindingReport {
    fn new(seen: &Observation, finding: &Finding) -> Self {
        let tried = remedies(seen, finding).into_iter().map(|remedy| {
            let gain = remedy.trial.gain();
            let reason = match &gain {
                Some(gain) => gain.objection(),
                None => Some("the lab could not compute its gain".to_owned()),
            };
            RemedyReport { command: remedy.command, note: remedy.note, gain, reason }
        });
        let (mut good, withheld): (Vec<_>, Vec<_>) = tried.partition(|it| it.reason.is_none());
        // Among equal gains, the first remedy is preferred; gains of other quantities follow after
        // those of its own.
        let first = good.first().and_then(RemedyReport::what);
        good.sort_by(|one, other| {
            let [one, other] = [one, other].map(|it| (it.what() == first, it.worth()));
            other.0.cmp(&one.0).then(other.1.total_cmp(&one.1))
        });
        let mut good = good.into_iter();
        Self {
            stop: finding.stop,
            direction: finding.direction,
            fault: finding.fault,
            interface: finding.interface.clone(),
            summary: summary(finding),
            slowdown: finding.slowdown,
            evidence: finding.evidence.iter().map(|one| (one.name, one.value)).collect(),
            recommendation: good.next(),
            alternatives: good.collect(),
            withheld,
            note: note(seen, finding),
        }
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let at = self.interface.as_ref().map(|name| format!(", {name}")).unwrap_or_default();
        writeln!(out, "\ntime is lost at: {} ({}{at})", self.stop, self.direction)?;
        writeln!(out, "  {}", self.summary)?;
        for (name, value) in &self.evidence {
            writeln!(out, "    {name:<40} {value:>14.2}")?;
        }
        if let Some(remedy) = &self.recommendation {
            remedy.print(out, "do:")?;
        }
        self.alternatives.iter().try_for_each(|remedy| remedy.print(out, "or:"))?;
        for remedy in &self.withheld {
            let reason = remedy.reason.as_deref().unwrap_or_default();
            writeln!(out, "  not recommended: {}\n    {reason}", remedy.command)?;
        }
        self.note.map_or(Ok(()), |note| writeln!(out, "  {note}"))
    }
}

impl RemedyReport {
    /// The compared quantity.
    fn what(&self) -> Option<&'static str> {
        self.gain.as_ref().map(|gain| gain.what)
    }

    /// The gain in steps of a fifth, so that randomness does not decide between equal remedies.
    fn worth(&self) -> f64 {
        self.gain.as_ref().map_or(0.0, |gain| (gain.ratio.ln() * 5.0).round())
    }

    fn print(&self, out: &mut impl Write, what: &str) -> io::Result<()> {
        writeln!(out, "  {what} {}", self.command)?;
        if let Some(note) = self.note {
            writeln!(out, "    {note}")?;
        }
        let Some(gain) = &self.gain else { return Ok(()) };
        writeln!(
            out,
            "    in the lab: {} from {} to {}, {:.1} times better",
            gain.what,
            with_unit(gain.without, &gain.unit),
            with_unit(gain.with, &gain.unit),
            gain.ratio
        )?;
        gain.guard.as_ref().map_or(Ok(()), |guard| {
            let [without, with] =
                [guard.without, guard.with].map(|value| with_unit(value, &guard.unit));
            writeln!(out, "    in the lab: {} from {without} to {with}", guard.what)
        })
    }
}

impl ProbeReport {
    fn new(probes: &[Probe]) -> Self {
        let rtts: Vec<f64> = probes.iter().filter_map(|probe| probe.rtt).collect();
        Self {
            sent: probes.len(),
            answered: rtts.len(),
            rtt_min_ms: rtts.iter().copied().reduce(f64::min).map(|rtt| rtt * 1e3),
            rtt_p50_ms: median(rtts).map(|rtt| rtt * 1e3),
        }
    }
}
