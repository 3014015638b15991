//! Both directions of a path between two ends, with a Wi-Fi cell if there is one.
//!
//! ```text
//! clients ─► ┌─────┐ ─► forward hops ─► ends
//!            │ air │
//! clients ◄─ └─────┘ ◄─ reverse hops ◄── ends
//! ```
//!
//! The clients are the stations of one cell, and station 0 is their access point. Packets from
//! clients cross the air before the forward hops, and packets to clients cross the reverse hops
//! before the air. Both directions share the air and contend for it. Without a cell, the two
//! directions are independent.
//!
//! [`Conditions`] is driven like a [`Path`], with a [`Direction`] at its input and its output. A
//! late driver does not change the result: packets enter and leave the cell at the times at which
//! the hops delivered them.

use alloc::collections::VecDeque;
use core::fmt;

use rand_pcg::Pcg64;

use super::{Delivered, HopConfig, Path, PathConfig, PathError};
use crate::router::{Discipline, Drops, Packet};
use crate::unit::Time;
use crate::wlan::mac::{self, Category, Cell, CellConfig, CellError, Transmission};

/// One of the two directions of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client or source to the far end.
    Forward,
    /// From the far end to the client or source.
    Reverse,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Forward, Self::Reverse];

    /// The name in files and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Reverse => "reverse",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A packet that may go over the air.
pub trait Airborne: Packet {
    /// The station of its client, from 1 to the number of clients.
    fn station(&self) -> u32;
}

