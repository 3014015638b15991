//! The sending side of one state: its bytes, and the fate of each symbol.
//!
//! ```text
//!               on_sent              on_acked
//!   unsent ───────────────► in flight ───────► acked
//!                           │       ▲            ▲
//!                   on_lost ▼       │ on_sent    │ on_acked: it was only late
//!                              lost ─────────────┘
//! ```
//!
//! A symbol may be in flight several times, as copies on several paths or because it was sent
//! again; it is lost when all of these are. Which symbol leaves next is not decided here: the
//! caller chooses between [`Transfer::next_data`], [`Transfer::next_lost`] and
//! [`Transfer::next_repair`], each of which takes constant time on average over a state.
//!
//! Repair symbols are encoded when the first one is asked for. A transfer is used again for later
//! states ([`Transfer::reset`]) and keeps its buffers, so steady sending allocates nothing.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Encoder, Layout, LayoutError, Part, code};
use crate::unit::Time;

/// A state to be sent in parts.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// Counts the states of the topic.
    pub number: u64,
    /// When the state was sampled, on the source's clock.
    pub generated_at: Time,
    /// The length of a symbol in bytes; even.
    pub symbol_len: u16,
    /// The number of repair symbols.
    pub repair: u16,
    /// The state.
    pub bytes: &'a [u8],
}

impl Outgoing<'_> {
    fn layout(&self) -> Result<Layout, LayoutError> {
        let len = self.bytes.len();
        let len = u32::try_from(len).map_err(|_| LayoutError::TooLong(len))?;
        if self.repair > 0 && !code::AVAILABLE {
            return Err(LayoutError::NoCode);
        }
        Layout::new(len, self.symbol_len, self.repair)
    }
}

/// A state that is being sent.
#[derive(Debug, Clone)]
pub struct Transfer {
    number: u64,
    generated_at: Time,
    layout: Layout,
    state: Vec<u8>,
    /// The repair symbols, one after the other; empty until one is asked for.
    repair: Vec<u8>,
    symbols: Vec<Symbol>,
    /// The queued lost symbols. Some may have been acknowledged or sent again since.
    lost: VecDeque<u32>,
    /// All data symbols before it have been sent.
    next_data: u32,
    /// All repair symbols before it have been sent.
    next_repair: u32,
    acked: u32,
    in_flight: u32,
}

/// The fate of a symbol.
#[derive(Debug, Clone, Copy, Default)]
struct Symbol {
    /// Updates in flight that carry it.
    copies: u8,
    is_acked: bool,
    is_lost: bool,
    /// Whether it is in [`Transfer::lost`], which so has at most one entry per symbol.
    is_queued: bool,
}

impl Symbol {
    fn is_unsent(self) -> bool {
        !self.is_acked && !self.is_lost && self.copies == 0
    }
}

impl Transfer {
    /// The transfer of a state of which nothing has been sent. It copies the state.
    ///
    /// # Errors
    ///
    /// If the state cannot be cut like that, or this build cannot make the repair symbols.
    pub fn new(outgoing: &Outgoing<'_>) -> Result<Self, LayoutError> {
        let mut transfer = Self {
            number: 0,
            generated_at: Time::ZERO,
            layout: outgoing.layout()?,
            state: Vec::new(),
            repair: Vec::new(),
            symbols: Vec::new(),
            lost: VecDeque::new(),
            next_data: 0,
            next_repair: 0,
            acked: 0,
            in_flight: 0,
        };
        transfer.reset(outgoing)?;
        Ok(transfer)
    }

    /// Begins the transfer of another state, with the same buffers.
    ///
    /// # Errors
    ///
    /// As [`Transfer::new`]; then the former state stays.
    pub fn reset(&mut self, outgoing: &Outgoing<'_>) -> Result<(), LayoutError> {
        self.layout = outgoing.layout()?;
        self.number = outgoing.number;
        self.generated_at = outgoing.generated_at;
        self.state.clear();
        self.state.extend_from_slice(outgoing.bytes);
        self.repair.clear();
        self.restart();
        Ok(())
    }

    /// Restarts the transfer, as the receiver has forgotten everything: all symbols are unsent
    /// again. Acks and losses of earlier updates no longer apply, and must not be passed in.
    pub fn restart(&mut self) {
        self.symbols.clear();
        self.symbols.resize(self.layout.symbols() as usize, Symbol::default());
        self.lost.clear();
        self.next_data = 0;
        self.next_repair = self.layout.data();
        self.acked = 0;
        self.in_flight = 0;
    }

