//! The turns of a running router: moves packets from the gate into the discipline, and from the
//! transmitter out through the gate.

use std::io::{self, ErrorKind};

use freshline_core::link::{Framing, Hop, LinkParams};
use freshline_core::router::{
    BacklogReport, Classifier, Discipline, Drop, QdiscConfig, RouterReport,
};
use freshline_core::unit::{BitRate, Packets, Span, Time};
use nix::errno::Errno;
use rand_pcg::Pcg64;

use super::bypass::{Bypass, Bypassed};
use super::gate::{Arrived, Gate, Held, Ticket};
use super::ledger::Ledger;
use super::order::{Order, OrderError};
use crate::clock::Clock;

/// The maximum number of packets to read before due packets are sent.
const READS: usize = 32;
/// The maximum number of such rounds per turn, before the loop serves other events.
const ROUNDS: usize = 16;
/// The longest pause that the transmitter makes up for: longer than the usual lateness of a timer
/// or of the scheduler, and short enough that the packets of this time do not fill the queue of the
/// link behind the device.
const MAX_ARREARS: Span = Span::from_millis(5);

/// How often to check whether the gate is closed.
const CLOSING: Span = Span::from_millis(5);

/// The settings of a shaper.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) device: String,
    /// Above zero.
    pub(super) rate: BitRate,
    /// The overhead that the link behind the device adds to each packet.
    pub(super) framing: Framing,
    pub(super) queue: QdiscConfig,
}

/// A queued packet of a gate.
type Waiting<G> = Held<<G as Gate>::Ticket>;

/// A discipline in front of a transmitter in real time.
pub(super) struct Shaper<G: Gate> {
    clock: Clock,
    start: Time,
    settings: Settings,
    /// For reports of disciplines without classes.
    classifier: Classifier,
    gate: G,
    hop: Hop<Discipline<Waiting<G>>, Waiting<G>, Pcg64>,
    ledger: Ledger,
    bypass: Bypass,
    /// Whether the gate may have more to read. The poll reports it once.
    is_readable: bool,
    is_gone: bool,
    /// Whether closing the gate has begun and is not complete.
    is_closing: bool,
    arrivals: Vec<Arrived<G::Ticket>>,
    /// The number of the packet that arrived last.
    newest: u32,
    /// The kernel has dropped some of the packets up to this number, as one of them showed: the
    /// verdict on each of these packets is sent at once and its answer awaited.
    suspects: Option<u32>,
    failures: u64,
}

impl<G: Gate> Shaper<G> {
    /// The discipline must match the settings. The transmitter draws nothing from `rng`.
    pub(super) fn new(
        settings: Settings,
        discipline: Discipline<Waiting<G>>,
        gate: G,
        rng: Pcg64,
    ) -> Self {
        let Settings { rate, framing, .. } = settings;
        let link = LinkParams { rate: Some(rate), framing, ..LinkParams::default() };
        let clock = Clock::new();
        let start = clock.now();
        Self {
            clock,
            start,
            settings,
            classifier: Classifier::default(),
            gate,
            hop: Hop::new(link, discipline, rng),
            ledger: Ledger::new(start),
            bypass: Bypass::default(),
            is_readable: true,
            is_gone: false,
            is_closing: false,
            arrivals: Vec::new(),
            newest: 0,
            suspects: None,
            failures: 0,
        }
    }

    pub(super) fn gate(&self) -> &G {
        &self.gate
    }

    pub(super) fn gate_mut(&mut self) -> &mut G {
        &mut self.gate
    }

    pub(super) fn device(&self) -> &str {
        &self.settings.device
    }

    /// Notes that the gate may be readable.
    pub(super) fn wake(&mut self) {
        self.is_readable = true;
    }

    /// Whether there is more to read at once.
    pub(super) fn is_busy(&self) -> bool {
        self.is_readable
    }

