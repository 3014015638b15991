//! How a state is cut into symbols.
//!
//! ```text
//! bytes     0          s          2s                     len
//!           ├──────────┼──────────┼─── … ───┼────────┤
//! symbols        0          1                data − 1      data … data + repair − 1
//!           └───────────── data symbols ─────────────┘   └───── repair symbols ─────┘
//! ```
//!
//! All symbols are `s` bytes long, except that the last data symbol travels without its padding.
//! The limits hold for every build, with or without the code:
//!
//! - `s` is even, as the code works on elements of 16 bits.
//! - There are at most as many repair symbols as data symbols. A sender with more losses than one
//!   in two needs another rate, and a receiver needs at most six times the state's length for
//!   decoding, with symbols rounded up to 64 bytes.
//! - `data + repair`, with `repair` rounded up to a power of two, is at most 65,536: the number of
//!   elements of the code's field.

use core::ops::Range;

/// The length of a state, and how it is cut into symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    len: u32,
    symbol_len: u16,
    repair: u16,
    /// `len / symbol_len`, rounded up.
    data: u32,
}

/// Numbers that do not make a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The state is empty.
    #[error("the state is empty; an empty state is sent whole, not in parts")]
    Empty,
    /// The state's length does not fit into the format.
    #[error("the state has {0} bytes; at most {max} can be sent", max = u32::MAX)]
    TooLong(usize),
    /// The length of symbols is odd or 0.
    #[error("symbols of {0} bytes; the length must be even, from 2 to {max}", max = Layout::MAX_SYMBOL_LEN)]
    SymbolLen(u16),
    /// More repair symbols than data symbols.
    #[error("{repair} repair symbols for {data} data symbols; at most as many are allowed")]
    TooMuchRepair {
        /// Data symbols.
        data: u32,
        /// Repair symbols.
        repair: u16,
    },
    /// More symbols than the code has.
    #[error(
        "{data} data symbols and {repair} repair symbols; at most {max} are allowed, with the repair \
         symbols rounded up to a power of two; use longer symbols",
        max = Layout::MAX_SYMBOLS
    )]
    TooManySymbols {
        /// Data symbols.
        data: u32,
        /// Repair symbols.
        repair: u16,
    },
    /// Repair symbols in a build without the code.
    #[error("this build cannot make repair symbols; build with the feature `fec`, or ask for none")]
    NoCode,
}

impl Layout {
    /// The maximum number of symbols of a state, data and repair together.
    pub const MAX_SYMBOLS: u32 = 1 << 16;
    /// The maximum length of a symbol in bytes.
    pub const MAX_SYMBOL_LEN: u16 = u16::MAX - 1;

    /// A state of `len` bytes in symbols of `symbol_len` bytes, with `repair` repair symbols.
    ///
    /// # Errors
    ///
    /// If this is not a layout: see the limits above. The numbers may come from anywhere.
    pub const fn new(len: u32, symbol_len: u16, repair: u16) -> Result<Self, LayoutError> {
        if len == 0 {
            return Err(LayoutError::Empty);
        }
        if symbol_len == 0 || symbol_len % 2 == 1 {
            return Err(LayoutError::SymbolLen(symbol_len));
        }
        let data = len.div_ceil(symbol_len as u32);
        if repair as u32 > data {
            return Err(LayoutError::TooMuchRepair { data, repair });
        }
        let most = if repair == 0 {
            Self::MAX_SYMBOLS
        } else {
            Self::MAX_SYMBOLS - (repair as u32).next_power_of_two()
        };
        if data > most {
            return Err(LayoutError::TooManySymbols { data, repair });
        }
        Ok(Self { len, symbol_len, repair, data })
    }

    /// The state's length in bytes, at least 1.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Never: an empty state has no layout.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The length of a symbol in bytes; the last data symbol may be shorter.
    pub const fn symbol_len(&self) -> usize {
        self.symbol_len as usize
    }

    /// The number of data symbols, at least 1. This number of different symbols of any kind is
    /// enough to reassemble the state.
    pub const fn data(&self) -> u32 {
        self.data
    }

