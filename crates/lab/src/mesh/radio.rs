//! The air: unslotted CSMA/CA, acknowledgements and retries among nodes of which not all hear each
//! other.
//!
//! ```text
//!            ┌────────── busy: NB + 1, BE + 1 ─────────┐
//!            ▼                                         │
//! send ─► backoff 0 … 2^BE − 1 ─► CCA ──idle──► turnaround ─► frame ─► ack? ─► pause
//!            ▲                     NB > 4: no channel           │ none in 864 µs
//!            └──────────────────────────────────────────────────┘ at most 3 more tries
//! ```
//!
//! IEEE 802.15.4-2015, 6.2.5.1 and 6.7.4. A frame is lost if another one disturbs its receiver at
//! the same time, or if that one sends itself. With capture, a frame survives others whose senders
//! are [`Radio::with_capture`] times as far from the receiver. A node finds the channel busy while
//! it senses a frame ([`Reach::senses`]), and while its ack is due; what disturbs it without being
//! sensed stays hidden from it.
//!
//! [`Csma::cc2420`] is what TinyOS's driver of the CC2420 does in place of the standard: back-offs
//! are uniform in fixed ranges, and an idle channel is looked at again a turnaround later, so that
//! the gap before an ack does not count as idle.
//!
//! What ends at an instant has ended before anybody looks at it, and who looks is done before what
//! begins then: a CCA tells of the time before. So frames that only touch do not disturb each other,
//! two who look at once both find an idle channel, and no outcome depends on a node's number.

use freshline_core::unit::Time;
use rand::RngExt;
use rand_pcg::Pcg64;

use super::csma::{Csma, Turn};
use super::phy::{ACK_OCTETS, CCA, TURNAROUND, airtime, pause};
use crate::engine::Agenda;

/// Whom a node's frames reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reach {
    /// The other node.
    pub node: u32,
    /// How far away it is, in m.
    pub distance: f64,
    /// Whether it can receive them.
    pub hears: bool,
    /// Whether it finds the channel busy meanwhile.
    pub senses: bool,
    /// Whether they spoil what it receives.
    pub disturbs: bool,
    /// The part of them that it loses to noise, 0 to 1.
    pub loss: f64,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was acknowledged.
    Acknowledged,
    /// Nobody acknowledged any of its tries.
    NoAck,
    /// The channel was busy each time it looked.
    NoChannel,
}

/// What happens on the air that those above want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A frame of `from` has ended. It has come to its receiver for the first time, or not.
    Ended {
        /// Its sender.
        from: u32,
        /// Whether it has come.
        arrived: bool,
    },
    /// `from` is done with its frame, and may send another one.
    Done {
        /// The sender.
        from: u32,
        /// How it ended.
        outcome: Outcome,
    },
}

/// What a node's radio did since time zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RadioStats {
    /// Frames sent, each try counted.
    pub sent: u64,
    /// Of these, second and further tries.
    pub retries: u64,
    /// Of all sent, those that met another one at their receiver, or found it sending.
    pub collisions: u64,
    /// Those that were lost to noise.
    pub noise: u64,
    /// Frames that came again, as their ack was lost.
    pub duplicates: u64,
    /// How often the channel was looked at.
    pub looks: u64,
    /// How often it was busy then.
    pub busy: u64,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    to: u32,
    octets: u64,
    /// Whether its receiver has it.
    arrived: bool,
    /// How often the channel was busy for this try, and its backoff exponent.
    backoffs: u8,
    exponent: u8,
    /// The channel was idle at the first look of two.
    was_idle: bool,
    tries: u8,
}

/// What a node does next; of what is due at the same instant, the first comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    EndFrame,
    EndAck,
    MissAck,
    /// At the channel, for the CCA before.
    Look,
    BeginFrame,
    BeginAck,
}

impl Step {
    const ALL: [Self; 6] =
        [Self::EndFrame, Self::EndAck, Self::MissAck, Self::Look, Self::BeginFrame, Self::BeginAck];
}

/// What a node is receiving.
#[derive(Debug, Clone, Copy)]
struct Reception {
    from: u32,
    /// From how far, in m.
    distance: f64,
    until: Time,
    intact: bool,
    loss: f64,
}

#[derive(Debug)]
struct Node {
    frame: Option<Frame>,
    /// The frame was sent, and its ack may come.
    awaits_ack: bool,
    /// The pause behind its last frame ends.
    ready_at: Time,
    /// What it hears ends, with its own answer.
    busy_until: Time,
    /// What disturbs it: from how far, in m, and until when.
    disturbances: Vec<(f64, Time)>,
    sends_until: Time,
    reception: Reception,
    /// To whom an ack is due, or being sent.
    answers: Option<u32>,
    /// Whose frames it wants to overhear.
    listens_to: Option<u32>,
}

/// The air with all radios on it.
#[derive(Debug)]
pub struct Radio {
    csma: Csma,
    nodes: Vec<Node>,
    /// By sender.
    reach: Vec<Vec<Reach>>,
    /// How many times as far the sender of a disturbance must be for a frame to survive it.
    capture: Option<f64>,
    /// One entry a node for each [`Step`].
    agenda: Agenda,
    stats: Vec<RadioStats>,
    overheard: Vec<u32>,
    rng: Pcg64,
}

impl Radio {
    /// Silent nodes, each with those that its frames reach.
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

    /// The same with capture: a frame survives another one whose sender is at least `ratio` times as
    /// far from the receiver as its own; `ratio` is above 1.
    pub fn with_capture(self, ratio: f64) -> Self {
        Self { capture: Some(ratio), ..self }
    }

    /// From now on `node` overhears what `other` sends.
    pub fn listen(&mut self, node: u32, other: u32) {
        self.nodes[node as usize].listens_to = Some(other);
    }

    /// Whether a node may be given a frame.
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

    /// When something happens next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.agenda.next().map(|(at, _)| at)
    }

    /// The next event up to `now`, and when it was; call it until there is none.
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

    /// Who overheard the frame of the last [`Event::Ended`], its receiver included.
    pub fn overheard(&self) -> &[u32] {
        &self.overheard
    }

    /// By node.
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

    /// The channel has been looked at.
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

    /// `node` is on the air until `end`.
    fn transmit(&mut self, at: Time, node: u32, end: Time) {
        let sender = &mut self.nodes[node as usize];
        sender.sends_until = end;
        sender.busy_until = sender.busy_until.max(end);
        // It hears nothing meanwhile.
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

    /// Whether what `from` has just ended to send has come to `node`.
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

    /// `node` owes `to` an ack, and holds its own frames back for it.
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

/// Why a frame did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missed {
    Collision,
    Noise,
}
