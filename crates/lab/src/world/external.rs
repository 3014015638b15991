//! Hosts outside of the world, which is their network: they hand in datagrams, and receive them at
//! the other end.
//!
//! ```text
//!   host ── World::send ──► parcel ─► … ─► arrived ── World::poll_arrival ──► host
//! ```
//!
//! The hosts have timers of their own, and [`World::poll_timeout`] returns the time of the world's
//! next event.

use std::collections::VecDeque;

use freshline_core::link::Direction;
use freshline_core::unit::{Bytes, Time};

use super::World;
use super::datagrams::Datagrams;
use super::parcel::{Body, Load, UDP_OVER_IPV4};

/// The datagrams between hosts outside of the world.
#[derive(Debug)]
pub struct External {
    datagrams: Datagrams,
    /// The path, the direction and the number of each that has arrived.
    arrived: VecDeque<(u8, Direction, u32)>,
    arrivals: u64,
}

/// The end at which a datagram has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Its path.
    pub path: u8,
    /// Its direction.
    pub direction: Direction,
    /// The port of the near end, as passed to [`World::send`].
    pub port: u16,
}

impl External {
    /// A flow without datagrams.
    pub fn new() -> Self {
        Self { datagrams: Datagrams::new(), arrived: VecDeque::new(), arrivals: 0 }
    }

    /// The number of datagrams that have arrived, copies included.
    pub const fn arrivals(&self) -> u64 {
        self.arrivals
    }

    pub(super) const fn datagrams_mut(&mut self) -> &mut Datagrams {
        &mut self.datagrams
    }

    pub(super) fn on_arrival(&mut self, path: u8, direction: Direction, number: u32) {
        self.arrivals += 1;
        self.arrived.push_back((path, direction, number));
    }
}

impl Default for External {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// Sends a datagram over a path of the flow `flow`, which is [`External`], at [`World::now`].
    /// `port` is the near end's port, as source or destination; faults do not damage it.
    ///
    /// # Panics
    /// If the flow is not [`External`], or does not have the path.
    pub fn send(
        &mut self,
        flow: usize,
        path: u8,
        direction: Direction,
        port: u16,
        datagram: &[u8],
    ) {
        let external = self.flows[flow].flow.external_mut().expect("the flow is external");
        let number = external.datagrams.put(datagram, port);
        let body = match direction {
            Direction::Forward => Body::Update(number),
            Direction::Reverse => Body::Answer(number),
        };
        let size = Bytes::new(datagram.len() as u64) + UDP_OVER_IPV4;
        self.send_over(flow, path, direction, Load::plain(size, body));
    }

    /// The next datagram of the flow `flow` that has arrived by [`World::now`], in the order of
    /// arrival; its bytes replace those in `datagram`. Call it until it returns `None`.
    pub fn poll_arrival(&mut self, flow: usize, datagram: &mut Vec<u8>) -> Option<Arrival> {
        let external = self.flows[flow].flow.external_mut()?;
        let (path, direction, number) = external.arrived.pop_front()?;
        datagram.clear();
        datagram.extend_from_slice(external.datagrams.get(number)?);
        let port = external.datagrams.port(number);
        external.datagrams.remove(number);
        Some(Arrival { path, direction, port })
    }

    /// The time of the world's next event. It is before [`World::now`] if an event is overdue; then
    /// call [`World::run_until`].
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timetable.next().map(|(at, _)| at)
    }
}