    /// The state's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// When the state was sampled, on the source's clock.
    pub fn generated_at(&self) -> Time {
        self.generated_at
    }

    /// How the state is cut.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The state.
    pub fn bytes(&self) -> &[u8] {
        &self.state
    }

    /// Different symbols that have been acknowledged.
    pub fn acked(&self) -> u32 {
        self.acked
    }

    /// Different symbols that are in flight and not acknowledged.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Symbols that the receiver still needs if all in flight arrive.
    pub fn needed(&self) -> u32 {
        self.layout.data().saturating_sub(self.acked + self.in_flight)
    }

    /// Whether enough symbols have been acknowledged to put the state together.
    pub fn is_complete(&self) -> bool {
        self.acked >= self.layout.data()
    }

    /// Whether a symbol is lost and has not been sent again.
    pub fn is_lost(&self, index: u32) -> bool {
        self.symbols.get(index as usize).is_some_and(|symbol| symbol.is_lost)
    }

    /// The first data symbol that was not sent, if there is one.
    pub fn next_data(&mut self) -> Option<u32> {
        Self::next_unsent(&self.symbols, &mut self.next_data, self.layout.data())
    }

    /// The first repair symbol that was not sent, if there is one.
    pub fn next_repair(&mut self) -> Option<u32> {
        Self::next_unsent(&self.symbols, &mut self.next_repair, self.layout.symbols())
    }

    fn next_unsent(symbols: &[Symbol], next: &mut u32, end: u32) -> Option<u32> {
        while *next < end && !symbols[*next as usize].is_unsent() {
            *next += 1;
        }
        (*next < end).then_some(*next)
    }

    /// The symbol that was lost first, of either kind, if one is lost and not sent again.
    pub fn next_lost(&mut self) -> Option<u32> {
        while let Some(&index) = self.lost.front() {
            let symbol = &mut self.symbols[index as usize];
            if symbol.is_lost {
                return Some(index);
            }
            symbol.is_queued = false;
            self.lost.pop_front();
        }
        None
    }

    /// The bytes of a symbol that travel; `None` if there is no such symbol. The first repair
    /// symbol of a state takes the time of encoding all of them.
    pub fn symbol(&mut self, index: u32, encoder: &mut Encoder) -> Option<&[u8]> {
        if let Some(range) = self.layout.range(index) {
            return self.state.get(range);
        }
        if index >= self.layout.symbols() {
            return None;
        }
        if self.repair.is_empty() {
            encoder.encode(&self.layout, &self.state, &mut self.repair);
        }
        let len = self.layout.symbol_len();
        self.repair.chunks_exact(len).nth((index - self.layout.data()) as usize)
    }

