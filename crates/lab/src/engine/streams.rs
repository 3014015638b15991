//! One random stream a component, all from one seed.

use rand_pcg::Pcg64;

/// Hands out random streams. What one component draws never changes what another one gets.
#[derive(Debug, Clone, Copy)]
pub struct Streams {
    seed: u64,
    run: u32,
}

impl Streams {
    /// The streams of a run. Runs of one seed are independent of each other.
    pub const fn new(seed: u64, run: u32) -> Self {
        Self { seed, run }
    }

    /// The stream of component `index` among those called `kind`.
    pub fn stream(self, kind: &str, index: usize) -> Pcg64 {
        // FNV-1a: a number for a name that is the same on every machine.
        let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let kind = kind.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
        let state = u128::from(self.seed) << 64 | u128::from(self.run);
        Pcg64::new(state, u128::from(kind) << 64 | index as u128)
    }
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
}
