//! States in parts, from a transfer over a bad path to an assembly: despite losses, copies and
//! reordering, a state is received whole or not at all, and a hostile sender gets no more memory
//! than the budget.

use freshline_core::state::{
    AVAILABLE, Assembly, Budget, Decoder, Encoder, Layout, Limits, Outcome, Outgoing, Part, Taken,
    Transfer,
};
use freshline_core::unit::Time;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// A monitor's part.
struct Receiver {
    assembly: Assembly,
    decoder: Decoder,
    limits: Limits,
    budget: Budget,
    out: Vec<u8>,
}

impl Receiver {
    fn new(max_len: usize, budget: usize) -> Self {
        Self {
            assembly: Assembly::new(),
            decoder: Decoder::new(),
            limits: Limits { max_len },
            budget: Budget::new(budget),
            out: Vec::new(),
        }
    }

    fn on_part(&mut self, part: &Part<'_>) -> Outcome {
        self.assembly.on_part(part, &self.limits, &mut self.budget)
    }

    fn take(&mut self) -> Option<Taken> {
        self.assembly.take_into(&mut self.decoder, &mut self.out, &mut self.budget)
    }
}

fn bytes_of(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at * at / 7 + at) as u8 ^ seed).collect()
}

fn outgoing(number: u64, symbol_len: u16, repair: u16, bytes: &[u8]) -> Outgoing<'_> {
    let generated_at = Time::from_nanos(1_000 * number);
    Outgoing { number, generated_at, symbol_len, repair, bytes }
}