    /// When to take the next turn at the latest.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let look = self.is_closing.then(|| self.clock.now() + CLOSING);
        Time::earliest([self.hop.poll_timeout(), self.bypass.next(), look])
    }

    /// Warns, once, if the device sends packets that do not pass the gate.
    pub(super) fn check_bypass(&mut self) {
        let now = self.clock.now();
        if self.bypass.next().is_none_or(|next| now < next) {
            return;
        }
        let Some(sent) = self.gate.sent_by_device() else {
            self.bypass.postpone(now);
            return;
        };
        let passed = self.ledger.bytes_sent();
        if let Some(Bypassed { unseen, passed }) =
            self.bypass.check(now, sent, passed, self.settings.rate)
        {
            tracing::warn!(
                "{} sends {unseen} that bypass the queue and are not shaped; {passed} pass it. \
                 Flowtables (`nft list flowtables`), VLAN devices and bridges above the device, packet \
                 sockets and offloads bypass the packet filter",
                self.settings.device
            );
        }
    }

    /// Reads arrived packets and sends due packets, a bounded number of each.
    pub(super) fn turn(&mut self) {
        if self.is_closing && self.gate.is_closed() {
            // Packets may have arrived since the last read.
            (self.is_closing, self.is_readable) = (false, true);
        }
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

    /// Stops reading packets, and sends the queued ones as fast as possible.
    pub(super) fn close(&mut self) {
        self.gate.close();
        self.hop.set_rate(self.clock.now(), BitRate::from_bps(u64::MAX));
        self.is_closing = true;
    }

    /// Whether the queue is empty and, after closing, no more packets can arrive.
    pub(super) fn is_empty(&self) -> bool {
        self.hop.inside() == Packets::ZERO && !self.is_readable && !self.is_closing
    }

    /// Applies all changes of an order, or none.
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
            let now = self.now();
            self.hop.set_rate(now, rate);
            self.settings.rate = rate;
        }
        if let (Some(share), Discipline::Ifc(ifc)) = (order.aoi_share, self.hop.queue_mut()) {
            ifc.set_aoi_share(share);
        }
        Ok(())
    }

    /// The report so far, with at most `flows` flows.
    pub(super) fn report(&mut self, flows: usize) -> RouterReport {
        let aoi_share = match self.hop.queue_mut() {
            Discipline::Ifc(ifc) => Some(ifc.aoi_share().get()),
            _ => None,
        };
        let now = self.clock.now();
        let status = self.gate.status();
        let backlog = self.hop.backlog();
        RouterReport {
            device: self.settings.device.clone(),
            duration_s: now.since(self.start).as_secs_f64(),
            queue: self.settings.queue.to_string(),
            rate_bps: Some(self.settings.rate.as_bps()),
            aoi_share,
            served_share: self.ledger.served_share(),
            super_packets: status.super_packets.to_owned(),
            backlog: BacklogReport {
                packets: backlog.packets.get(),
                bytes: backlog.bytes.get(),
                limit: status.limit,
            },
            classes: self.ledger.classes(now),
            flows: self.ledger.flows(now, flows),
            flows_evicted: self.ledger.forgotten(),
            kernel_drops: status.kernel_drops,
            failures: self.failures,
            unshaped: status.unshaped,
        }
    }

    /// The hop's time, which does not make up for a pause of this process.
    fn now(&mut self) -> Time {
        let now = self.clock.now();
        self.hop
            .forgo_until(Time::from_nanos(now.as_nanos().saturating_sub(MAX_ARREARS.as_nanos())));
        now
    }

    /// Puts the next packets of the gate into the discipline.
    fn read(&mut self) {
        let received = self.gate.receive(&mut self.arrivals);
        let now = self.now();
        let Self { classifier, gate, hop, ledger, newest, .. } = self;
        for packet in self.arrivals.drain(..) {
            *newest = packet.ticket.number();
            let class = match hop.queue_mut() {
                Discipline::Ifc(ifc) => ifc.classify(now, &packet.header, packet.size).class,
                _ => classifier.class_of(&packet.header),
            };
            let held = Held { packet, class, since: now, is_marked: false };
            ledger.arrived(now, held.subject());
            hop.enqueue(now, held, &mut |drop| give_up(gate, ledger, drop));
        }
        let vanished = self.gate.vanished();
        self.suspect(&vanished);
        match received {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_readable = false,
            // The device has been removed.
            Err(error) if error.raw_os_error() == Some(Errno::EBADFD as i32) => {
                (self.is_readable, self.is_gone) = (false, true);
            }
            // Some packets were lost, others follow.
            Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {}
            Err(error) => {
                self.is_readable = false;
                failed(&mut self.failures, &error);
            }
        }
    }

    /// Whether the device is gone, so that no packet can arrive or leave any more.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Passes the packets that the transmitter has sent.
    fn release(&mut self) {
        let now = self.now();
        loop {
            let Self { gate, hop, ledger, settings, failures, .. } = self;
            let sent = hop.poll(now, &mut |drop| give_up(gate, ledger, drop));
            let Some(sent) = sent else { break };
            let Held { packet, since, is_marked, .. } = &sent.packet;
            let in_router = sent.at.since(*since);
            let sending = settings.rate.time_to_send(settings.framing.on_wire(packet.size));
            let sojourn = in_router.checked_sub(sending).unwrap_or(Span::ZERO);
            let (subject, is_marked) = (sent.packet.subject(), *is_marked);
            let number = packet.ticket.number();
            if let Err(error) = gate.pass(sent.packet.packet.ticket) {
                failed(failures, &error);
            }
            if self.suspects.is_some_and(|last| !is_after(number, last)) && self.is_dead(number) {
                self.hop.make_up(sending);
            } else {
                self.ledger.sent(now, subject, sojourn, is_marked);
            }
        }
        if let Err(error) = self.gate.flush() {
            failed(&mut self.failures, &error);
        }
        // Numbers wrap: a number unused for long would be taken for one ahead.
        let is_long_ago = |last| self.newest.wrapping_sub(last) > u32::MAX / 4;
        if self.hop.inside() == Packets::ZERO || self.suspects.is_some_and(is_long_ago) {
            self.suspects = None;
        }
    }

    /// Whether the kernel had dropped this packet before the verdict that was just given on it.
    /// Packets that arrive meanwhile are kept for [`Shaper::read`].
    fn is_dead(&mut self, number: u32) -> bool {
        if let Err(error) = self.gate.flush() {
            failed(&mut self.failures, &error);
            return false;
        }
        self.is_readable = true;
        // The answer is behind unread packets, at most as many as the kernel's queue holds.
        loop {
            match self.gate.receive(&mut self.arrivals) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {}
                Err(_) => break,
            }
        }
        let vanished = self.gate.vanished();
        self.suspect(&vanished);
        vanished.contains(&number)
    }

    /// Notes packets that the kernel had dropped: every packet that has arrived until now is
    /// suspected, unless its fate is known.
    fn suspect(&mut self, vanished: &[u32]) {
        let is_news = |number: &u32| self.suspects.is_none_or(|last| is_after(*number, last));
        if vanished.iter().any(is_news) {
            self.suspects = Some(self.newest);
        }
    }
}

