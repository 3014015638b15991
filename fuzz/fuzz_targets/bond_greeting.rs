//! Any bytes from a program that uses a bond as its SOCKS5 or HTTP CONNECT proxy, split in any way.
#![no_main]

use arbitrary::Arbitrary;
use freshline_net::bond::greeting::{Greeting, LONGEST, Next, Protocol};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Program<'a> {
    beginning: Beginning,
    pieces: Vec<&'a [u8]>,
}

#[derive(Debug, Arbitrary)]
enum Beginning {
    None,
    Socks,
    Connect,
}

/// The answers, and the requested target. The number of excess bytes is not compared: it depends on the
/// split.
fn heard<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, Option<String>) {
    let (mut greeting, mut answers, mut said) = (Greeting::default(), Vec::new(), 0);
    for mut rest in pieces {
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.len().min(greeting.room()).min(1024));
            (rest, said) = (later, said + piece.len());
            let (answer, next) = greeting.hear(piece);
            answers.extend(answer);
            match next {
                Next::Listen => assert!(greeting.room() > 0 && said <= 2 * LONGEST),
                Next::Connect(protocol, target, rest) => {
                    // The rewritten head of a request in absolute form has a few more fields, and a space
                    // in each.
                    assert!(rest.len() <= 2 * said + 256);
                    let protocol = match protocol {
                        Protocol::Socks => "SOCKS",
                        Protocol::Http => "CONNECT",
                        // The received part of the body depends on the split.
                        Protocol::Absolute(_) => "absolute",
                    };
                    return (answers, Some(format!("{protocol} {target}")));
                }
                Next::Associate => return (answers, Some("datagrams".into())),
                Next::End => return (answers, Some("no".into())),
            }
        }
    }
    (answers, None)
}

fuzz_target!(|program: Program<'_>| {
    let beginning: &[u8] = match program.beginning {
        Beginning::None => b"",
        Beginning::Socks => &[5, 1, 0, 5, 1, 0],
        Beginning::Connect => b"CONNECT ",
    };
    let pieces = std::iter::once(beginning).chain(program.pieces.iter().copied());
    let whole = [beginning, &program.pieces.concat()].concat();
    assert_eq!(heard(pieces), heard(std::iter::once(&whole[..])));
});