/// The length of a state, that of its symbols, and how many repair symbols it has.
fn cuts() -> impl Strategy<Value = (usize, u16, u16)> {
    (1..4_000usize, 1..300u16, 0..=1_000u32).prop_map(|(len, half, share)| {
        let data = (len as u32).div_ceil(2 * u32::from(half));
        let repair = if AVAILABLE { data * share / 1_000 } else { 0 };
        (len, 2 * half, repair as u16)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_symbols_give_the_state_back_as_soon_as_there_are_enough_and_not_before(
        (len, symbol_len, repair) in cuts(),
        order in vec(any::<u32>(), 0..4_000),
        copies in vec(any::<Index>(), 0..20),
    ) {
        let bytes = bytes_of(len, 0);
        let mut transfer = Transfer::new(&outgoing(7, symbol_len, repair, &bytes)).expect("a layout");
        let layout = *transfer.layout();
        let mut receiver = Receiver::new(len, layout.max_memory());
        let mut encoder = Encoder::new();
        // Each symbol once in some order, and copies of symbols that were received before.
        let mut symbols: Vec<u32> = (0..layout.symbols()).collect();
        symbols.sort_by_key(|index| order.get(*index as usize).copied().unwrap_or(*index));
        symbols.truncate(layout.data() as usize);
        let mut received = 0;
        for (at, index) in symbols.iter().enumerate() {
            let copy = copies.get(at).filter(|_| at > 0).map(|copy| symbols[copy.index(at)]);
            if let Some(copy) = copy {
                let part = transfer.part(0, copy, &mut encoder).expect("a symbol");
                prop_assert_eq!(receiver.on_part(&part), Outcome::Copy);
            }
            prop_assert_eq!(receiver.take(), None);
            let part = transfer.part(0, *index, &mut encoder).expect("a symbol");
            received += 1;
            let is_last = received == layout.data();
            let expected = if is_last { Outcome::Complete } else { Outcome::Stored };
            prop_assert_eq!(receiver.on_part(&part), expected);
        }
        let restored = symbols.iter().filter(|index| **index >= layout.data()).count() as u32;
        let generated_at = Time::from_nanos(7_000);
        prop_assert_eq!(receiver.take(), Some(Taken { number: 7, generated_at, restored }));
        prop_assert_eq!(&receiver.out, &bytes);
        prop_assert_eq!((receiver.budget.used(), receiver.assembly.memory()), (0, 0));
    }

    #[test]
    fn states_arrive_over_a_path_that_loses_and_a_receiver_that_forgets(
        fates in vec(0..4u8, 0..300),
        (len, symbol_len, repair) in cuts(),
        forgets_at in 0..200usize,
    ) {
        let bytes = bytes_of(len, 3);
        let mut transfer = Transfer::new(&outgoing(1, symbol_len, repair, &bytes)).expect("a layout");
        let (mut receiver, mut encoder) = (Receiver::new(len, usize::MAX), Encoder::new());
        let mut steps = 0;
        while !transfer.is_complete() {
            let next = transfer.next_lost().or_else(|| transfer.next_data());
            let index = next.or_else(|| transfer.next_repair()).expect("one was lost, or not sent");
            transfer.on_sent(index);
            // When the given fates are used up, nothing is lost any more.
            if fates.get(steps).is_some_and(|fate| *fate == 0) {
                transfer.on_lost(index);
            } else {
                receiver.on_part(&transfer.part(0, index, &mut encoder).expect("a symbol"));
                transfer.on_acked(index);
            }
            steps += 1;
            if steps == forgets_at && !transfer.is_complete() {
                receiver.assembly.clear(&mut receiver.budget);
                transfer.restart();
            }
        }
        prop_assert!(steps <= 2 * transfer.layout().data() as usize + fates.len());
        prop_assert!(receiver.take().is_some());
        prop_assert_eq!(&receiver.out, &bytes);
    }

    #[test]
    fn hostile_parts_get_no_more_than_the_budget_and_states_never_go_back(
        parts in vec((0..3usize, 0..6u64, any::<u16>(), 0..40u32, any::<bool>()), 0..400),
        limit in 0..3_000usize,
    ) {
        let layouts: Vec<_> = [(2_000u32, 100u16, 0u16), (150, 50, 3), (10, 2, 2), (7, 4, 0), (1, 2, 1)]
            .into_iter()
            .map(|(len, symbol_len, repair)| Layout::new(len, symbol_len, repair).expect("a layout"))
            .collect();
        let mut receiver = Receiver::new(1_999, 0);
        receiver.budget = Budget::new(limit);
        let mut assemblies: [Assembly; 3] = Default::default();
        let mut newest = [None; 3];
        let bytes = bytes_of(100, 9);
        for (whose, number, which, index, takes) in parts {
            let assembly = &mut assemblies[whose];
            let layout = layouts[usize::from(which) % layouts.len()];
            let size = layout.symbol_size(index).unwrap_or(usize::from(which) % 100);
            let generated_at = Time::from_nanos(u64::from(which > 60_000));
            let bytes = &bytes[..size];
            let part = Part { topic: 0, number, generated_at, layout, index, bytes };
            let outcome = assembly.on_part(&part, &receiver.limits, &mut receiver.budget);
            prop_assert!(receiver.budget.used() <= limit);
            if takes {
                let taken = assembly.take_into(&mut receiver.decoder, &mut receiver.out, &mut receiver.budget);
                if let Some(taken) = taken {
                    prop_assert!(Some(taken.number) > newest[whose]);
                    newest[whose] = Some(taken.number);
                }
            }
            prop_assert!(outcome != Outcome::Complete || assembly.newest() == Some(number));
            let held: usize = assemblies.iter().map(Assembly::memory).sum();
            prop_assert_eq!(held, receiver.budget.used());
        }
        assemblies.iter_mut().for_each(|assembly| assembly.clear(&mut receiver.budget));
        prop_assert_eq!(receiver.budget.used(), 0);
    }
}

/// Largest state of the default limit: 6,991 symbols.
#[test]
fn a_state_of_8_mib_arrives_without_a_tenth_of_its_data_symbols() {
    if !AVAILABLE {
        println!("skipped: needs the feature `fec`");
        return;
    }
    let bytes = bytes_of(8 << 20, 5);
    let mut transfer = Transfer::new(&outgoing(1, 1_200, 700, &bytes)).expect("a layout");
    let (mut receiver, mut encoder) = (Receiver::new(8 << 20, usize::MAX), Encoder::new());
    receiver.budget = Budget::new(transfer.layout().max_memory());
    for index in (0..transfer.layout().symbols()).filter(|index| index % 10 != 3 || *index >= 6_991)
    {
        let outcome = receiver.on_part(&transfer.part(0, index, &mut encoder).expect("a symbol"));
        assert!(
            matches!(outcome, Outcome::Stored | Outcome::Complete | Outcome::Old),
            "{outcome:?}"
        );
    }
    assert_eq!(receiver.take().map(|taken| taken.restored), Some(699));
    assert!(receiver.out == bytes);
}
