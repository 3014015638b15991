//! The radio channel: unslotted CSMA/CA, acknowledgements and retries among nodes that do not all
//! hear each other.
//!
//! ```text
//!            ┌────────── busy: NB + 1, BE + 1 ─────────┐
//!            ▼                                         │
//! send ─► backoff 0 … 2^BE − 1 ─► CCA ──idle──► turnaround ─► frame ─► ack? ─► pause
//!            ▲                     NB > 4: no channel           │ none in 864 µs
//!            └──────────────────────────────────────────────────┘ at most 3 retries
//! ```
//!
//! IEEE 802.15.4-2015, 6.2.5.1 and 6.7.4. A frame is lost if another one interferes at its receiver
//! at the same time, or if the receiver is sending. With capture, a frame survives others whose
//! senders are [`Radio::with_capture`] times as far from the receiver. A node finds the channel
//! busy while it senses a frame ([`Reach::senses`]), and while it owes an ack. A frame that
//! interferes without being sensed is from a hidden node.
//!
//! [`Csma::cc2420`] is the behaviour of TinyOS's driver of the CC2420, which differs from the
//! standard: back-offs are uniform in fixed ranges, and an idle channel is sensed again a
//! turnaround later, so that the gap before an ack does not count as idle.
//!
//! At equal times, frames end first, then CCAs complete, then frames begin: a CCA covers the time
//! before it. So adjacent frames do not interfere, two nodes with simultaneous CCAs both find an
//! idle channel, and no result depends on a node's number.

use freshline_core::unit::Time;
use rand::RngExt;
use rand_pcg::Pcg64;

use super::csma::{Csma, Turn};
use super::phy::{ACK_OCTETS, CCA, TURNAROUND, airtime, pause};
use crate::engine::Agenda;

/// A node that another node's frames reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reach {
    /// The other node.
    pub node: u32,
    /// Its distance, in m.
    pub distance: f64,
    /// Whether it can receive them.
    pub hears: bool,
    /// Whether it senses a busy channel meanwhile.
    pub senses: bool,
    /// Whether they interfere with its reception.
    pub disturbs: bool,
    /// The fraction of them that it loses to noise, 0 to 1.
    pub loss: f64,
}

/// The outcome of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was acknowledged.
    Acknowledged,
    /// None of its attempts was acknowledged.
    NoAck,
    /// The channel was busy at each CCA.
    NoChannel,
}

/// Events for the layer above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A frame of `from` has ended, and has reached its receiver for the first time or not.
    Ended {
        /// Its sender.
        from: u32,
        /// Whether it has reached its receiver.
        arrived: bool,
    },
    /// `from` has finished its frame, and may send another one.
    Done {
        /// The sender.
        from: u32,
        /// The outcome.
        outcome: Outcome,
    },
}

/// Counters of a node's radio since time zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RadioStats {
    /// Frames sent, each attempt counted.
    pub sent: u64,
    /// The retries among them.
    pub retries: u64,
    /// The frames among all sent that collided at their receiver, or found it sending.
    pub collisions: u64,
    /// The frames lost to noise.
    pub noise: u64,
    /// Frames received again, because their ack was lost.
    pub duplicates: u64,
    /// The number of CCAs.
    pub looks: u64,
    /// The number of CCAs that found a busy channel.
    pub busy: u64,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    to: u32,
    octets: u64,
    /// Whether its receiver has it.
    arrived: bool,
    /// The number of back-offs of this attempt because of a busy channel, and its back-off
    /// exponent.
    backoffs: u8,
    exponent: u8,
    /// The first of two CCAs found an idle channel.
    was_idle: bool,
    tries: u8,
}

/// A node's next step; steps at equal times are taken in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    EndFrame,
    EndAck,
    MissAck,
    /// The end of a CCA.
    Look,
    BeginFrame,
    BeginAck,
}

