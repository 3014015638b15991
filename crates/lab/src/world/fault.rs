//! Faults of a path beyond those of its hops: duplicated, truncated or corrupted datagrams.
//!
//! ```text
//!  parcel ─► duplication ─► each copy: truncation ─► corruption ─► its next leg
//!                                          └─────────────┴──► lost, where a checksum finds it
//! ```
//!
//! A fault is a leg of a path and takes no time. Loss, in bursts or not, delay, jitter and reordering are
//! those of the hops of the path. A TCP segment or a packet of cross traffic is carried without its bytes:
//! it does not arrive twice, and is lost if it is damaged.

use rand::RngExt;
use rand_pcg::Pcg64;

use super::datagrams::Datagrams;
use super::parcel::{Body, Load, Parcel};
use super::{World, dropped};

/// The probabilities of the faults of a leg, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Faults {
    /// That a datagram arrives twice.
    pub duplication: f64,
    /// That it is truncated to a random length.
    pub truncation: f64,
    /// That up to three of its bits flip.
    pub corruption: f64,
    /// Whether a datagram with flipped bits arrives all the same, as over UDP without a checksum.
    pub unchecked: bool,
}

/// A leg with faults.
#[derive(Debug)]
pub struct Fault {
    pub(super) faults: Faults,
    rng: Pcg64,
}

impl Fault {
    /// A leg with these faults, drawn from `rng`.
    pub fn new(faults: Faults, rng: Pcg64) -> Self {
        Self { faults, rng }
    }

    /// Duplicates a datagram with a probability. Returns the copy.
    fn duplicate(&mut self, datagrams: &mut Datagrams, body: Body) -> Option<Body> {
        if !self.rng.random_bool(self.faults.duplication) {
            return None;
        }
        Some(match body {
            Body::Update(number) => Body::Update(datagrams.duplicate(number)?),
            Body::Topics(number) => Body::Topics(datagrams.duplicate(number)?),
            Body::Answer(number) => Body::Answer(datagrams.duplicate(number)?),
            _ => return None,
        })
    }

    /// Damages a datagram. Returns whether it arrives.
    fn lets_arrive(&mut self, datagrams: Option<&mut Datagrams>, body: Body) -> bool {
        let Self { faults, rng } = self;
        let is_cut = rng.random_bool(faults.truncation);
        let is_corrupt = rng.random_bool(faults.corruption);
        if !is_cut && !is_corrupt {
            return true;
        }
        let (Body::Update(number) | Body::Topics(number) | Body::Answer(number)) = body else {
            return false;
        };
        let Some(datagrams) = datagrams else { return false };
        if is_corrupt && !faults.unchecked {
            return false;
        }
        let len = datagrams.get(number).map_or(0, <[u8]>::len);
        if is_cut && len > 0 {
            datagrams.truncate(number, rng.random_range(0..len));
        }
        if is_corrupt && let Some(bytes) = datagrams.get_mut(number) {
            flip_bits(bytes, rng);
        }
        true
    }
}

impl World {
    /// Adds legs with faults.
    pub fn with_faults(mut self, faults: Vec<Fault>) -> Self {
        self.faults = faults;
        self
    }

    /// A parcel crosses a leg with faults.
    pub(super) fn cross_fault(&mut self, fault: usize, parcel: Parcel) {
        let body = parcel.load.body;
        let datagrams = self.flows[parcel.flow as usize].flow.datagrams_mut();
        let copy = datagrams.and_then(|all| self.faults[fault].duplicate(all, body));
        for body in [Some(body), copy].into_iter().flatten() {
            let parcel = Parcel { load: Load { body, ..parcel.load }, ..parcel };
            let datagrams = self.flows[parcel.flow as usize].flow.datagrams_mut();
            if self.faults[fault].lets_arrive(datagrams, body) {
                self.next_leg(parcel, None);
            } else {
                dropped(&mut self.flows, &parcel);
            }
        }
    }
}

fn flip_bits(bytes: &mut [u8], rng: &mut Pcg64) {
    let Some(last) = (bytes.len() * 8).checked_sub(1) else { return };
    for _ in 0..rng.random_range(1..4) {
        let bit = rng.random_range(0..=last);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}
