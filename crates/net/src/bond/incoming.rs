//! Reads streams of a connection.

use bytes::Bytes;
use noq_proto::{Connection, ReadError, ReadableError, StreamId};

/// The result of reading a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    Bytes(Bytes),
    Nothing,
    End,
    Reset,
}

/// Reads at most `most` bytes of a stream.
pub(super) fn read(connection: &mut Connection, stream: StreamId, most: usize) -> Incoming {
    let mut receiver = connection.recv_stream(stream);
    let mut chunks = match receiver.read(true) {
        Ok(chunks) => chunks,
        Err(ReadableError::ClosedStream) => return Incoming::End,
        Err(ReadableError::IllegalOrderedRead) => return Incoming::Reset,
    };
    let incoming = match chunks.next(most) {
        Ok(Some(chunk)) => Incoming::Bytes(chunk.bytes),
        Ok(None) => Incoming::End,
        Err(ReadError::Blocked) => Incoming::Nothing,
        Err(ReadError::Reset(_)) => Incoming::Reset,
    };
    // Window updates leave with the next transmit anyway.
    let _ = chunks.finalize();
    incoming
}