/// A packet that passed a point on the path.
#[derive(Debug)]
pub enum Passage<'a, P> {
    /// A packet that left a hop: direction, the hop's index, and the packet.
    Hop(Direction, usize, &'a Delivered<P>),
    /// A packet that crossed the air.
    Air(&'a mac::Delivered<P>),
}

/// The path between two ends, in both directions; see the head of this file.
#[derive(Debug)]
pub struct Conditions<P> {
    forward: Path<Discipline<P>, P, Pcg64>,
    reverse: Path<Discipline<P>, P, Pcg64>,
    air: Option<Air<P>>,
}

#[derive(Debug)]
struct Air<P> {
    cell: Cell<P>,
    /// Packets for clients, in the order of arrival. A client's network card delivers all packets
    /// of a frame together, at the frame's end.
    arrived: VecDeque<Delivered<P>>,
    /// When the last of them is delivered.
    handed_at: Time,
}

impl<P> Air<P> {
    /// The station number of the access point.
    const ACCESS_POINT: u32 = 0;
}

impl<P: Airborne> Conditions<P> {
    /// Queues a packet in `direction`.
    ///
    /// # Panics
    ///
    /// If there is a cell and the packet's station is not one of its clients.
    pub fn enqueue(
        &mut self,
        now: Time,
        direction: Direction,
        packet: P,
        drops: &mut Drops<'_, P>,
    ) {
        self.advance(now, drops, &mut |_| ());
        match (direction, &mut self.air) {
            (Direction::Forward, Some(air)) => air.enqueue(now, direction, packet, drops),
            (Direction::Forward, None) => self.forward.enqueue(now, packet, drops),
            (Direction::Reverse, _) => self.reverse.enqueue(now, packet, drops),
        }
    }

    /// The next packet that has arrived in `direction` by `now`; call until it returns `None`.
    pub fn poll(
        &mut self,
        now: Time,
        direction: Direction,
        drops: &mut Drops<'_, P>,
    ) -> Option<Delivered<P>> {
        self.advance(now, drops, &mut |_| ());
        match (direction, &mut self.air) {
            (Direction::Forward, _) => self.forward.poll(now, drops),
            (Direction::Reverse, Some(air)) => {
                air.arrived.front().filter(|delivered| delivered.at <= now)?;
                air.arrived.pop_front()
            }
            (Direction::Reverse, None) => self.reverse.poll(now, drops),
        }
    }

    /// When a packet can leave a hop or the cell next: call [`Conditions::poll`] for both
    /// directions then.
    pub fn poll_timeout(&self) -> Option<Time> {
        let air = self.air.as_ref().and_then(|air| {
            let arrived = air.arrived.front().map(|delivered| delivered.at);
            Time::earliest([arrived, air.cell.poll_timeout()])
        });
        Time::earliest([self.forward.next_delivery(), self.reverse.next_delivery(), air])
    }

    /// The hops of `direction`.
    pub fn path(&self, direction: Direction) -> &Path<Discipline<P>, P, Pcg64> {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Reverse => &self.reverse,
        }
    }

    /// The cell of the clients, if there is one.
    pub fn cell(&self) -> Option<&Cell<P>> {
        self.air.as_ref().map(|air| &air.cell)
    }

    /// Forwards packets that left a hop or the cell until `now`, and passes each to `watch`.
    ///
    /// [`Conditions::enqueue`] and [`Conditions::poll`] do this without a watch; a driver that
    /// records every packet calls it before them, with the same `now`. Packets that leave the last
    /// hop towards an end, not into the air, appear in [`Conditions::poll`].
    pub fn advance(
        &mut self,
        now: Time,
        drops: &mut Drops<'_, P>,
        watch: &mut dyn FnMut(Passage<'_, P>),
    ) {
        let Self { forward, reverse, air } = self;
        reverse.advance(now, drops, &mut |hop, left| {
            watch(Passage::Hop(Direction::Reverse, hop, left));
        });
        if let Some(air) = air {
            let last = reverse.hops().len() - 1;
            while let Some(left) = reverse.poll(now, drops) {
                watch(Passage::Hop(Direction::Reverse, last, &left));
                air.enqueue(left.at, Direction::Reverse, left.packet, drops);
            }
            while let Some(arrival) = air.cell.poll(now, drops) {
                watch(Passage::Air(&arrival));
                let mac::Delivered { at, to, frame, packet, .. } = arrival;
                if to == Air::<P>::ACCESS_POINT {
                    let mut on_hop =
                        |hop, left: &_| watch(Passage::Hop(Direction::Forward, hop, left));
                    forward.advance(at, drops, &mut on_hop);
                    forward.enqueue(at, packet, drops);
                } else {
                    let at = at.max(frame.at).max(air.handed_at);
                    air.handed_at = at;
                    air.arrived.push_back(Delivered { at, packet });
                }
            }
        }
        forward.advance(now, drops, &mut |hop, left| {
            watch(Passage::Hop(Direction::Forward, hop, left));
        });
    }
}

impl<P: Airborne> Air<P> {
    fn enqueue(&mut self, now: Time, direction: Direction, packet: P, drops: &mut Drops<'_, P>) {
        let (client, access_point) = (packet.station(), Self::ACCESS_POINT);
        let (from, to) = match direction {
            Direction::Forward => (client, access_point),
            Direction::Reverse => (access_point, client),
        };
        let category = Category::of_dscp(packet.header().dscp);
        self.cell.enqueue(now, Transmission { from, to, category, packet }, drops);
    }
}

/// Both directions between two ends: the content of a path file.
///
/// ```toml
/// [[forward.hop]]
/// rate = "6mbit"
/// delay = "10ms"
/// queue = "100p"
///
/// [[reverse.hop]]
/// delay = "15ms"
/// loss = 0.05
///
/// [wlan]
/// standard = "802.11ac"
/// rate = "mcs4"
/// width = "40MHz"
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct ConditionsConfig {
    /// From the clients to the target.
    pub forward: PathConfig,
    /// From the target back to the clients.
    pub reverse: PathConfig,
    /// The cell of which the clients are stations; unset if they have no Wi-Fi. `stations` must not
    /// be given: there is one for the access point and one for each client.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub wlan: Option<CellConfig>,
}

/// Conditions that cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConditionsError {
    /// An invalid hop.
    #[error("{direction} path, {source}")]
    Path {
        /// The path.
        direction: Direction,
        /// The hop and what to do.
        source: PathError,
    },
    /// The number of stations was given.
    #[error("wlan: `stations` follows from the clients, one each; leave it out")]
    Stations,
    /// More clients than a cell can have, or zero.
    #[error("wlan: a cell takes 1 to {most} clients, not {0}; serve as many", most = CellConfig::MAX_STATIONS - 1)]
    Clients(usize),
    /// An invalid cell.
    #[error("wlan: {0}")]
    Cell(#[from] CellError),
}

impl ConditionsConfig {
    /// The random stream of the cell, above the streams of all hops.
    const AIR_STREAM: u128 = 1 << 64;

    /// Whether packets that enter in `direction` together always leave together
    /// ([`HopConfig::keeps_together`]).
    pub fn keeps_together(&self, direction: Direction) -> bool {
        let path = match direction {
            Direction::Forward => &self.forward,
            Direction::Reverse => &self.reverse,
        };
        self.wlan.is_none() && path.hop.iter().all(HopConfig::keeps_together)
    }

    /// Builds the conditions for `clients` clients. All random numbers follow from `seed`: the n-th
    /// packet over a hop always has the same loss and delay. Traces of models without their own
    /// seed follow from it too: hops of both directions have the same seed and different streams.
    pub fn build<P: Airborne>(
        &self,
        seed: u64,
        clients: usize,
    ) -> Result<Conditions<P>, ConditionsError> {
        let rng = |stream| Pcg64::new(seed.into(), stream);
        // The hops of both directions take the random streams alternately.
        let path = |direction, config: &PathConfig| {
            let config = config.or_trace_seeds(seed, |hop| direction as u64 + 2 * hop as u64);
            let path = config.build(|hop| rng(direction as u128 + 2 * hop as u128));
            path.map_err(|source| ConditionsError::Path { direction, source })
        };
        let (forward, reverse) =
            (path(Direction::Forward, &self.forward)?, path(Direction::Reverse, &self.reverse)?);
        let air = match &self.wlan {
            None => None,
            Some(config) => {
                let cell = cell_of(config, clients)?.build(rng(Self::AIR_STREAM))?;
                Some(Air { cell, arrived: VecDeque::new(), handed_at: Time::ZERO })
            }
        };
        Ok(Conditions { forward, reverse, air })
    }
}

/// The cell of `config`, with one station per client.
fn cell_of(config: &CellConfig, clients: usize) -> Result<CellConfig, ConditionsError> {
    if config.stations != CellConfig::default().stations {
        return Err(ConditionsError::Stations);
    }
    let fits = |clients: &u32| (1..CellConfig::MAX_STATIONS).contains(clients);
    let stations = u32::try_from(clients).ok().filter(fits);
    let stations = 1 + stations.ok_or(ConditionsError::Clients(clients))?;
    Ok(CellConfig { stations, ..config.clone() })
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;
    use crate::unit::Bytes;
    use alloc::string::{String, ToString};

    struct Update;

    impl Packet for Update {
        fn size(&self) -> Bytes {
            Bytes::new(1024)
        }
    }

    impl Airborne for Update {
        fn station(&self) -> u32 {
            1
        }
    }

    fn path(text: &str) -> PathConfig {
        PathConfig { hop: [text.parse().unwrap()].into() }
    }

    #[test]
    fn a_file_says_the_same_as_flags() {
        let file = r#"
            [[forward.hop]]
            rate = "6mbit"
            delay = "10ms"
            jitter = "1ms"
            order = "free"
            mtu = "1500B"
            queue = "64kB"
            [[reverse.hop]]
            delay = "15ms"
            loss = 0.05
            to_bad = 0.01
            to_good = 0.25
            bad_loss = 0.5
            [wlan]
            lifetime = "1s"
        "#;
        let lifetime = crate::unit::Span::from_secs(1);
        let flags = ConditionsConfig {
            forward: path("rate=6mbit,delay=10ms,jitter=1ms,order=free,mtu=1500B,queue=64kB"),
            reverse: path("delay=15ms,loss=0.05,to_bad=0.01,to_good=0.25,bad_loss=0.5"),
            wlan: Some(CellConfig { lifetime, ..CellConfig::default() }),
        };
        assert_eq!(toml::from_str::<ConditionsConfig>(file).unwrap(), flags);
        let written = toml::to_string(&flags).unwrap();
        assert_eq!(toml::from_str::<ConditionsConfig>(&written).unwrap(), flags);
    }

    fn refusal(file: &str, clients: usize) -> String {
        let read = toml::from_str::<ConditionsConfig>(file).map_err(|error| error.to_string());
        let built = read.and_then(|config| {
            config.build::<Update>(1, clients).map(|_| ()).map_err(|error| error.to_string())
        });
        built.unwrap_err()
    }

    #[test]
    fn a_misspelt_key_is_refused_with_its_line() {
        for (file, place, key) in [
            ("[[forward.hop]]\ndelay = \"10ms\"\nlos = 0.1\n", "line 3", "`los`"),
            ("[wlan]\nspeed = 3\n", "line 2", "`speed`"),
        ] {
            let message = refusal(file, 1);
            let explained = message.contains(&["unknown field ", key].concat());
            assert!(message.contains(place) && explained, "{message}");
        }
    }

    #[test]
    fn a_cell_that_makes_no_sense_is_refused_with_the_remedy() {
        for (file, clients, remedy) in [
            (
                "[wlan]\nrate = \"mcs3\"",
                1,
                "wlan: `rate` mcs3 does not exist in 802.11a with `width` 20MHz",
            ),
            (
                "[wlan]\nstations = 7",
                1,
                "wlan: `stations` follows from the clients, one each; leave",
            ),
            ("[wlan]", 0, "wlan: a cell takes 1 to 999 clients, not 0; serve"),
            ("[wlan]", 1000, "wlan: a cell takes 1 to 999 clients, not 1000; serve as many"),
            ("[[reverse.hop]]\nloss = 7\n[wlan]", 1, "reverse path, hop 1: `loss` is 7; give"),
        ] {
            let message = refusal(file, clients);
            assert!(message.starts_with(remedy), "{message}");
        }
    }
}
