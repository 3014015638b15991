//! Any stream of states (`--latest`), split in any way: no panic, and states that do not depend on the split.
#![no_main]

use std::io::{BufRead, BufReader};

use arbitrary::Arbitrary;
use freshline_net::framing::Framing;
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Stream<'a> {
    framing: u8,
    piece: u8,
    bytes: &'a [u8],
}

fuzz_target!(|stream: Stream<'_>| {
    // Lines and u32 frames keep the values 0 and 1 of the first byte, so that older inputs still apply.
    let framings = [Framing::Lines, Framing::U32, Framing::Null, Framing::Cobs];
    let framing = framings[usize::from(stream.framing) % framings.len()];
    let piece = 1 + usize::from(stream.piece);
    let cut = states(&mut BufReader::with_capacity(piece, stream.bytes), framing);
    assert_eq!(cut, states(&mut &*stream.bytes, framing));
    let length: usize = cut.iter().map(Vec::len).sum();
    assert!(length <= stream.bytes.len(), "states from nowhere");
});

fn states(stream: &mut impl BufRead, framing: Framing) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| framing.read(stream, 1 << 16).ok().flatten()).collect()
}
