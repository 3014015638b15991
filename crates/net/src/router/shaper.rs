//! What a router does when it is awake: packets from the gate into the discipline, and out of the
//! transmitter through the gate.

use std::io::{self, ErrorKind};

use freshline_core::link::{Hop, LinkParams};
use freshline_core::router::{
    Classifier, Discipline, Drop, QdiscConfig, RouterReport, WaitingReport,
};
use freshline_core::unit::{BitRate, Packets, Span, Time};
use nix::errno::Errno;
use rand_pcg::Pcg64;

use super::gate::{Arrived, Gate, Held};
use super::ledger::Ledger;
use super::order::{Order, OrderError};
use crate::clock::Clock;

/// How many packets are read before what is due leaves.
const READS: usize = 32;
/// How many such rounds a turn may have before others are looked after.
const ROUNDS: usize = 16;

/// How a shaper is set.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) device: String,
    /// Above zero.
    pub(super) rate: BitRate,
    pub(super) queue: QdiscConfig,
}

/// A packet of a gate as it waits.
type Waiting<G> = Held<<G as Gate>::Ticket>;

/// A discipline in front of a transmitter in real time.
pub(super) struct Shaper<G: Gate> {
    clock: Clock,
    start: Time,
    settings: Settings,
    classifier: Classifier,
    gate: G,
    hop: Hop<Discipline<Waiting<G>>, Waiting<G>, Pcg64>,
    ledger: Ledger,
    /// Whether the gate may have more to read. The poll tells of it once.
    is_readable: bool,
    arrivals: Vec<Arrived<G::Ticket>>,
    failures: u64,
}

impl<G: Gate> Shaper<G> {
    /// The discipline is the one that the settings say. The transmitter draws nothing from `rng`.
    pub(super) fn new(
        settings: Settings,
        discipline: Discipline<Waiting<G>>,
        gate: G,
        rng: Pcg64,
    ) -> Self {
        let classifier = match &settings.queue {
            QdiscConfig::Ifc(config) => config.classifier.clone(),
            _ => Classifier::default(),
        };
        let link = LinkParams { rate: Some(settings.rate), ..LinkParams::default() };
        let clock = Clock::new();
        Self {
            clock,
            start: clock.now(),
            settings,
            classifier,
            gate,
            hop: Hop::new(link, discipline, rng),
            ledger: Ledger::new(),
            is_readable: true,
            arrivals: Vec::new(),
            failures: 0,
        }
    }

    pub(super) fn gate(&self) -> &G {
        &self.gate
    }

    /// Notes that the gate may have something to read.
    pub(super) fn wake(&mut self) {
        self.is_readable = true;
    }

    /// Whether there is more to read at once.
    pub(super) fn is_busy(&self) -> bool {
        self.is_readable
    }

    /// When to take the next turn at the latest.
    pub(super) fn next_event(&self) -> Option<Time> {
        self.hop.next_event()
    }

    /// Takes in what came and lets go what is due, a bounded amount of each.
    pub(super) fn turn(&mut self) {
        for _ in 0..ROUNDS {
            for _ in 0..READS {
                if self.is_readable {
                    self.read();
                }
            }
            self.release();
            if !self.is_readable {
                break;
            }
        }
    }

    /// Takes in no more, and lets go what waits as fast as it may.
    pub(super) fn close(&mut self) {
        self.gate.close();
        self.hop.set_rate(self.clock.now(), BitRate::from_bps(u64::MAX));
        self.is_readable = true;
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.hop.inside() == Packets::ZERO && !self.is_readable
    }

    /// Changes what is to be changed: all of it, or nothing.
    pub(super) fn obey(&mut self, order: Order) -> Result<(), OrderError> {
        if order.rate == Some(BitRate::from_bps(0)) {
            return Err(OrderError::ZeroRate);
        }
        let knows_classes = matches!(self.hop.queue_mut(), Discipline::Ifc(_));
        if order.aoi_share.is_some() && !knows_classes {
            return Err(OrderError::NoShare(self.settings.queue.to_string()));
        }
        if let Some(rate) = order.rate {
            self.gate.set_rate(rate).map_err(|error| OrderError::System(error.to_string()))?;
            self.hop.set_rate(self.clock.now(), rate);
            self.settings.rate = rate;
        }
        if let (Some(share), Discipline::Ifc(ifc)) = (order.aoi_share, self.hop.queue_mut()) {
            ifc.set_aoi_share(share);
        }
        Ok(())
    }

    /// What it did so far, with at most `flows` flows.
    pub(super) fn report(&mut self, flows: usize) -> RouterReport {
        let aoi_share = match self.hop.queue_mut() {
            Discipline::Ifc(ifc) => Some(ifc.aoi_share().get()),
            _ => None,
        };
        let status = self.gate.status();
        let backlog = self.hop.backlog();
        RouterReport {
            device: self.settings.device.clone(),
            duration_s: self.clock.now().since(self.start).as_secs_f64(),
            queue: self.settings.queue.to_string(),
            rate_bps: self.settings.rate.as_bps(),
            aoi_share,
            served_share: self.ledger.served_share(),
            super_packets: status.super_packets.to_owned(),
            waiting: WaitingReport {
                packets: backlog.packets.get(),
                bytes: backlog.bytes.get(),
                limit: status.limit,
            },
            classes: self.ledger.classes(),
            flows: self.ledger.flows(flows),
            flows_forgotten: self.ledger.forgotten(),
            lost: status.lost,
            failures: self.failures,
        }
    }

    /// Puts the next packets of the gate into the discipline.
    fn read(&mut self) {
        let received = self.gate.receive(&mut self.arrivals);
        let now = self.clock.now();
        let Self { classifier, gate, hop, ledger, .. } = self;
        for packet in self.arrivals.drain(..) {
            let class = classifier.class_of(&packet.header);
            let held = Held { packet, class, since: now, is_marked: false };
            ledger.arrived(now, held.subject());
            hop.enqueue(now, held, &mut |drop| give_up(gate, ledger, drop));
        }
        match received {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_readable = false,
            // Some were lost, others follow.
            Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {}
            Err(error) => {
                self.is_readable = false;
                failed(&mut self.failures, &error);
            }
        }
    }

    /// Lets go what the transmitter has sent.
    fn release(&mut self) {
        let now = self.clock.now();
        let Self { gate, hop, ledger, settings, failures, .. } = self;
        loop {
            let sent = hop.poll(now, &mut |drop| give_up(gate, ledger, drop));
            let Some(sent) = sent else { break };
            let in_router = sent.at.since(sent.packet.since);
            let sending = settings.rate.time_to_send(sent.packet.packet.size);
            let sojourn = in_router.checked_sub(sending).unwrap_or(Span::ZERO);
            ledger.sent(sent.packet.subject(), sojourn, sent.packet.is_marked);
            if let Err(error) = gate.pass(sent.packet.packet.ticket) {
                failed(failures, &error);
            }
        }
        if let Err(error) = gate.flush() {
            failed(failures, &error);
        }
    }
}

fn failed(failures: &mut u64, error: &io::Error) {
    *failures += 1;
    tracing::debug!("packets could not be read or given back: {error}");
}

fn give_up<G: Gate>(gate: &mut G, ledger: &mut Ledger, drop: Drop<Waiting<G>>) {
    ledger.dropped(drop.packet.subject(), drop.reason);
    gate.discard(drop.packet.packet.ticket);
}
