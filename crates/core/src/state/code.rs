//! The code that makes repair symbols: any `data` symbols of a state are enough to reassemble it.
//!
//! It is the systematic Reed-Solomon code over GF(2^16) of Lin, Al-Naffouri, Han and Chung, "Novel
//! polynomial basis with fast Fourier transform and its application to Reed-Solomon erasure codes"
//! (IEEE Trans. Inf. Theory, 2016), in the form of the library Leopard-RS for high rates: data
//! symbols are taken in chunks of as many as there are repair symbols, rounded up to a power of
//! two. The crate `reed-solomon-simd` computes it in O(n log n). Repair symbols are a part of the
//! protocol, so a test holds them to known values, and the variant for low rates, which would give
//! others, is not used.
//!
//! # Cost
//!
//! `cargo bench -p freshline-core --bench state` measures the cost of encoding and decoding.
//!
//! - Tables of 8.5 MiB are made at the first use of the code in a process; [`prepare`] does that at
//!   a time that the caller chooses. They are never freed.
//! - Decoding needs the values of the polynomial that is zero where symbols are missing. The crate
//!   takes a transform of all 65,536 elements for that, which for small states costs more than all
//!   the rest; a sender could ask for it with two small datagrams. Where few symbols are missing,
//!   the values are summed up one by one instead (`DIRECT` in `code/simd.rs`).
//! - A decoder takes 128 KiB of the stack, and for its work as many symbols as `data` plus `repair`
//!   (rounded up to a power of two), rounded up to a power of two: at most 6 times the state, with
//!   symbols rounded up to 64 bytes. An encoder takes less.
//!
//! A target without atomic pointers, or a build without the feature `fec`, has no code
//! ([`AVAILABLE`]).

use alloc::vec::Vec;

use super::Layout;

#[cfg(all(feature = "fec", target_has_atomic = "ptr"))]
mod simd;
#[cfg(not(all(feature = "fec", target_has_atomic = "ptr")))]
#[path = "code/none.rs"]
mod simd;

/// Whether this build has the code.
pub const AVAILABLE: bool = simd::AVAILABLE;

/// The working space in bytes that a decoder keeps for the next state. It frees a larger one after
/// use, as the senders choose the length of the largest state.
const KEEP: usize = 1 << 20;

/// The maximum number of repair symbols of a state with this number of data symbols; 0 in a build
/// without the code.
pub fn max_repair(data: u32) -> u32 {
    if !AVAILABLE || data >= Layout::MAX_SYMBOLS {
        return 0;
    }
    // Rounded up to a power of two, they must fit next to the data symbols.
    let room = Layout::MAX_SYMBOLS - data;
    data.min(1 << room.ilog2())
}

/// Makes the tables of the code, so that the first state with repair symbols does not have to.
pub fn prepare() {
    simd::prepare();
}

/// Makes repair symbols. One encoder serves all states of a source; it keeps its working space, of
/// about the length of the longest state so far.
#[derive(Default)]
pub struct Encoder {
    simd: Option<simd::Encoder>,
    padded: Vec<u8>,
}

/// Reassembles states from data and repair symbols. One decoder serves all sources of a monitor.
#[derive(Default)]
pub struct Decoder {
    simd: Option<simd::Decoder>,
    padded: Vec<u8>,
}

impl Encoder {
    /// An encoder without working space.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the contents of `out` by the state's repair symbols, one after the other. `state`
    /// must have the layout's length, and the build must have the code.
    pub(super) fn encode(&mut self, layout: &Layout, state: &[u8], out: &mut Vec<u8>) {
        out.clear();
        let symbols = (0..layout.data()).filter_map(|index| state.get(layout.range(index)?));
        simd::encode(&mut self.simd, layout, symbols, &mut self.padded, out);
    }
}

impl Decoder {
    /// A decoder without working space.
    pub fn new() -> Self {
        Self::default()
    }

