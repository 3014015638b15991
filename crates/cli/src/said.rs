//! Standard error: messages for the user, which must neither end a run nor delay it.
//!
//! A reader may be gone, such as a closed terminal, or may not read, such as a supervisor that
//! hangs. Text that cannot be written at once is dropped; the next message that can be written
//! gives the count.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Bytes that a pipe takes without blocking when poll reports it as writable: Linux's PIPE_BUF.
const CHUNK: usize = 4096;

/// Pieces of text that were dropped.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Standard error. Writing to it never fails and never blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        put(&mut io::stderr(), bytes, &LEFT_OUT);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn put<W: Write + AsFd>(out: &mut W, bytes: &[u8], left_out: &AtomicU64) {
    let missing = left_out.load(Ordering::Relaxed);
    if missing > 0 && is_ready(out) {
        left_out.fetch_sub(missing, Ordering::Relaxed);
        let note = format!("({missing} messages were left out, as nothing read them)\n");
        let _ = out.write_all(note.as_bytes());
    }
    for chunk in bytes.chunks(CHUNK) {
        if !is_ready(out) {
            left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // If the reader is gone, the message is dropped.
        let _ = out.write_all(chunk);
    }
}

/// Whether a write returns at once, with success or an error.
fn is_ready(out: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(out.as_fd(), PollFlags::POLLOUT)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// Like `eprintln!`, through [`Stderr`].
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let mut text = format!($($text)*);
        text.push('\n');
        let _ = $crate::said::Stderr.write_all(text.as_bytes());
    }};
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    #[test]
    fn what_nothing_reads_is_left_out_and_counted_once_there_is_a_reader() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut writer = File::from(std::os::fd::OwnedFd::from(writer));
        let left_out = AtomicU64::new(0);
        // More than any pipe holds by default.
        for _ in 0..400 {
            put(&mut writer, &[b'x'; 1000], &left_out);
        }
        let missing = left_out.load(Ordering::Relaxed);
        assert!((300..400).contains(&missing), "{missing}");
        let mut some = vec![0; 100_000];
        let _ = reader.read(&mut some).expect("bytes");
        put(&mut writer, b"here again\n", &left_out);
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).expect("text");
        let note =
            format!("({missing} messages were left out, as nothing read them)\nhere again\n");
        assert!(rest.ends_with(&note), "{rest}");
    }

    #[test]
    fn a_reader_that_is_gone_ends_nothing() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut writer = File::from(std::os::fd::OwnedFd::from(writer));
        drop(reader);
        put(&mut writer, b"hello\n", &AtomicU64::new(0));
    }
}
