//! Any stream of states (`--latest`), in any pieces: no panic, and the same states however it is cut.
#![no_main]

use std::io::{BufRead, BufReader};

use arbitrary::Arbitrary;
use freshline_net::source::sampler::{Framing, read_state};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Stream<'a> {
    frames: bool,
    piece: u8,
    bytes: &'a [u8],
}

fuzz_target!(|stream: Stream<'_>| {
    let framing = if stream.frames { Framing::U32 } else { Framing::Lines };
    let piece = 1 + usize::from(stream.piece);
    let cut = states(&mut BufReader::with_capacity(piece, stream.bytes), framing);
    assert_eq!(cut, states(&mut &*stream.bytes, framing));
    let length: usize = cut.iter().map(Vec::len).sum();
    assert!(length <= stream.bytes.len(), "states from nowhere");
});

fn states(stream: &mut impl BufRead, framing: Framing) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| read_state(stream, framing).ok().flatten()).collect()
}