impl Step {
    const ALL: [Self; 6] =
        [Self::EndFrame, Self::EndAck, Self::MissAck, Self::Look, Self::BeginFrame, Self::BeginAck];
}

/// The frame that a node is receiving.
#[derive(Debug, Clone, Copy)]
struct Reception {
    from: u32,
    /// The distance of its sender, in m.
    distance: f64,
    until: Time,
    intact: bool,
    loss: f64,
}

#[derive(Debug)]
struct Node {
    frame: Option<Frame>,
    /// The frame was sent, and its ack is pending.
    awaits_ack: bool,
    /// When the pause after its last frame ends.
    ready_at: Time,
    /// When the sensed transmissions end, including its own ack.
    busy_until: Time,
    /// Interfering frames: the distance of the sender, in m, and the end of the frame.
    disturbances: Vec<(f64, Time)>,
    sends_until: Time,
    reception: Reception,
    /// The node to which it owes or sends an ack.
    answers: Option<u32>,
    /// The node whose frames it overhears.
    listens_to: Option<u32>,
}

/// The channel with all radios.
#[derive(Debug)]
pub struct Radio {
    csma: Csma,
    nodes: Vec<Node>,
    /// By sender.
    reach: Vec<Vec<Reach>>,
    /// The capture ratio: a frame survives an interfering one whose sender is this many times as
    /// far away.
    capture: Option<f64>,
    /// One entry per node for each [`Step`].
    agenda: Agenda,
    stats: Vec<RadioStats>,
    overheard: Vec<u32>,
    rng: Pcg64,
}

impl Radio {
    /// Idle nodes, each with the nodes that its frames reach.
    pub fn new(csma: Csma, reach: Vec<Vec<Reach>>, rng: Pcg64) -> Self {
        let reception =
            Reception { from: 0, distance: 0.0, until: Time::ZERO, intact: false, loss: 0.0 };
        let node = |_: &Vec<Reach>| Node {
            frame: None,
            awaits_ack: false,
            ready_at: Time::ZERO,
            busy_until: Time::ZERO,
            disturbances: Vec::new(),
            sends_until: Time::ZERO,
            reception,
            answers: None,
            listens_to: None,
        };
        let count = reach.len();
        Self {
            csma,
            nodes: reach.iter().map(node).collect(),
            reach,
            capture: None,
            agenda: Agenda::new(Step::ALL.len() * count),
            stats: vec![RadioStats::default(); count],
            overheard: Vec::new(),
            rng,
        }
    }

    /// Adds capture: a frame survives another one whose sender is at least `ratio` times as far
    /// from the receiver as its own; `ratio` is above 1.
    pub fn with_capture(self, ratio: f64) -> Self {
        Self { capture: Some(ratio), ..self }
    }

    /// From now on `node` overhears the transmissions of `other`.
    pub fn listen(&mut self, node: u32, other: u32) {
        self.nodes[node as usize].listens_to = Some(other);
    }

    /// Whether a node can accept a frame.
    pub fn is_idle(&self, node: u32) -> bool {
        self.nodes[node as usize].frame.is_none()
    }

    /// An idle node begins to send a frame.
    pub fn send(&mut self, now: Time, from: u32, to: u32, octets: u64) {
        debug_assert!(self.is_idle(from), "a frame at a time");
        let exponent = self.csma.min_be;
        let (arrived, was_idle) = (false, false);
        let frame = Frame { to, octets, arrived, backoffs: 0, exponent, was_idle, tries: 0 };
        self.nodes[from as usize].frame = Some(frame);
        let begins = now.max(self.nodes[from as usize].ready_at);
        self.back_off(begins, from, Turn::First, exponent);
    }