/// Whether the one packet arrived after the other, by their numbers, which wrap.
fn is_after(one: u32, other: u32) -> bool {
    one.wrapping_sub(other) as i32 > 0
}

fn failed(failures: &mut u64, error: &io::Error) {
    *failures += 1;
    tracing::debug!("packets could not be read or given back: {error}");
}

fn give_up<G: Gate>(gate: &mut G, ledger: &mut Ledger, drop: Drop<Waiting<G>>) {
    ledger.dropped(drop.packet.subject(), drop.reason);
    gate.discard(drop.packet.packet.ticket);
}

#[cfg(test)]
mod tests {
    use super::super::gate::Status;
    use super::*;
    use freshline_core::router::Header;
    use freshline_core::unit::Bytes;
    use rand_pcg::rand_core::SeedableRng;
    use std::os::fd::RawFd;

    /// A kernel queue that drops its packets on command, and reports this in its answers to
    /// verdicts.
    #[derive(Default)]
    struct Kernel {
        unread: Vec<u32>,
        held: Vec<u32>,
        passed: Vec<u32>,
        discarded: Vec<u32>,
        verdicts: Vec<u32>,
        answers: Vec<u32>,
        vanished: Vec<u32>,
        dead_verdicts: usize,
    }

    struct Number(u32);

    impl Ticket for Number {
        fn number(&self) -> u32 {
            self.0
        }
    }

    impl Gate for Kernel {
        type Ticket = Number;

        fn receive(&mut self, into: &mut Vec<Arrived<Number>>) -> io::Result<()> {
            self.vanished.append(&mut self.answers);
            if self.unread.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let (size, header) = (Bytes::new(1500), Header::default());
            into.push(Arrived { ticket: Number(self.unread.remove(0)), size, header });
            Ok(())
        }

