//! A dialer and a listener over a path in virtual time: losses, cuts, other addresses.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::VecDeque;

use freshline_core::path::PathId;
use freshline_core::session::{
    Dialer, DialerEvent, Listener, ListenerEvent, Monitor, MonitorEvent, MonitorParams,
    ReturnParams, Secret, Source, SourceEvent, SourceKey, SourceParams,
};
use freshline_core::source::{Fixed, RateLaw};
use freshline_core::unit::{BitRate, Bytes, Span, Time, UpdateRate};
use freshline_core::wire::{Frames, Message, Update};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Of each direction.
pub(crate) const DELAY: Span = Span::from_millis(20);
pub(crate) const DATAGRAM: usize = 1_200;
/// Where updates of the return direction come by that are for [`World::second`].
const SECOND: PathId = PathId(1);
/// Of a datagram of UDP over IPv4.
pub(crate) const HEADERS: u64 = 28;

/// One direction of a path: a queue in front of a link, then the delay.
pub(crate) struct Pipe {
    pub(crate) rate: BitRate,
    /// When the link is free again.
    pub(crate) free_at: Time,
    pub(crate) flying: VecDeque<(Time, u8, Vec<u8>)>,
    pub(crate) is_cut: bool,
    /// Bytes and datagrams so far.
    pub(crate) sent: u64,
    pub(crate) datagrams: u64,
}

impl Pipe {
    pub(crate) fn new(rate: BitRate) -> Self {
        Self {
            rate,
            free_at: Time::ZERO,
            flying: VecDeque::new(),
            is_cut: false,
            sent: 0,
            datagrams: 0,
        }
    }

    pub(crate) fn send(&mut self, now: Time, address: u8, datagram: &[u8]) {
        if self.is_cut {
            return;
        }
        let bytes = Bytes::new(datagram.len() as u64 + HEADERS);
        self.sent += bytes.get();
        self.datagrams += 1;
        self.free_at = self.free_at.max(now) + self.rate.time_to_send(bytes);
        self.flying.push_back((self.free_at + DELAY, address, datagram.to_vec()));
    }

    pub(crate) fn arrived(&mut self, now: Time) -> Option<(u8, Vec<u8>)> {
        let is_there = self.flying.front().is_some_and(|next| next.0 <= now);
        let next = if is_there { self.flying.pop_front() } else { None };
        next.map(|(_, address, datagram)| (address, datagram))
    }
}

/// States and records that one end has received from the other.
#[derive(Default)]
pub(crate) struct Got {
    /// When the newest state was sampled.
    pub(crate) newest: Option<Time>,
    pub(crate) states: u64,
    pub(crate) ages: Vec<Span>,
}

impl Got {
    pub(crate) fn on_state(&mut self, now: Time, state: &[u8]) {
        let sampled_at =
            Time::from_nanos(u64::from_be_bytes(*state.first_chunk().expect("a time")));
        assert!(self.newest <= Some(sampled_at), "states do not go back");
        self.newest = Some(sampled_at);
        self.states += 1;
        self.ages.push(now.since(sampled_at));
    }

    /// In a thousandth.
    pub(crate) fn age(&mut self, share: usize) -> Span {
        self.ages.sort_unstable();
        self.ages[self.ages.len() * share / 1_000]
    }
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) dialer: Dialer,
    pub(crate) listener: Listener<u8>,
    /// The dialer's address, as the listener sees it.
    pub(crate) address: u8,
    /// The source address that the dialer writes into its packets, instead of its own.
    pub(crate) forged: Option<u8>,
    /// Of a second path: there it receives as well, and answers from there.
    pub(crate) second: Option<u8>,
    /// Datagrams to this address are delayed until a test delivers them.
    pub(crate) stalled: Option<u8>,
    pub(crate) delayed: Vec<Vec<u8>>,
    /// Bytes to address 2.
    pub(crate) to_second: u64,
    pub(crate) forward: Pipe,
    pub(crate) back: Pipe,
    pub(crate) loss: u32,
    pub(crate) random: Pcg32,
    /// Bytes of a state of either direction.
    pub(crate) state_len: usize,
    pub(crate) command_len: usize,
    /// Of the return direction.
    pub(crate) law: fn() -> Box<dyn RateLaw>,
    pub(crate) at_listener: Got,
    pub(crate) at_dialer: Got,
    pub(crate) secrets: u8,
    pub(crate) wanted: u64,
    /// The first opening of a return session.
    pub(crate) opening: Option<Vec<u8>>,
    /// The listener answers each state with a command after this time; otherwise it samples
    /// commands as they leave.
    pub(crate) answers_after: Option<Span>,
    pub(crate) answers_at: Option<Time>,
}

