//! A window on a stream that grows until it contains a complete block.

use std::io::{self, Read};

use super::CaptureError;

/// The size of a read.
const CHUNK: usize = 256 << 10;
/// The maximum block, in bytes. Packets are far smaller (at most 512 KiB in Linux), but a pcapng
/// file may have a list of names or of secrets in one block.
const MAX_BLOCK: usize = 16 << 20;

/// Why bytes are not a block.
pub(super) enum Stop {
    /// The block is incomplete.
    Incomplete,
    /// The bytes cannot become a valid block.
    Damaged(&'static str),
}

/// The current part of a file. Its errors lack the number of the packet.
///
/// Holds at most [`MAX_BLOCK`] bytes.
pub(super) struct Feed<R> {
    input: R,
    buffer: Vec<u8>,
    /// The window's start in the buffer.
    start: usize,
    end: usize,
    /// Bytes of the file before the window.
    passed: u64,
    exhausted: bool,
}

impl<R: Read> Feed<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, buffer: vec![0; CHUNK], start: 0, end: 0, passed: 0, exhausted: false }
    }

    /// Passes the window to `take` until that has found a block and returned its length; then moves
    /// the window past it. Returns `false` at the end of the file.
    pub(super) fn step(
        &mut self,
        mut take: impl FnMut(&[u8]) -> Result<usize, Stop>,
    ) -> Result<bool, CaptureError> {
        loop {
            let window = &self.buffer[self.start..self.end];
            match take(window) {
                Ok(taken) => {
                    let taken = taken.min(window.len());
                    self.start += taken;
                    self.passed += taken as u64;
                    return Ok(true);
                }
                Err(Stop::Damaged(what)) => {
                    return Err(CaptureError::Damaged { packet: 0, at: self.passed, what });
                }
                Err(Stop::Incomplete) if !self.exhausted => self.fill()?,
                Err(Stop::Incomplete) if window.is_empty() => return Ok(false),
                Err(Stop::Incomplete) => {
                    let at = self.passed + window.len() as u64;
                    return Err(CaptureError::Truncated { packet: 0, at });
                }
            }
        }
    }

    fn fill(&mut self) -> Result<(), CaptureError> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.buffer.len() {
            if self.end >= MAX_BLOCK {
                let what = "a block of more than 16 MiB";
                return Err(CaptureError::Damaged { packet: 0, at: self.passed, what });
            }
            self.buffer.resize(2 * self.end, 0);
        }
        match self.input.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.exhausted = true,
            Ok(read) => self.end += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => {
                let at = self.passed + self.end as u64;
                return Err(CaptureError::Read { packet: 0, at, source });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one byte at a time, as a slow pipe may.
    struct Dripping<'a>(&'a [u8]);

    impl Read for Dripping<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let len = 1.min(buffer.len());
            self.0.read(&mut buffer[..len])
        }
    }

    /// A block of the test: one byte with its length, and as many bytes.
    fn block(bytes: &[u8]) -> Result<usize, Stop> {
        let len = 1 + usize::from(*bytes.first().ok_or(Stop::Incomplete)?);
        if bytes.len() < len { Err(Stop::Incomplete) } else { Ok(len) }
    }

    #[test]
    fn blocks_are_whole_however_the_bytes_come() {
        let mut feed = Feed::new(Dripping(&[2, 0, 0, 0, 1, 0]));
        for _ in 0..3 {
            assert!(feed.step(block).unwrap());
        }
        assert!(!feed.step(block).unwrap());
    }

    #[test]
    fn an_end_within_a_block_is_told_with_its_place() {
        let mut feed = Feed::new(&[1, 0, 5, 0][..]);
        assert!(feed.step(block).unwrap());
        assert!(matches!(feed.step(block), Err(CaptureError::Truncated { at: 4, .. })));
    }

    #[test]
    fn a_block_without_end_is_given_up() {
        let mut feed = Feed::new(io::repeat(0));
        let endless = |_: &[u8]| Err(Stop::Incomplete);
        assert!(matches!(feed.step(endless), Err(CaptureError::Damaged { at: 0, .. })));
        assert_eq!(feed.buffer.len(), MAX_BLOCK);
    }
}