    /// A symbol as it travels; `None` as in [`Transfer::symbol`].
    pub fn part(&mut self, topic: u16, index: u32, encoder: &mut Encoder) -> Option<Part<'_>> {
        let (number, generated_at, layout) = (self.number, self.generated_at, self.layout);
        let bytes = self.symbol(index, encoder)?;
        Some(Part { topic, number, generated_at, layout, index, bytes })
    }

    /// An update with this symbol has left.
    pub fn on_sent(&mut self, index: u32) {
        let Some(symbol) = self.symbols.get_mut(index as usize) else { return };
        symbol.copies = symbol.copies.saturating_add(1);
        symbol.is_lost = false;
        self.in_flight += u32::from(symbol.copies == 1 && !symbol.is_acked);
    }

    /// An update with this symbol was acknowledged, whether it had been taken for lost or not. A
    /// symbol that was not sent is not acknowledged.
    pub fn on_acked(&mut self, index: u32) {
        let Some(symbol) = self.symbols.get_mut(index as usize) else { return };
        if symbol.is_acked || symbol.is_unsent() {
            return;
        }
        self.in_flight -= u32::from(symbol.copies > 0);
        symbol.is_acked = true;
        symbol.is_lost = false;
        self.acked += 1;
    }

    /// The receiver has the state, whatever the outcome of its symbols.
    pub fn complete(&mut self) {
        self.symbols
            .iter_mut()
            .for_each(|symbol| (symbol.is_acked, symbol.is_lost) = (true, false));
        (self.acked, self.in_flight) = (self.layout.symbols(), 0);
    }

    /// An update with this symbol is taken for lost.
    pub fn on_lost(&mut self, index: u32) {
        let Some(symbol) = self.symbols.get_mut(index as usize) else { return };
        if symbol.is_acked || symbol.copies == 0 {
            return;
        }
        symbol.copies -= 1;
        if symbol.copies > 0 {
            return;
        }
        self.in_flight -= 1;
        symbol.is_lost = true;
        if !symbol.is_queued {
            symbol.is_queued = true;
            self.lost.push_back(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn outgoing(bytes: &[u8], symbol_len: u16, repair: u16) -> Outgoing<'_> {
        Outgoing { number: 7, generated_at: Time::from_nanos(9), symbol_len, repair, bytes }
    }

    fn transfer(repair: u16) -> Transfer {
        let bytes: Vec<u8> = (0..95).collect();
        Transfer::new(&outgoing(&bytes, 10, repair)).expect("a layout")
    }

    /// Sends all that `next` gives.
    fn send(transfer: &mut Transfer, next: fn(&mut Transfer) -> Option<u32>) -> Vec<u32> {
        let sent = |transfer: &mut Transfer| {
            let index = next(transfer)?;
            transfer.on_sent(index);
            Some(index)
        };
        core::iter::from_fn(|| sent(transfer)).collect()
    }

    #[test]
    fn data_leaves_in_order_and_lost_symbols_leave_again() {
        let mut transfer = transfer(0);
        assert_eq!(send(&mut transfer, Transfer::next_data), Vec::from_iter(0..10));
        assert_eq!((transfer.in_flight(), transfer.needed()), (10, 0));
        (0..10).filter(|index| ![3, 8].contains(index)).for_each(|it| transfer.on_acked(it));
        transfer.on_lost(8);
        transfer.on_lost(3);
        assert_eq!((transfer.acked(), transfer.in_flight(), transfer.needed()), (8, 0, 2));
        assert_eq!(send(&mut transfer, Transfer::next_lost), [8, 3]);
        transfer.on_acked(8);
        assert!(!transfer.is_complete());
        transfer.on_acked(3);
        assert!(transfer.is_complete());
        assert_eq!(
            (transfer.next_data(), transfer.next_repair(), transfer.next_lost()),
            (None, None, None)
        );
    }

    #[test]
    fn a_symbol_is_lost_when_all_its_copies_are() {
        let mut transfer = transfer(0);
        transfer.on_sent(0);
        transfer.on_sent(0);
        transfer.on_lost(0);
        assert_eq!((transfer.in_flight(), transfer.next_lost()), (1, None));
        transfer.on_lost(0);
        assert_eq!((transfer.in_flight(), transfer.next_lost()), (0, Some(0)));
    }

    #[test]
    fn a_symbol_that_was_only_late_does_not_leave_again() {
        let mut transfer = transfer(0);
        transfer.on_sent(4);
        transfer.on_lost(4);
        transfer.on_acked(4);
        assert_eq!((transfer.acked(), transfer.in_flight(), transfer.next_lost()), (1, 0, None));
    }

    #[test]
    fn a_symbol_that_is_lost_again_and_again_is_queued_once() {
        let mut transfer = transfer(0);
        for _ in 0..100 {
            transfer.on_sent(4);
            transfer.on_lost(4);
        }
        assert_eq!((transfer.lost.len(), transfer.next_lost()), (1, Some(4)));
    }

    #[test]
    fn symbols_that_were_not_sent_are_neither_acknowledged_nor_lost() {
        let mut transfer = transfer(0);
        for index in [0, 9, 10, u32::MAX] {
            transfer.on_acked(index);
            transfer.on_lost(index);
        }
        transfer.on_sent(10);
        assert_eq!((transfer.acked(), transfer.in_flight(), transfer.next_lost()), (0, 0, None));
    }

    #[test]
    fn after_a_restart_all_leaves_again() {
        let mut transfer = transfer(0);
        send(&mut transfer, Transfer::next_data);
        (0..9).for_each(|index| transfer.on_acked(index));
        transfer.on_lost(9);
        transfer.restart();
        assert_eq!((transfer.acked(), transfer.in_flight(), transfer.needed()), (0, 0, 10));
        assert_eq!(transfer.next_lost(), None);
        assert_eq!(send(&mut transfer, Transfer::next_data), Vec::from_iter(0..10));
    }

    #[test]
    fn a_state_that_cannot_be_cut_leaves_the_former_one() {
        let mut transfer = transfer(0);
        assert_eq!(transfer.reset(&outgoing(&[], 10, 0)), Err(LayoutError::Empty));
        assert_eq!(transfer.reset(&outgoing(&[1], 9, 0)), Err(LayoutError::SymbolLen(9)));
        assert_eq!((transfer.number(), transfer.bytes().len()), (7, 95));
    }

    #[test]
    fn symbols_are_the_state_and_end_with_its_rest() {
        let (mut transfer, mut encoder) = (transfer(0), Encoder::new());
        let mut bytes = Vec::new();
        (0..10).for_each(|it| bytes.extend_from_slice(transfer.symbol(it, &mut encoder).unwrap()));
        assert_eq!(bytes, transfer.bytes());
        assert_eq!(transfer.symbol(10, &mut encoder), None);
        assert_eq!(transfer.part(3, 9, &mut encoder).map(|part| part.bytes), Some(&bytes[90..]));
    }

    #[cfg(feature = "fec")]
    #[test]
    fn repair_symbols_are_those_of_the_present_state() {
        let (mut transfer, mut encoder) = (transfer(3), Encoder::new());
        assert_eq!(send(&mut transfer, Transfer::next_repair), [10, 11, 12]);
        let first = transfer.symbol(12, &mut encoder).unwrap().to_vec();
        transfer.reset(&outgoing(&[1; 95], 10, 3)).unwrap();
        let second = transfer.symbol(12, &mut encoder).unwrap().to_vec();
        assert_ne!(first, second);
        let mut fresh = Transfer::new(&outgoing(&[1; 95], 10, 3)).unwrap();
        assert_eq!(fresh.symbol(12, &mut Encoder::new()), Some(&second[..]));
        assert_eq!(transfer.symbol(13, &mut encoder), None);
    }

    #[cfg(not(feature = "fec"))]
    #[test]
    fn repair_symbols_need_the_code() {
        assert_eq!(Transfer::new(&outgoing(&[1; 95], 10, 3)).unwrap_err(), LayoutError::NoCode);
    }

    proptest! {
        /// Against a model: the number of copies in flight, whether it is acked, whether it is
        /// lost.
        #[test]
        fn counts_are_those_of_the_symbols(steps in prop::collection::vec((0..5u8, 0..12u32), 0..200)) {
            let mut transfer = transfer(0);
            let mut model = [(0u32, false, false); 10];
            for (step, index) in steps {
                let symbol = model.get_mut(index as usize);
                match step {
                    0 | 1 => {
                        transfer.on_sent(index);
                        symbol.into_iter().for_each(|it| (it.0, it.2) = (it.0 + 1, false));
                    }
                    2 => {
                        transfer.on_acked(index);
                        symbol.into_iter().filter(|it| it.0 > 0 || it.2).for_each(|it| (it.1, it.2) = (true, false));
                    }
                    3 => {
                        transfer.on_lost(index);
                        for it in symbol.into_iter().filter(|it| it.0 > 0 && !it.1) {
                            it.0 -= 1;
                            it.2 = it.0 == 0;
                        }
                    }
                    _ => {
                        if let Some(index) = transfer.next_lost() {
                            prop_assert!(model[index as usize].2);
                            transfer.on_sent(index);
                            model[index as usize] = (1, false, false);
                        } else {
                            prop_assert!(model.iter().all(|it| !it.2));
                        }
                    }
                }
                let acked = model.iter().filter(|it| it.1).count();
                let in_flight = model.iter().filter(|it| !it.1 && it.0 > 0).count();
                prop_assert_eq!((transfer.acked(), transfer.in_flight()), (acked as u32, in_flight as u32));
                prop_assert_eq!(transfer.needed() as usize, 10 - acked - in_flight);
                prop_assert!(transfer.lost.len() <= 10);
                let unsent = model.iter().position(|it| it.0 == 0 && !it.1 && !it.2);
                prop_assert_eq!(transfer.next_data(), unsent.map(|it| it as u32));
            }
        }
    }
}
