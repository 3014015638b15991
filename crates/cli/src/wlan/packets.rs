//! Writes received packets to files without blocking the client.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use miette::miette;

use crate::failure::Failure;

/// The maximum number of pieces, of at most 9 kB each, that are queued for a slow disk or reader.
const WAITING: usize = 4096;

/// Writes pieces on a separate thread. Pieces beyond the queue's limit are dropped and counted.
pub(super) struct Writer {
    pieces: SyncSender<Vec<u8>>,
    writer: JoinHandle<io::Result<()>>,
    pub(super) left_out: u64,
}

impl Writer {
    /// Writes to a file, which is overwritten, or to standard output, `-`.
    pub(super) fn to(path: &Path) -> Result<Self, Failure> {
        let is_stdout = path.as_os_str() == "-";
        let out: Box<dyn Write + Send> = if is_stdout {
            Box::new(io::stdout())
        } else {
            Box::new(File::create(path).map_err(|error| {
                Failure::Usage(miette!("cannot write {}: {error}", path.display()))
            })?)
        };
        let (pieces, waiting) = sync_channel(WAITING);
        let writer = std::thread::spawn(move || write(&waiting, out));
        Ok(Self { pieces, writer, left_out: 0 })
    }

    pub(super) fn put(&mut self, piece: &[u8]) {
        match self.pieces.try_send(piece.to_vec()) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.left_out += 1,
        }
    }

    /// Waits until everything is written.
    pub(super) fn finish(self) -> io::Result<()> {
        drop(self.pieces);
        self.writer.join().unwrap_or(Ok(()))
    }
}

fn write(pieces: &Receiver<Vec<u8>>, out: Box<dyn Write + Send>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, out);
    while let Ok(piece) = pieces.recv() {
        out.write_all(&piece)?;
        // All queued pieces go together, then the writer is flushed.
        while let Ok(piece) = pieces.try_recv() {
            out.write_all(&piece)?;
        }
        out.flush()?;
    }
    out.flush()
}
