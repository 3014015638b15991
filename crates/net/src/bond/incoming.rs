//! Reads streams of a connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use bytes::Bytes;
use noq_proto::{Connection, ReadError, ReadableError, StreamId};

/// The maximum number of pieces that are read, and written, at once. A piece is the content of one
/// packet.
const MAX_PIECES: usize = 32;

/// The result of reading a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    Bytes(Bytes),
    Nothing,
    End,
    Reset,
}

/// Reads at most `most` bytes of a stream, all of them from one packet.
pub(super) fn read(connection: &mut Connection, stream: StreamId, most: usize) -> Incoming {
    let mut piece = Bytes::new();
    match read_pieces(connection, stream, most, 1, |bytes| piece = bytes) {
        None => Incoming::Bytes(piece),
        Some(without) => without,
    }
}

/// Passes at most `most` bytes of a stream to `take`, in at most `pieces` pieces. Returns the
/// reason if it has passed no bytes.
fn read_pieces(
    connection: &mut Connection,
    stream: StreamId,
    most: usize,
    pieces: usize,
    mut take: impl FnMut(Bytes),
) -> Option<Incoming> {
    let mut receiver = connection.recv_stream(stream);
    let mut chunks = match receiver.read(true) {
        Ok(chunks) => chunks,
        Err(ReadableError::ClosedStream) => return Some(Incoming::End),
        Err(ReadableError::IllegalOrderedRead) => return Some(Incoming::Reset),
    };
    let (mut left, mut without) = (most, None);
    for _ in 0..pieces {
        without = match chunks.next(left) {
            Ok(Some(chunk)) => {
                left -= chunk.bytes.len();
                take(chunk.bytes);
                None
            }
            Ok(None) => Some(Incoming::End),
            Err(ReadError::Blocked) => Some(Incoming::Nothing),
            Err(ReadError::Reset(_)) => Some(Incoming::Reset),
        };
        if left == 0 || without.is_some() {
            break;
        }
    }
    // Window updates leave with the next datagram in any case.
    let _ = chunks.finalize();
    // The end of a stream is reported by the next read, too; a stream that was reset has no bytes.
    without.filter(|_| left == most)
}

/// Bytes that were read from a stream, in order, and are not written yet.
#[derive(Debug, Default)]
pub(super) struct Pieces(VecDeque<Bytes>);

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Self {
        Self(Some(bytes).filter(|bytes| !bytes.is_empty()).into_iter().collect())
    }
}

impl Pieces {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends at most `most` bytes of a stream. Returns the reason if it has appended none.
    pub(super) fn read(
        &mut self,
        connection: &mut Connection,
        stream: StreamId,
        most: usize,
    ) -> Option<Incoming> {
        read_pieces(connection, stream, most, MAX_PIECES, |bytes| self.0.push_back(bytes))
    }

    /// Writes as many of them as `to` accepts in one call; returns the number of bytes.
    pub(super) fn write_to(&mut self, to: &mut impl Write) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); MAX_PIECES];
        let count = self.0.len().min(MAX_PIECES);
        for (slice, piece) in slices.iter_mut().zip(&self.0) {
            *slice = IoSlice::new(piece);
        }
        let taken = to.write_vectored(&slices[..count])?;
        let mut left = taken;
        while let Some(piece) = self.0.front_mut() {
            if left < piece.len() {
                drop(piece.split_to(left));
                break;
            }
            left -= piece.len();
            self.0.pop_front();
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts at most this many bytes per call.
    struct Slow(usize, Vec<u8>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.1.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let bytes: Vec<_> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            self.write(&bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn pieces_are_written_in_order_however_much_the_writer_takes() {
        let whole: Vec<u8> = (0..200).collect();
        for most in [1, 7, 10, 33, 1000] {
            let mut pieces = Pieces(whole.chunks(10).map(Bytes::copy_from_slice).collect());
            let mut slow = Slow(most, Vec::new());
            let mut calls = 0;
            while !pieces.is_empty() {
                assert!(pieces.write_to(&mut slow).unwrap() > 0);
                calls += 1;
            }
            assert_eq!((slow.1, calls), (whole.clone(), whole.len().div_ceil(most)), "{most}");
        }
        assert!(Pieces::from(Bytes::new()).is_empty());
    }
}
