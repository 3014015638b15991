//! Any parts of states to the assemblies of three sources: no panic, memory within the budget and all of
//! it accounted for, and state numbers that never decrease.
#![no_main]

use arbitrary::Arbitrary;
use freshline_core::state::{Assembly, Budget, Decoder, Layout, Limits, Outcome, Part};
use freshline_core::unit::Time;
use libfuzzer_sys::fuzz_target;

/// The maximum length of a state in bytes.
const MAX_LEN: usize = 1 << 16;

#[derive(Debug, Arbitrary)]
enum Step {
    /// One part.
    Part { of: u8, number: u64, generated_at: u8, cut: Cut, index: u16, byte: u8 },
    /// Consecutive symbols of a state, as a source sends them.
    Run { of: u8, number: u8, cut: Cut, first: u8, count: u8 },
    /// The application takes the complete state of a source.
    Take(u8),
    /// The session of a source ends.
    Clear(u8),
    /// Bytes of the budget that other users hold from now on.
    Others(u16),
}

#[derive(Debug, Clone, Copy, Arbitrary)]
struct Cut {
    len: u32,
    symbol_len: u16,
    repair: u16,
}

fuzz_target!(|story: (u16, Vec<Step>)| {
    let (limit, steps) = story;
    let mut world = World {
        assemblies: Default::default(),
        newest: [None; 3],
        budget: Budget::new(usize::from(limit) * 4),
        others: 0,
        decoder: Decoder::new(),
        out: Vec::new(),
    };
    for step in steps {
        world.step(step);
        world.check();
    }
    world.assemblies.iter_mut().for_each(|assembly| assembly.clear(&mut world.budget));
    world.check();
    assert_eq!(world.budget.used(), world.others);
});

struct World {
    assemblies: [Assembly; 3],
    /// The newest state that was taken from each source.
    newest: [Option<u64>; 3],
    budget: Budget,
    others: usize,
    decoder: Decoder,
    out: Vec<u8>,
}

impl World {
    fn step(&mut self, step: Step) {
        match step {
            Step::Part { of, number, generated_at, cut, index, byte } => {
                let Some(layout) = layout(cut) else { return };
                let size = layout.symbol_size(index.into()).unwrap_or(usize::from(byte));
                let bytes = vec![byte; size];
                let generated_at = Time::from_nanos(generated_at.into());
                self.part(of, number, generated_at, layout, index.into(), &bytes);
            }
            Step::Run { of, number, cut, first, count } => {
                let Some(layout) = layout(cut) else { return };
                for index in u32::from(first)..u32::from(first) + u32::from(count) {
                    let Some(size) = layout.symbol_size(index) else { return };
                    self.part(of, number.into(), Time::ZERO, layout, index, &vec![number; size]);
                }
            }
            Step::Take(of) => {
                let which = usize::from(of % 3);
                let assembly = &mut self.assemblies[which];
                let taken = assembly.take_into(&mut self.decoder, &mut self.out, &mut self.budget);
                let Some(taken) = taken else { return };
                assert!(Some(taken.number) > self.newest[which], "it goes back");
                assert!(!self.out.is_empty() && self.out.len() <= MAX_LEN);
                self.newest[which] = Some(taken.number);
            }
            Step::Clear(of) => self.assemblies[usize::from(of % 3)].clear(&mut self.budget),
            Step::Others(bytes) => {
                let _ = self.budget.resize(&mut self.others, bytes.into());
            }
        }
    }

    fn part(
        &mut self,
        of: u8,
        number: u64,
        generated_at: Time,
        layout: Layout,
        index: u32,
        bytes: &[u8],
    ) {
        let assembly = &mut self.assemblies[usize::from(of % 3)];
        let before = assembly.newest();
        let part = Part { topic: of.into(), number, generated_at, layout, index, bytes };
        let outcome = assembly.on_part(&part, &Limits { max_len: MAX_LEN }, &mut self.budget);
        if outcome == Outcome::Complete {
            assert!(assembly.newest() > before && assembly.newest() == Some(number));
        } else {
            assert_eq!(assembly.newest(), before);
        }
    }

    fn check(&self) {
        let held: usize = self.assemblies.iter().map(Assembly::memory).sum();
        assert_eq!(held + self.others, self.budget.used(), "bytes are lost");
        assert!(self.budget.used() <= self.budget.limit());
    }
}

/// A layout; every second one has a short state, which is complete after a few symbols.
fn layout(cut: Cut) -> Option<Layout> {
    let Cut { len, symbol_len, repair } = cut;
    if repair.is_multiple_of(2) {
        let symbol_len = 2 + symbol_len % 8 * 2;
        return Layout::new(1 + len % 64, symbol_len, repair / 2 % 8).ok();
    }
    Layout::new(len, symbol_len, repair / 2).ok()
}