    /// The time of the next event.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.agenda.next().map(|(at, _)| at)
    }

    /// The next event up to `now`, with its time. Call it until it returns `None`.
    pub fn poll(&mut self, now: Time) -> Option<(Time, Event)> {
        loop {
            let (at, entry) = self.agenda.next().filter(|(at, _)| *at <= now)?;
            self.agenda.set(entry, None);
            let step = Step::ALL[entry / self.nodes.len()];
            let node = (entry % self.nodes.len()) as u32;
            let event = match step {
                Step::EndFrame => self.end_frame(at, node),
                Step::EndAck => self.end_ack(at, node),
                Step::MissAck => self.miss_ack(at, node),
                Step::Look => self.look(at, node),
                Step::BeginFrame => self.begin_frame(at, node),
                Step::BeginAck => self.begin_ack(at, node),
            };
            if let Some(event) = event {
                return Some((at, event));
            }
        }
    }

    /// The nodes that received or overheard the frame of the last [`Event::Ended`].
    pub fn overheard(&self) -> &[u32] {
        &self.overheard
    }

    /// The counters of each node.
    pub fn stats(&self) -> &[RadioStats] {
        &self.stats
    }

    fn set(&mut self, node: u32, step: Step, at: Option<Time>) {
        self.agenda.set(step as usize * self.nodes.len() + node as usize, at);
    }

    fn back_off(&mut self, from: Time, node: u32, turn: Turn, exponent: u8) {
        let wait = self.csma.wait(turn, exponent, &mut self.rng);
        self.set(node, Step::Look, Some(from + wait));
    }

    /// A CCA has ended.
    fn look(&mut self, at: Time, node: u32) -> Option<Event> {
        let sender = &mut self.nodes[node as usize];
        let frame = sender.frame.as_mut()?;
        let stats = &mut self.stats[node as usize];
        stats.looks += 1;
        if sender.busy_until + CCA <= at {
            match self.csma.second_look {
                Some(after) if !frame.was_idle => {
                    frame.was_idle = true;
                    self.set(node, Step::Look, Some(at + after));
                }
                _ => self.set(node, Step::BeginFrame, Some(at + TURNAROUND)),
            }
            return None;
        }
        stats.busy += 1;
        frame.was_idle = false;
        frame.backoffs = frame.backoffs.saturating_add(1);
        frame.exponent = (frame.exponent + 1).min(self.csma.max_be);
        if frame.backoffs > self.csma.max_backoffs {
            return Some(self.done(node, Outcome::NoChannel));
        }
        let exponent = frame.exponent;
        self.back_off(at, node, Turn::Next, exponent);
        None
    }

    fn begin_frame(&mut self, at: Time, node: u32) -> Option<Event> {
        let frame = self.nodes[node as usize].frame?;
        let stats = &mut self.stats[node as usize];
        stats.sent += 1;
        stats.retries += u64::from(frame.tries > 0);
        let end = at + airtime(frame.octets);
        self.transmit(at, node, end);
        self.set(node, Step::EndFrame, Some(end));
        None
    }

    /// `node` transmits until `end`.
    fn transmit(&mut self, at: Time, node: u32, end: Time) {
        let sender = &mut self.nodes[node as usize];
        sender.sends_until = end;
        sender.busy_until = sender.busy_until.max(end);
        // It cannot receive meanwhile.
        sender.reception.intact &= sender.reception.until <= at;
        for reach in &self.reach[node as usize] {
            let other = &mut self.nodes[reach.node as usize];
            let Reach { distance, hears, senses, disturbs, loss, .. } = *reach;
            let survives = |own: f64, disturbing: f64| {
                self.capture.is_some_and(|ratio| disturbing >= ratio * own)
            };
            other.disturbances.retain(|(_, until)| *until > at);
            if other.reception.until > at {
                other.reception.intact &= !disturbs || survives(other.reception.distance, distance);
            } else if hears
                && other.sends_until <= at
                && other.disturbances.iter().all(|(other, _)| survives(distance, *other))
            {
                let (from, until) = (node, end);
                other.reception = Reception { from, distance, until, intact: true, loss };
            }
            if disturbs {
                other.disturbances.push((distance, end));
            }
            if senses {
                other.busy_until = other.busy_until.max(end);
            }
        }
    }

    /// Whether `node` has received the frame that `from` has just finished.
    fn receives(&mut self, at: Time, from: u32, node: u32) -> Result<(), Missed> {
        let Reception { from: heard, until, intact, loss, .. } =
            self.nodes[node as usize].reception;
        if !intact || heard != from || until != at {
            return Err(Missed::Collision);
        }
        let is_noise = loss > 0.0 && self.rng.random::<f64>() < loss;
        if is_noise { Err(Missed::Noise) } else { Ok(()) }
    }

    fn end_frame(&mut self, at: Time, node: u32) -> Option<Event> {
        let frame = self.nodes[node as usize].frame?;
        self.nodes[node as usize].awaits_ack = true;
        self.set(node, Step::MissAck, Some(at + self.csma.ack_wait));
        self.overheard.clear();
        let mut arrived = false;
        match self.receives(at, node, frame.to) {
            Ok(()) => {
                arrived = !frame.arrived;
                let stats = &mut self.stats[frame.to as usize];
                stats.duplicates += u64::from(frame.arrived);
                self.answer(at, frame.to, node);
                if self.nodes[frame.to as usize].listens_to == Some(node) {
                    self.overheard.push(frame.to);
                }
            }
            Err(Missed::Collision) => self.stats[node as usize].collisions += 1,
            Err(Missed::Noise) => self.stats[node as usize].noise += 1,
        }
        if let Some(frame) = &mut self.nodes[node as usize].frame {
            frame.arrived |= arrived;
        }
        for index in 0..self.reach[node as usize].len() {
            let other = self.reach[node as usize][index].node;
            let listens = self.nodes[other as usize].listens_to == Some(node);
            if listens && other != frame.to && self.receives(at, node, other).is_ok() {
                self.overheard.push(other);
            }
        }
        Some(Event::Ended { from: node, arrived })
    }

    /// `node` owes `to` an ack, and defers its own frames.
    fn answer(&mut self, at: Time, node: u32, to: u32) {
        let answers = &mut self.nodes[node as usize];
        answers.answers = Some(to);
        let end = at + TURNAROUND + airtime(ACK_OCTETS);
        answers.busy_until = answers.busy_until.max(end);
        self.set(node, Step::BeginAck, Some(at + TURNAROUND));
    }

    fn begin_ack(&mut self, at: Time, node: u32) -> Option<Event> {
        let end = at + airtime(ACK_OCTETS);
        self.transmit(at, node, end);
        self.set(node, Step::EndAck, Some(end));
        None
    }

    fn end_ack(&mut self, at: Time, node: u32) -> Option<Event> {
        let to = self.nodes[node as usize].answers.take()?;
        let sender = &self.nodes[to as usize];
        let octets = sender.frame.filter(|_| sender.awaits_ack)?.octets;
        self.receives(at, node, to).ok()?;
        self.nodes[to as usize].ready_at = at + pause(octets);
        Some(self.done(to, Outcome::Acknowledged))
    }

    fn miss_ack(&mut self, at: Time, node: u32) -> Option<Event> {
        let Csma { min_be, max_retries, retry_delay, .. } = self.csma;
        let sender = &mut self.nodes[node as usize];
        sender.awaits_ack = false;
        let frame = sender.frame.as_mut()?;
        frame.tries = frame.tries.saturating_add(1);
        if frame.tries > max_retries {
            return Some(self.done(node, Outcome::NoAck));
        }
        (frame.backoffs, frame.exponent, frame.was_idle) = (0, min_be, false);
        self.back_off(at + retry_delay, node, Turn::First, min_be);
        None
    }

    fn done(&mut self, node: u32, outcome: Outcome) -> Event {
        let sender = &mut self.nodes[node as usize];
        (sender.awaits_ack, sender.frame) = (false, None);
        self.set(node, Step::MissAck, None);
        Event::Done { from: node, outcome }
    }
}

/// Why a frame was not received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missed {
    Collision,
    Noise,
}