pub(crate) fn fixed() -> Box<dyn RateLaw> {
    Box::new(Fixed::new(UpdateRate::saturating(50.0)))
}

pub(crate) fn state(now: Time, len: usize) -> Vec<u8> {
    let mut bytes = vec![7; len];
    bytes[..8].copy_from_slice(&now.as_nanos().to_be_bytes());
    bytes
}

pub(crate) fn params(name: &str) -> SourceParams {
    SourceParams { name: name.into(), max_datagram: DATAGRAM, ..SourceParams::default() }
}

impl World {
    pub(crate) fn new(rate: BitRate, law: fn() -> Box<dyn RateLaw>) -> Self {
        Self {
            now: Time::from_nanos(1_000_000_000),
            dialer: dialer(law, 1),
            listener: listener(1),
            address: 1,
            forged: None,
            second: None,
            stalled: None,
            delayed: Vec::new(),
            to_second: 0,
            forward: Pipe::new(rate),
            back: Pipe::new(rate),
            loss: 0,
            random: Pcg32::seed_from_u64(1),
            state_len: 100,
            command_len: 100,
            law,
            at_listener: Got::default(),
            at_dialer: Got::default(),
            secrets: 10,
            wanted: 0,
            opening: None,
            answers_after: None,
            answers_at: None,
        }
    }

    pub(crate) fn run(&mut self, duration: Span) {
        let end = self.now + duration;
        while self.now < end {
            self.receive();
            self.step_dialer();
            self.step_listener();
            let flying = [&self.forward, &self.back].map(|pipe| pipe.flying.front());
            let [forward, back] = flying.map(|next| next.map(|next| next.0));
            let ends = [self.dialer.poll_timeout(), self.listener.poll_timeout()];
            let next = [ends[0], ends[1], forward, back, self.answers_at];
            let next = Time::earliest(next).unwrap_or(end);
            // An end with a timeout in the past must have been served by then.
            self.now = next.max(self.now + Span::from_nanos(1)).min(end);
        }
    }

    pub(crate) fn is_lost(&mut self) -> bool {
        self.random.next_u32() < self.loss
    }

    pub(crate) fn receive(&mut self) {
        while let Some((address, datagram)) = self.forward.arrived(self.now) {
            let _ = self.listener.handle_datagram(self.now, address, None, &datagram);
        }
        while let Some((address, datagram)) = self.back.arrived(self.now) {
            // Datagrams to a former address of the dialer, or to another host's, are lost.
            if address == self.address {
                let _ = self.dialer.handle_datagram(self.now, PathId::FIRST, &datagram);
            } else if self.second == Some(address) {
                let is_update = matches!(Message::parse(&datagram), Ok(Message::Update(_)));
                let by = if is_update { SECOND } else { PathId::FIRST };
                let _ = self.dialer.handle_datagram(self.now, by, &datagram);
            } else if self.stalled == Some(address) {
                self.delayed.push(datagram);
            }
        }
    }

    pub(crate) fn step_dialer(&mut self) {
        self.dialer.handle_timeout(self.now);
        while let Some(event) = self.dialer.poll_event() {
            match event {
                DialerEvent::Source(SourceEvent::StateWanted(_)) => {
                    let state = state(self.now, self.state_len);
                    self.dialer.source_mut().put(self.now, self.now, &state).expect("it fits");
                }
                DialerEvent::Monitor(MonitorEvent::Fresh { source, is_repeat: false, .. }) => {
                    let record = self.dialer.receiver().record(source);
                    if let Some(state) = record.and_then(|record| record.payload()) {
                        self.at_dialer.on_state(self.now, state);
                    }
                }
                _ => {}
            }
        }
        let mut out = Vec::new();
        while let Some(transmit) = self.dialer.poll_transmit(self.now, &mut out) {
            if !self.is_lost() {
                let address = match (transmit.path, self.second) {
                    (SECOND, Some(second)) => second,
                    // The answer to an update of the first path.
                    (_, Some(_)) if transmit.seq.is_none() => self.address,
                    _ => self.forged.unwrap_or(self.address),
                };
                self.forward.send(self.now, address, &out[..transmit.len]);
            }
        }
    }