    /// Passes the data symbols that are missing among `received` to `restored`, with their indices;
    /// the last one includes its padding. `received` must be `data` different symbols of the
    /// layout. Returns whether it succeeded, which it does unless the build has no code.
    pub(super) fn decode<'a>(
        &mut self,
        layout: &Layout,
        received: impl Iterator<Item = (u32, &'a [u8])>,
        restored: impl FnMut(u32, &[u8]),
    ) -> bool {
        let done = simd::decode(&mut self.simd, layout, received, &mut self.padded, restored);
        if simd::working_space(layout) > KEEP {
            self.simd = None;
        }
        done
    }
}

impl core::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl core::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Decoder").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "fec"))]
mod tests {
    use super::*;
    use alloc::vec;

    fn state(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * at / 7 + at) as u8).collect()
    }

    fn repair(state: &[u8], symbol_len: u16, repair: u16) -> Vec<u8> {
        let layout = Layout::new(state.len() as u32, symbol_len, repair).expect("a layout");
        let mut out = vec![1; 3];
        Encoder::new().encode(&layout, state, &mut out);
        assert_eq!(out.len(), usize::from(repair) * usize::from(symbol_len));
        out
    }

    /// Decodes from the last symbols, of either kind.
    fn from_the_last(state: &[u8], symbol_len: u16, repair: u16) -> Vec<u8> {
        let layout = Layout::new(state.len() as u32, symbol_len, repair).expect("a layout");
        let made = self::repair(state, symbol_len, repair);
        let symbol = |index| match layout.range(index) {
            Some(range) => (index, &state[range]),
            None => {
                let start = (index - layout.data()) as usize * layout.symbol_len();
                (index, &made[start..start + layout.symbol_len()])
            }
        };
        let mut out = state.to_vec();
        let missing = layout.repair() as usize * layout.symbol_len();
        out[..missing.min(state.len())].fill(0);
        let received = (layout.repair()..layout.symbols()).map(symbol);
        let done = Decoder::new().decode(&layout, received, |index, symbol| {
            let range = layout.range(index).expect("a data symbol");
            out[range.clone()].copy_from_slice(&symbol[..range.len()]);
        });
        assert!(done);
        out
    }

    #[test]
    fn repair_symbols_are_those_of_the_protocol() {
        let known =
            [81, 196, 107, 213, 117, 139, 255, 120, 241, 64, 207, 160, 124, 101, 222, 205, 9, 29];
        assert_eq!(repair(&state(23), 6, 3), known);
        // A single repair symbol is the sum of all.
        let sum = state(24)
            .chunks(6)
            .fold(vec![0; 6], |sum, symbol| sum.iter().zip(symbol).map(|(a, b)| a ^ b).collect());
        assert_eq!(repair(&state(24), 6, 1), sum);
    }

    #[test]
    fn states_come_back_from_repair_symbols_whatever_computes_the_zeroes() {
        // The last two are beyond `DIRECT`.
        for (len, symbol_len, repair) in
            [(1, 2, 1), (5, 2, 3), (500, 64, 8), (9_999, 100, 50), (1_300, 2, 400), (4_001, 4, 999)]
        {
            let state = state(len);
            assert_eq!(from_the_last(&state, symbol_len, repair), state, "{len} {symbol_len}");
        }
    }

    #[test]
    fn a_decoder_serves_states_of_all_lengths() {
        let mut decoder = Decoder::new();
        for len in [100u32, 3 << 20, 10] {
            let layout = Layout::new(len, 1_000, 1).expect("a layout");
            let state = state(len as usize);
            let sum = repair(&state, 1_000, 1);
            let data = (1..layout.data()).map(|at| (at, &state[layout.range(at).unwrap()]));
            let mut first = Vec::new();
            let received = data.chain([(layout.data(), &sum[..])]);
            assert!(decoder.decode(&layout, received, |index, symbol| {
                assert_eq!(index, 0);
                first.extend_from_slice(symbol);
            }));
            assert_eq!(first[..1_000.min(state.len())], state[..1_000.min(state.len())]);
            assert_eq!(decoder.simd.is_none(), len > 1 << 20);
        }
    }
}
