//! Laws that couple the subflows of a connection ([`CoupledLaw`]), and the state that subflows
//! share.
//!
//! Slow start and losses are handled as in Reno. The laws differ in how the window grows per
//! delivered segment.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use freshline_core::path::{CoupledLaw, Share};
use freshline_core::unit::{Packets, Span, Time};

use super::window::{LikeReno, Window};
use super::{Ack, Signal};

/// A subflow whose window growth depends on the state of all subflows.
#[derive(Debug, Clone)]
pub struct Coupled {
    name: &'static str,
    law: CoupledLaw,
    window: Window,
    member: Member,
}

impl Coupled {
    /// Linked increases: adds a subflow to a connection, with a window of `initial` segments.
    pub fn lia(initial: Packets, coupling: &Coupling) -> Self {
        Self::new("lia", CoupledLaw::Lia, initial, coupling)
    }

    /// Opportunistic linked increases: adds a subflow to a connection, with a window of `initial`
    /// segments.
    pub fn olia(initial: Packets, coupling: &Coupling) -> Self {
        Self::new("olia", CoupledLaw::Olia, initial, coupling)
    }

    fn new(name: &'static str, law: CoupledLaw, initial: Packets, coupling: &Coupling) -> Self {
        let window = Window::new(initial);
        Self { name, law, member: coupling.join(window.cwnd), window }
    }
}

impl LikeReno for Coupled {
    fn name(&self) -> &'static str {
        self.name
    }

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn on_ack(&mut self, _now: Time, ack: &Ack) {
        self.member.update(self.window.cwnd, ack.delivered.get() as f64, ack.rtt);
        if self.window.may_grow(ack) {
            let left = self.window.slow_start(ack.delivered);
            let grown = self.window.cwnd + left * self.member.look(self.law);
            self.window.cwnd = grown.max(1.0);
        }
    }

    fn on_congestion(&mut self, _now: Time, _signal: Signal) {
        self.window.answer_congestion(self.window.cwnd / 2.0);
        self.member.update_loss(self.window.cwnd);
    }
}

/// The subflows of one connection, for their laws. Clones share the same state.
#[derive(Debug, Clone, Default)]
pub struct Coupling(Arc<Mutex<Vec<Share>>>);

impl Coupling {
    /// The coupling of a connection without subflows yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a subflow.
    pub(super) fn join(&self, window: f64) -> Member {
        let mut shares = self.shares();
        shares.push(Share { window, ..Share::default() });
        Member { coupling: self.clone(), number: shares.len() - 1 }
    }

    fn shares(&self) -> MutexGuard<'_, Vec<Share>> {
        // No holder of the lock leaves the state half updated.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A subflow's place in its coupling.
#[derive(Debug, Clone)]
pub(super) struct Member {
    coupling: Coupling,
    number: usize,
}

impl Member {
    /// Publishes its window, the segments delivered and, if there was one, a round trip sample.
    pub(super) fn update(&self, window: f64, delivered: f64, round_trip: Option<Span>) {
        let mut shares = self.coupling.shares();
        let own = &mut shares[self.number];
        own.window = window;
        own.on_delivered(delivered);
        if let Some(sample) = round_trip.map(Span::as_secs_f64) {
            // Smoothed as in RFC 6298.
            let old = if own.round_trip > 0.0 { own.round_trip } else { sample };
            own.round_trip = old + (sample - old) / 8.0;
        }
    }

    /// A loss: a new interval between losses begins.
    pub(super) fn update_loss(&self, window: f64) {
        let mut shares = self.coupling.shares();
        let own = &mut shares[self.number];
        own.window = window;
        own.on_loss();
    }

    /// The increase of this subflow, computed over all subflows with a known round trip.
    fn look(&self, law: CoupledLaw) -> f64 {
        let shares = self.coupling.shares();
        let own = &shares[self.number];
        if own.round_trip <= 0.0 {
            return 0.0;
        }
        law.increase(own, shares.iter().filter(|share| share.round_trip > 0.0))
    }
}