    pub(crate) fn step_listener(&mut self) {
        self.listener.handle_timeout(self.now);
        if self.answers_at.take_if(|at| *at <= self.now).is_some() {
            let key = self.listener.return_sources().next().expect("it has asked");
            self.put_command(key);
        }
        while let Some(event) = self.listener.poll_event() {
            match event {
                ListenerEvent::ReturnWanted { source } => {
                    self.wanted += 1;
                    self.secrets += 1;
                    let (secret, law) = (Secret::new([self.secrets; 16]), (self.law)());
                    let topics = Vec::new();
                    let params = ReturnParams { source: params(""), secret, law, topics };
                    self.listener.open_return(self.now, source, params).expect("it asked");
                }
                ListenerEvent::Return { source, event: SourceEvent::StateWanted(_) }
                    if self.answers_after.is_none() =>
                {
                    self.put_command(source);
                }
                ListenerEvent::Monitor(MonitorEvent::Fresh {
                    source, is_repeat: false, ..
                }) => {
                    let record = self.listener.monitor().record(source);
                    if let Some(state) = record.and_then(|record| record.payload()) {
                        self.at_listener.on_state(self.now, state);
                        self.answers_at = self.answers_after.map(|after| self.now + after);
                    }
                }
                _ => {}
            }
        }
        let mut out = Vec::new();
        while let Some(transmit) = self.listener.poll_transmit(self.now, &mut out) {
            if let Ok(Message::Update(Update { opening: Some(_), .. })) =
                Message::parse(&out[..transmit.len])
            {
                self.opening.get_or_insert_with(|| out[..transmit.len].to_vec());
            }
            if !self.is_lost() {
                self.back.send(self.now, transmit.peer, &out[..transmit.len]);
                self.to_second += if transmit.peer == 2 { transmit.len as u64 } else { 0 };
            }
        }
    }

    pub(crate) fn put_command(&mut self, source: SourceKey) {
        let state = state(self.now, self.command_len);
        let source = self.listener.return_source_mut(source).expect("it is open");
        source.put(self.now, self.now, &state).expect("it fits");
    }

    /// An update of the dialer's session that asks for the return direction, as any party that
    /// knows its id can write it.
    pub(crate) fn forge(&self, seq: u64, frames: Frames<'_>) -> Vec<u8> {
        let update = Update {
            session: self.dialer.source().session(),
            seq,
            sent_at: self.now,
            clock_offset: None,
            wants_ack: true,
            wants_return: true,
            ack_mark: None,
            opening: None,
            frames,
        };
        let mut bytes = vec![0; DATAGRAM];
        let len = update.write(&mut bytes).expect("it fits");
        bytes.truncate(len);
        bytes
    }

    pub(crate) fn lose(&mut self, share: f64) {
        self.loss = (share * f64::from(u32::MAX)) as u32;
    }

    /// The newest state at either end is no older than this.
    pub(crate) fn assert_fresh(&self, within: Span, what: &str) {
        for (end, got) in [("listener", &self.at_listener), ("dialer", &self.at_dialer)] {
            let age = self.now.since(got.newest.unwrap_or(Time::ZERO));
            assert!(age <= within, "{what}: the newest state at the {end} is {age} old");
        }
    }
}

pub(crate) fn dialer(law: fn() -> Box<dyn RateLaw>, secret: u8) -> Dialer {
    let now = Time::from_nanos(1_000_000_000);
    let source = Source::new(params("robot"), Secret::new([secret; 16]), law(), now);
    Dialer::new(source.expect("it fits"), MonitorParams::default(), Secret::new([secret + 1; 16]))
}

pub(crate) fn listener(secret: u8) -> Listener<u8> {
    Listener::new(Monitor::new(MonitorParams::default(), Secret::new([secret; 16]))).returning()
}

pub(crate) fn fast() -> BitRate {
    BitRate::from_mbps(100)
}
