//! A keyed hash of flows.
//!
//! ```text
//! h(s) = (k₁₀ + Σ_{i=0..4} (k₂ᵢ + s₂ᵢ)(k₂ᵢ₊₁ + s₂ᵢ₊₁) mod 2⁶⁴) ÷ 2³²
//! ```
//!
//! over the ten 32-bit words s of a flow and eleven random 64-bit keys k: the family
//! Multilinear-HM of Lemire and Kaser, "Strongly Universal String Hashing is Fast", The Computer
//! Journal 57(11), 2014. It is strongly universal: for any two flows the pair of hashes is uniform
//! over all pairs, and so is any fixed selection of their bits. A sender that does not know the
//! keys can therefore not choose flows that collide more often than chance: n flows over as many
//! buckets leave less than one other flow in the bucket of each, on average over the keys,
//! whichever the flows. That is a theorem, where SipHash has a conjecture, and it takes five
//! multiplications. It does not keep the keys secret from a reader of hashes; so
//! hashes must never leave the router, nor order or drop packets in a way that shows them.

use core::fmt;

use rand::Rng;

use super::{FlowKey, QdiscError};
use crate::unit::Bytes;

/// The keys of the hash, drawn at random for each table.
#[derive(Clone)]
pub(super) struct FlowHash {
    of_words: [[u64; 2]; 5],
    offset: u64,
}

impl FlowHash {
    /// Keys from `rng`, which must be unpredictable if packets come from untrusted senders.
    pub(super) fn draw(rng: &mut impl Rng) -> Self {
        let mut key = || rng.next_u64();
        Self { of_words: core::array::from_fn(|_| [key(), key()]), offset: key() }
    }

    /// The hash; any of its bits are as good as the others.
    #[inline]
    pub(super) fn hash(&self, flow: FlowWords) -> u32 {
        let sum = flow.0.iter().zip(&self.of_words).fold(self.offset, |sum, (word, [k, l])| {
            let (low, high) = (word & 0xffff_ffff, word >> 32);
            sum.wrapping_add(k.wrapping_add(low).wrapping_mul(l.wrapping_add(high)))
        });
        (sum >> 32) as u32
    }
}

/// Rejects turns of queues that take too much memory, or too long.
pub(super) fn check_turns(queues: u32, quantum: Bytes) -> Result<(), QdiscError> {
    const MIN_QUANTUM: Bytes = Bytes::new(256);
    const MAX_QUEUES: u32 = 65_536;
    if !(1..=MAX_QUEUES).contains(&queues) {
        return Err(QdiscError::Queues { queues, most: MAX_QUEUES });
    }
    if quantum < MIN_QUANTUM {
        return Err(QdiscError::Quantum { quantum, least: MIN_QUANTUM });
    }
    Ok(())
}

/// A flow as numbers that fit into registers.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowWords([u64; 5]);

impl FlowWords {
    /// Whether both are the same flow. It stays in registers; comparing arrays goes through memory,
    /// and stalls on values that have just been written there.
    #[inline]
    pub(super) fn is(self, other: Self) -> bool {
        let difference = |sum, (one, other)| sum | (one ^ other);
        self.0.into_iter().zip(other.0).fold(0, difference) == 0
    }

    /// Of an address alone. Its words are hashed as those of a flow are.
    pub(super) fn of_host(address: u128) -> Self {
        Self([address as u64, (address >> 64) as u64, 0, 0, 0])
    }
}

impl From<FlowKey> for FlowWords {
    #[inline]
    fn from(flow: FlowKey) -> Self {
        let low = |bits: u128| bits as u64;
        let high = |bits: u128| (bits >> 64) as u64;
        let source = u128::from_le_bytes(flow.source.octets());
        let destination = u128::from_le_bytes(flow.destination.octets());
        let transport = u64::from(flow.source_port)
            | u64::from(flow.destination_port) << 16
            | u64::from(flow.protocol) << 32;
        Self([low(source), high(source), low(destination), high(destination), transport])
    }
}

impl fmt::Debug for FlowHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowHash(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    fn keys(seed: u64) -> FlowHash {
        FlowHash::draw(&mut Pcg64::seed_from_u64(seed))
    }

    #[test]
    fn every_part_of_a_flow_counts() {
        let plain = FlowKey::default();
        let one = Ipv6Addr::from_bits(1);
        let far = Ipv6Addr::from_bits(1 << 127);
        let others = [
            FlowKey { source: one, ..plain },
            FlowKey { source: far, ..plain },
            FlowKey { destination: one, ..plain },
            FlowKey { destination: far, ..plain },
            FlowKey { source_port: 1, ..plain },
            FlowKey { destination_port: 1, ..plain },
            FlowKey { protocol: 1, ..plain },
        ];
        for other in others {
            assert_ne!(keys(1).hash(plain.into()), keys(1).hash(other.into()), "{other:?}");
        }
    }

    #[test]
    fn similar_flows_spread_as_chance_spreads_them() {
        // One subnet, one port after the other, as in a scan or a flood.
        let flows = |n: u32| FlowKey {
            source: Ipv4Addr::from_bits(0x0a00_0000 + (n >> 8)).to_ipv6_mapped(),
            source_port: 4000 + (n & 0xff) as u16,
            ..FlowKey::default()
        };
        let (mut pairs, keyings) = (0, 20);
        for seed in 0..keyings {
            let mut buckets = [0u64; 4096];
            for n in 0..4096 {
                buckets[keys(seed).hash(flows(n).into()) as usize % 4096] += 1;
            }
            pairs += buckets.iter().map(|n| n * n.saturating_sub(1) / 2).sum::<u64>();
        }
        // 4096 · 4095 / 2 pairs of flows, each in one bucket with probability 1/4096.
        let expected = 4095 / 2 * keyings;
        assert!(pairs < expected * 3 / 2, "{pairs} pairs in one bucket, {expected} expected");
    }

    #[test]
    fn the_keys_are_not_printed() {
        assert_eq!(alloc::format!("{:?}", keys(1)), "FlowHash(…)");
    }
}
