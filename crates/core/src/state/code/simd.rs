//! The code by the crate `reed-solomon-simd`.

use alloc::vec::Vec;

use reed_solomon_simd::Error;
use reed_solomon_simd::engine::{DefaultEngine, Engine, GF_ORDER, GfElement, ShardsRefMut, tables};
use reed_solomon_simd::rate::{HighRateDecoder, HighRateEncoder, RateDecoder, RateEncoder};

use crate::state::Layout;

pub(super) const AVAILABLE: bool = true;

pub(super) type Encoder = HighRateEncoder<Sparse>;
pub(super) type Decoder = HighRateDecoder<Sparse>;

/// Up to this product of the number of missing symbols and the number of all, the sums over the
/// missing ones are computed directly. Beyond it, the crate's transform is faster.
const DIRECT: usize = 1 << 18;

/// The crate's engine with a shorter evaluation of polynomials that have few zeroes.
pub(super) struct Sparse(DefaultEngine);

impl Engine for Sparse {
    fn fft(
        &self,
        data: &mut ShardsRefMut<'_>,
        pos: usize,
        size: usize,
        truncated_size: usize,
        skew_delta: usize,
    ) {
        self.0.fft(data, pos, size, truncated_size, skew_delta);
    }

    fn ifft(
        &self,
        data: &mut ShardsRefMut<'_>,
        pos: usize,
        size: usize,
        truncated_size: usize,
        skew_delta: usize,
    ) {
        self.0.ifft(data, pos, size, truncated_size, skew_delta);
    }

    fn mul(&self, x: &mut [[u8; 64]], log_m: GfElement) {
        self.0.mul(x, log_m);
    }

    /// Replaces each of the first `used` elements by the sum of log(its index ⊕ i) over all i whose
    /// element is 1, modulo 2^16 − 1: the logarithm of the polynomial with zeroes at these i.
    fn eval_poly(elements: &mut [GfElement; GF_ORDER], used: usize) {
        let zeroes: Vec<u16> = (0..).zip(&elements[..used]).filter_map(is_zero).collect();
        if zeroes.len() * used > DIRECT {
            DefaultEngine::eval_poly(elements, used);
            return;
        }
        // The table has 2^16 − 1, which is 0 here, for the index 0.
        let log = &tables::get_exp_log().log;
        for (at, element) in (0u16..).zip(&mut elements[..used]) {
            let sum: u32 = zeroes.iter().map(|zero| u32::from(log[usize::from(at ^ zero)])).sum();
            *element = (sum % 0xffff) as u16;
        }
    }
}

fn is_zero((at, element): (u16, &GfElement)) -> Option<u16> {
    (*element == 1).then_some(at)
}

pub(super) fn prepare() {
    DefaultEngine::new();
    tables::get_log_walsh();
}

/// The bytes that decoding needs besides the stack.
pub(super) fn working_space(layout: &Layout) -> usize {
    let chunk = layout.repair().next_power_of_two();
    let symbols = (chunk + layout.data()).next_power_of_two() as usize;
    symbols * layout.symbol_len().next_multiple_of(64)
}

fn sizes(layout: &Layout) -> [usize; 3] {
    [layout.data() as usize, layout.repair() as usize, layout.symbol_len()]
}

/// A symbol with its padding, which is made in `padded`.
fn pad<'a>(symbol: &'a [u8], len: usize, padded: &'a mut Vec<u8>) -> &'a [u8] {
    if symbol.len() == len {
        return symbol;
    }
    padded.clear();
    padded.extend_from_slice(symbol);
    padded.resize(len, 0);
    padded
}

pub(super) fn encode<'a>(
    encoder: &mut Option<Encoder>,
    layout: &Layout,
    symbols: impl Iterator<Item = &'a [u8]>,
    padded: &mut Vec<u8>,
    out: &mut Vec<u8>,
) {
    let encoded = (|| -> Result<(), Error> {
        let [data, repair, len] = sizes(layout);
        let encoder = match encoder {
            Some(encoder) => {
                encoder.reset(data, repair, len)?;
                encoder
            }
            None => {
                let engine = Sparse(DefaultEngine::new());
                encoder.insert(Encoder::new(data, repair, len, engine, None)?)
            }
        };
        for symbol in symbols {
            encoder.add_original_shard(pad(symbol, len, padded))?;
        }
        out.reserve_exact(repair * len);
        encoder.encode()?.recovery_iter().for_each(|symbol| out.extend_from_slice(symbol));
        Ok(())
    })();
    debug_assert_eq!(encoded, Ok(()), "{layout:?} is within the limits of the code");
}

pub(super) fn decode<'a>(
    decoder: &mut Option<Decoder>,
    layout: &Layout,
    received: impl Iterator<Item = (u32, &'a [u8])>,
    padded: &mut Vec<u8>,
    mut restored: impl FnMut(u32, &[u8]),
) -> bool {
    let decoded = (|| -> Result<(), Error> {
        let [data, repair, len] = sizes(layout);
        let decoder = match decoder {
            Some(decoder) => {
                decoder.reset(data, repair, len)?;
                decoder
            }
            None => {
                let engine = Sparse(DefaultEngine::new());
                decoder.insert(Decoder::new(data, repair, len, engine, None)?)
            }
        };
        for (index, symbol) in received {
            let symbol = pad(symbol, len, padded);
            match (index as usize).checked_sub(data) {
                None => decoder.add_original_shard(index as usize, symbol)?,
                Some(index) => decoder.add_recovery_shard(index, symbol)?,
            }
        }
        let decoded = decoder.decode()?;
        decoded.restored_original_iter().for_each(|(index, symbol)| restored(index as u32, symbol));
        Ok(())
    })();
    debug_assert_eq!(decoded, Ok(()), "{layout:?} is within the limits of the code");
    decoded.is_ok()
}
