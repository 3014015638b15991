//! A state of which some symbols have been received.

use alloc::vec::Vec;

use super::{Budget, Decoder, Layout, Part};
use crate::unit::Time;

/// The fields that all parts of a state have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) number: u64,
    pub(super) generated_at: Time,
    pub(super) layout: Layout,
}

/// A state of which some symbols have been received.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) identity: Identity,
    /// The symbols one after the other as they were received, without padding.
    bytes: Vec<u8>,
    /// Their indices in the same order.
    order: Vec<u16>,
    /// A bit per index up to the highest received: whether that symbol is stored.
    stored: Vec<u64>,
    /// The bytes that the budget was charged for it.
    pub(super) share: usize,
    /// The count of parts when it last received one.
    pub(super) fed_at: u64,
}

impl Half {
    /// A state of which nothing is stored.
    pub(super) fn new(identity: Identity) -> Self {
        let (bytes, order, stored) = (Vec::new(), Vec::new(), Vec::new());
        Self { identity, bytes, order, stored, share: 0, fed_at: 0 }
    }

    /// Whether enough symbols are stored.
    pub(super) fn is_complete(&self) -> bool {
        self.order.len() as u32 == self.identity.layout.data()
    }

    /// Whether it is the complete state of this number.
    pub(super) fn is_state(&self, complete: u64) -> bool {
        self.identity.number == complete && self.is_complete()
    }

    /// How many symbols are stored.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Stores a symbol of this state, which it has, and returns whether it was missing; `None` if
    /// the budget is used up. `count` is the count of parts.
    pub(super) fn store(
        &mut self,
        part: &Part<'_>,
        count: u64,
        budget: &mut Budget,
    ) -> Option<bool> {
        let (word, bit) = (part.index as usize / 64, 1 << (part.index % 64));
        if self.stored.get(word).is_some_and(|word| word & bit != 0) {
            return Some(false);
        }
        self.make_room(part.bytes.len(), word + 1, budget)?;
        if word >= self.stored.len() {
            self.stored.resize(word + 1, 0);
        }
        self.stored[word] |= bit;
        // There are at most 2^16 symbols.
        self.order.push(part.index as u16);
        self.bytes.extend_from_slice(part.bytes);
        self.fed_at = count;
        Some(true)
    }

    /// Makes room for one more symbol, within the budget.
    fn make_room(&mut self, bytes: usize, words: usize, budget: &mut Budget) -> Option<()> {
        let layout = &self.identity.layout;
        let data = layout.data() as usize;
        let max_bytes = data * layout.symbol_len();
        let max_words = (layout.symbols() as usize).div_ceil(64);
        let bytes = grown(self.bytes.capacity(), self.bytes.len() + bytes, max_bytes);
        let order = grown(self.order.capacity(), self.order.len() + 1, data);
        let words = grown(self.stored.capacity(), words, max_words);
        if !budget.resize(&mut self.share, bytes + 2 * order + 8 * words) {
            return None;
        }
        self.bytes.reserve_exact(bytes - self.bytes.len());
        self.order.reserve_exact(order - self.order.len());
        self.stored.reserve_exact(words - self.stored.len());
        Some(())
    }

    /// The symbols with their indices, as they were received.
    fn symbols(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut rest = &self.bytes[..];
        self.order.iter().filter_map(move |index| {
            let index = u32::from(*index);
            let (symbol, after) =
                rest.split_at_checked(self.identity.layout.symbol_size(index)?)?;
            rest = after;
            Some((index, symbol))
        })
    }

    /// Writes the complete state to `out`, and returns the number of restored symbols; `None` if
    /// the build has no code, in which case repair symbols are not accepted.
    pub(super) fn put_together(&self, decoder: &mut Decoder, out: &mut Vec<u8>) -> Option<u32> {
        let layout = &self.identity.layout;
        out.clear();
        out.reserve_exact(layout.len());
        out.resize(layout.len(), 0);
        let mut missing = layout.data();
        for (index, symbol) in self.symbols() {
            if let Some(range) = layout.range(index) {
                out[range].copy_from_slice(symbol);
                missing -= 1;
            }
        }
        let restore = |index, symbol: &[u8]| {
            if let Some(range) = layout.range(index) {
                let len = range.len();
                out[range].copy_from_slice(&symbol[..len]);
            }
        };
        let done = missing == 0 || decoder.decode(layout, self.symbols(), restore);
        done.then_some(missing)
    }
}

/// The capacity that holds `needed` of at most `max` elements: doubled when it is used up.
fn grown(capacity: usize, needed: usize, max: usize) -> usize {
    if needed <= capacity { capacity } else { needed.max(capacity.saturating_mul(2).min(max)) }
}