    /// The number of repair symbols, at most as many as there are data symbols.
    pub const fn repair(&self) -> u32 {
        self.repair as u32
    }

    /// The number of symbols of both kinds, at most [`Self::MAX_SYMBOLS`].
    pub const fn symbols(&self) -> u32 {
        self.data + self.repair as u32
    }

    /// The bytes of the state that a data symbol holds; `None` for a repair symbol, and beyond.
    pub const fn range(&self, index: u32) -> Option<Range<usize>> {
        if index >= self.data {
            return None;
        }
        let start = index as usize * self.symbol_len as usize;
        let end = start + self.symbol_len as usize;
        Some(start..if end > self.len as usize { self.len as usize } else { end })
    }

    /// The number of bytes sent for a symbol; `None` if there is no such symbol.
    pub const fn symbol_size(&self, index: u32) -> Option<usize> {
        if index >= self.symbols() {
            return None;
        }
        match self.range(index) {
            Some(range) => Some(range.end - range.start),
            None => Some(self.symbol_len as usize),
        }
    }

    /// The maximum memory in bytes of such a state at a receiver before it is complete: the
    /// symbols, two bytes each for their numbers, and a bit each for having been received.
    pub const fn max_memory(&self) -> usize {
        let data = self.data as usize;
        data * (self.symbol_len as usize + 2) + 8 * (self.symbols() as usize).div_ceil(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn the_last_data_symbol_is_the_rest() {
        let layout = Layout::new(2_500, 1_000, 2).unwrap();
        assert_eq!((layout.data(), layout.repair(), layout.symbols()), (3, 2, 5));
        let ranges: Vec<_> = (0..6).map(|index| layout.range(index)).collect();
        assert_eq!(ranges[..3], [Some(0..1_000), Some(1_000..2_000), Some(2_000..2_500)]);
        assert_eq!(ranges[3..], [None, None, None]);
        let sizes: Vec<_> = (0..6).map(|index| layout.symbol_size(index)).collect();
        assert_eq!(sizes, [Some(1_000), Some(1_000), Some(500), Some(1_000), Some(1_000), None]);
    }

    #[test]
    fn numbers_that_are_no_layout_are_refused_with_the_reason() {
        for (len, symbol_len, repair, error) in [
            (0, 1_000, 0, LayoutError::Empty),
            (1, 0, 0, LayoutError::SymbolLen(0)),
            (1, 1_001, 0, LayoutError::SymbolLen(1_001)),
            (2_000, 1_000, 3, LayoutError::TooMuchRepair { data: 2, repair: 3 }),
            (131_074, 2, 0, LayoutError::TooManySymbols { data: 65_537, repair: 0 }),
            (131_072, 2, 1, LayoutError::TooManySymbols { data: 65_536, repair: 1 }),
        ] {
            assert_eq!(Layout::new(len, symbol_len, repair), Err(error));
        }
        assert!(Layout::new(131_072, 2, 0).is_ok());
        assert!(Layout::new(131_070, 2, 1).is_ok());
        assert!(Layout::new(65_536, 2, 32_768).is_ok());
    }

    proptest! {
        #[test]
        fn any_numbers_give_a_layout_or_an_error_and_data_symbols_cover_the_state(
            len in prop_oneof![any::<u32>(), 0..100_000u32],
            symbol_len in any::<u16>(),
            repair in prop_oneof![any::<u16>(), 0..4u16],
        ) {
            let Ok(layout) = Layout::new(len, symbol_len, repair) else { return Ok(()) };
            prop_assert!(layout.symbols() <= Layout::MAX_SYMBOLS && layout.repair() <= layout.data());
            let mut end = 0;
            for index in 0..layout.data() {
                let range = layout.range(index).expect("a data symbol");
                prop_assert!(range.start == end && !range.is_empty());
                prop_assert_eq!(layout.symbol_size(index), Some(range.len()));
                end = range.end;
            }
            prop_assert_eq!(end, layout.len());
            prop_assert_eq!(layout.symbol_size(layout.symbols()), None);
        }
    }
}
