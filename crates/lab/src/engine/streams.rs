//! Random streams: one for each component, all from one seed.
//!
//! A stream is a PCG64 (XSL RR 128/64), whose state and increment are hashes of seed, run, kind
//! and index. Without the hash, generators whose states share their lower half give correlated
//! output: the lower half of a linear congruential generator never learns of the upper one
//! (O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for
//! Random Number Generation", HMC-CS-2014-0905, section 3).
//!
//! The hash is that of SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number
//! Generators", OOPSLA 2014): a step by the golden ratio, then Stafford's finaliser
//! ("Better Bit Mixing", 2011, variant 13), a bijection in which each input bit flips each output
//! bit with a probability of about 1/2.

use freshline_core::session::Secret;
use rand::RngExt;
use rand_pcg::Pcg64;

/// Hands out random streams. The draws of one component never change those of another.
#[derive(Debug, Clone, Copy)]
pub struct Streams {
    seed: u64,
    run: u32,
}

impl Streams {
    /// The streams of a run. Runs and seeds are independent of each other.
    pub const fn new(seed: u64, run: u32) -> Self {
        Self { seed, run }
    }

    /// The stream of component `index` among those called `kind`.
    pub fn stream(self, kind: &str, index: usize) -> Pcg64 {
        // FNV-1a: a number for a name that is the same on every machine.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let kind = kind.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
        let words = [self.seed, u64::from(self.run), kind, index as u64];
        let key = words.into_iter().fold(0, |key, word| mix(key ^ word));
        let word = |number: u64| u128::from(mix(key.wrapping_add(number.wrapping_mul(GOLDEN))));
        Pcg64::new(word(0) << 64 | word(1), word(2) << 64 | word(3))
    }

    /// The secret of a session, in a run that repeats.
    pub fn secret(self, kind: &str, index: usize) -> Secret {
        Secret::new(self.stream(kind, index).random())
    }
}

/// 2^64 over the golden ratio, rounded to an odd number.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's step: a bijection of 64 bits.
const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(GOLDEN);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    #[test]
    fn streams_differ_by_seed_run_kind_and_index_and_by_nothing_else() {
        let first = |seed, run, kind, index| Streams::new(seed, run).stream(kind, index).next_u64();
        let stream = first(1, 0, "hop", 0);
        assert_eq!(stream, first(1, 0, "hop", 0));
        for other in [(2, 0, "hop", 0), (1, 1, "hop", 0), (1, 0, "flow", 0), (1, 0, "hop", 1)] {
            assert_ne!(stream, first(other.0, other.1, other.2, other.3), "{other:?}");
        }
    }

    /// A draw as one of 8 equal parts of its range.
    fn eighth(stream: &mut Pcg64) -> usize {
        (stream.next_u64() >> 61) as usize
    }

    /// χ² of pairs of draws against a uniform distribution over 64 cells: 63 degrees of freedom.
    fn chi_squared(pairs: impl Iterator<Item = (usize, usize)>) -> f64 {
        let (mut cells, mut count) = ([0.0; 64], 0.0);
        for (first, second) in pairs {
            cells[8 * first + second] += 1.0;
            count += 1.0;
        }
        let expected = count / 64.0;
        cells.iter().map(|cell: &f64| (cell - expected).powi(2) / expected).sum()
    }

    /// χ² with 63 degrees of freedom is above this in one of a million cases.
    const BOUND: f64 = 128.5;

    #[test]
    fn the_draws_of_two_streams_are_independent() {
        let stream = |(seed, run, kind, index)| Streams::new(seed, run).stream(kind, index);
        let one = (1, 0, "flow", 0);
        for other in [
            (2, 0, "flow", 0),
            (3, 0, "flow", 0),
            (1 << 40, 0, "flow", 0),
            (1, 1, "flow", 0),
            (1, 0, "flow", 1),
            (1, 0, "flow", 2),
            (1, 0, "hop", 0),
            (2, 1, "flow", 0),
        ] {
            let (mut a, mut b) = (stream(one), stream(other));
            let found = chi_squared((0..20_000).map(|_| (eighth(&mut a), eighth(&mut b))));
            assert!(found < BOUND, "{one:?} and {other:?}: {found:.0} with 63 degrees of freedom");
        }
    }

    #[test]
    fn the_draws_of_successive_seeds_runs_and_indices_are_independent() {
        let second = |seed, run, kind, index: u32| {
            let mut stream = Streams::new(seed, run).stream(kind, index as usize);
            eighth(&mut stream);
            eighth(&mut stream)
        };
        let flow = |seed, run, index| second(seed, run, "flow", index);
        // Two seeds, two runs, two indices; two components over all seeds.
        let found = [
            chi_squared((0..20_000).map(|n| (flow(n, 0, 0), flow(n + 1, 0, 0)))),
            chi_squared((0..20_000).map(|n| (flow(1, n, 0), flow(1, n + 1, 0)))),
            chi_squared((0..20_000).map(|n| (flow(1, 0, n), flow(1, 0, n + 1)))),
            chi_squared((0..20_000).map(|n| (flow(n, 0, 0), flow(n, 0, 1)))),
            chi_squared((0..20_000).map(|n| (flow(n, 0, 0), second(n, 0, "hop", 0)))),
        ];
        assert!(found.iter().all(|found| *found < BOUND), "{found:.0?} with 63 degrees of freedom");
    }
}