        fn pass(&mut self, ticket: Number) -> io::Result<()> {
            self.verdicts.push(ticket.0);
            self.passed.push(ticket.0);
            Ok(())
        }

        fn discard(&mut self, ticket: Number) {
            self.verdicts.push(ticket.0);
            self.discarded.push(ticket.0);
        }

        fn vanished(&mut self) -> Vec<u32> {
            std::mem::take(&mut self.vanished)
        }

        fn flush(&mut self) -> io::Result<()> {
            for number in self.verdicts.drain(..) {
                match self.held.iter().position(|held| *held == number) {
                    Some(place) => _ = self.held.remove(place),
                    None => {
                        self.answers.push(number);
                        self.dead_verdicts += 1;
                    }
                }
            }
            Ok(())
        }

        fn set_rate(&mut self, _: BitRate) -> io::Result<()> {
            Ok(())
        }

        fn close(&mut self) {}

        fn readable(&self) -> RawFd {
            -1
        }

        fn status(&self) -> Status {
            let (kernel_drops, unshaped) = Default::default();
            Status { super_packets: "whole", limit: None, kernel_drops, unshaped }
        }
    }

    /// Of 100 queued packets the kernel keeps some; 3 arrive later.
    fn expect_that_dead_packets_take_no_time(keeps: fn(u32) -> bool) {
        for queue in ["fifo", "lifo", "ifc", "fq_codel", "drr"] {
            let queue: QdiscConfig = queue.parse().unwrap();
            let mut rng = Pcg64::seed_from_u64(1);
            let discipline = queue.build(&mut rng).unwrap();
            // A packet takes 1.2 ms; numbers wrap.
            let settings = Settings {
                device: "x".into(),
                rate: BitRate::from_mbps(10),
                framing: Framing::default(),
                queue,
            };
            let mut shaper = Shaper::new(settings, discipline, Kernel::default(), rng);
            let number = |n: u32| (u32::MAX - 50).wrapping_add(n);
            let come = |shaper: &mut Shaper<Kernel>, numbers: std::ops::Range<u32>| {
                let numbers: Vec<u32> = numbers.map(number).collect();
                shaper.gate.held.extend(&numbers);
                shaper.gate.unread.extend(&numbers);
                shaper.wake();
                shaper.turn();
            };
            come(&mut shaper, 0..100);
            let dead: Vec<u32> = (0..100).filter(|n| !keeps(*n)).map(number).collect();
            shaper.gate.held.retain(|held| !dead.contains(held));
            come(&mut shaper, 100..103);
            while !shaper.is_empty() {
                std::thread::sleep(std::time::Duration::from_millis(1));
                shaper.wake();
                shaper.turn();
            }
            let busy = shaper.hop.busy(shaper.clock.now());
            let Kernel { held, passed, discarded, dead_verdicts, .. } = shaper.gate;
            let queue = &shaper.settings.queue;
            assert!(held.is_empty(), "{queue}: left in the kernel: {held:?}");
            let lost = |n: &u32| !passed.contains(n) && !discarded.contains(n);
            let lost: Vec<u32> = (0..103).map(number).filter(lost).collect();
            assert!(lost.is_empty(), "{queue}: without a verdict: {lost:?}");
            assert_eq!(passed.len() + discarded.len(), 103, "{queue}: one verdict each");
            let live = 103 - dead_verdicts as u64;
            // Some dropped packets were due before the first was found dropped.
            let bound = Span::from_micros(1_200 * (live + 20));
            assert!(busy <= bound, "{queue}: {busy} for {live} packets");
            let sent = shaper.ledger.classes(shaper.clock.now());
            let sent: u64 = sent.iter().map(|class| class.account.packets_out).sum();
            assert!(sent <= live + 20, "{queue}: {sent} counted as sent");
        }
    }

    #[test]
    fn packets_that_the_kernel_dropped_do_not_hold_up_the_link() {
        expect_that_dead_packets_take_no_time(|_| false);
    }

    #[test]
    fn live_packets_between_those_that_the_kernel_dropped_all_get_their_verdicts() {
        expect_that_dead_packets_take_no_time(|n| n % 2 == 1);
        // The dropped packets are the newest: the device through which they came went down.
        expect_that_dead_packets_take_no_time(|n| n < 60);
    }
}
