//! The cost of a state of many symbols for its source and its monitor.
//!
//! `cargo bench -p freshline-core --bench state`. Throughput is that of the state's bytes.

use std::hint::black_box;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use freshline_core::state::{
    Assembly, Budget, Decoder, Encoder, Limits, Outcome, Outgoing, Transfer, prepare,
};
use freshline_core::unit::Time;

/// A source and a monitor with a path between them that has no delay and loses the same symbols of each state.
struct World {
    state: Vec<u8>,
    symbol_len: u16,
    repair: u16,
    number: u64,
    transfer: Transfer,
    encoder: Encoder,
    assembly: Assembly,
    decoder: Decoder,
    limits: Limits,
    budget: Budget,
    out: Vec<u8>,
}

impl World {
    fn new(len: usize, symbol_len: u16, repair: u16) -> Self {
        let state: Vec<u8> = (0..len).map(|at| (at * at / 7 + at) as u8).collect();
        let bytes = &state[..];
        let outgoing = Outgoing { number: 0, generated_at: Time::ZERO, symbol_len, repair, bytes };
        let transfer = Transfer::new(&outgoing).expect("a layout");
        Self {
            symbol_len,
            repair,
            number: 0,
            transfer,
            encoder: Encoder::new(),
            assembly: Assembly::new(),
            decoder: Decoder::new(),
            limits: Limits::default(),
            budget: Budget::new(64 << 20),
            out: Vec::new(),
            state,
        }
    }

    fn reset(&mut self) {
        self.number += 1;
        let outgoing = Outgoing {
            number: self.number,
            generated_at: Time::from_nanos(self.number),
            symbol_len: self.symbol_len,
            repair: self.repair,
            bytes: &self.state,
        };
        self.transfer.reset(&outgoing).expect("a layout");
    }

    /// Sends a state and acknowledges its symbols, data and repair.
    fn send(&mut self) {
        self.reset();
        while let Some(index) = self.transfer.next_data().or_else(|| self.transfer.next_repair()) {
            black_box(self.transfer.part(0, index, &mut self.encoder));
            self.transfer.on_sent(index);
        }
        (0..self.transfer.layout().symbols()).for_each(|index| self.transfer.on_acked(index));
        assert!(self.transfer.is_complete());
    }

    /// Receives a state without the first `lost` symbols.
    fn receive(&mut self, lost: u32) {
        self.number += 1;
        let Self { transfer, encoder, assembly, limits, budget, .. } = self;
        for index in lost..lost + transfer.layout().data() {
            let mut part = transfer.part(0, index, encoder).expect("a symbol");
            part.number = self.number;
            let outcome = assembly.on_part(&part, limits, budget);
            assert!(matches!(outcome, Outcome::Stored | Outcome::Complete));
        }
        let taken = self.assembly.take_into(&mut self.decoder, &mut self.out, &mut self.budget);
        assert_eq!(taken.map(|taken| taken.restored), Some(lost));
    }
}

fn benches(c: &mut Criterion) {
    let began = Instant::now();
    prepare();
    println!("the tables of the code took {:?}", began.elapsed());
    // The first is the cheapest state for the sender that needs decoding.
    for (len, symbol_len, repair) in [
        (4, 2, 1),
        (5_000, 1_200, 2),
        (100_000, 1_200, 9),
        (1_000_000, 1_200, 90),
        (8 << 20, 1_200, 700),
    ] {
        let mut group = c.benchmark_group(format!("state of {len} bytes"));
        group.throughput(Throughput::Bytes(len as u64)).sample_size(20);
        for repair in [0, repair] {
            let mut world = World::new(len, symbol_len, repair);
            let id = BenchmarkId::new("sent, repair symbols", repair);
            group.bench_function(id, |b| b.iter(|| world.send()));
            world.reset();
            let id = BenchmarkId::new("received, symbols restored", repair);
            group.bench_function(id, |b| b.iter(|| world.receive(repair.into())));
        }
        group.finish();
    }
}

criterion_group!(all, benches);
criterion_main!(all);
