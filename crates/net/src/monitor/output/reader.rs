//! Writing to a reader that may be slow.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use freshline_core::unit::Span;

use crate::clock::Clock;

/// Writes all of `text` to a reader, which has this long to read it.
pub(super) fn write_within(
    stream: &mut UnixStream,
    text: &[u8],
    patience: Duration,
) -> io::Result<()> {
    let clock = Clock::new();
    let end = clock.now() + patience.into();
    let mut rest = text;
    while !rest.is_empty() {
        // A time-out of zero would mean no time-out.
        let left = end.since(clock.now()).max(Span::from_millis(1));
        stream.set_write_timeout(Some(left.into()))?;
        match stream.write(rest)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            _ if clock.now() >= end => return Err(io::ErrorKind::TimedOut.into()),
            written => rest = &rest[written..],
        }
    }
    Ok(())
}
