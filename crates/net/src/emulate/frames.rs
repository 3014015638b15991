//! Logs the frames that arrive over the air as lines of a file: the ground truth for receivers that
//! infer frames from arrival times.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use freshline_core::link::{Airborne, Conditions};
use freshline_core::router::Packet;
use freshline_core::unit::{BitRate, Bytes, Time};
use freshline_core::wlan::mac::Delivered;

/// Why frames could not be logged.
#[derive(Debug, thiserror::Error)]
pub enum FrameLogError {
    /// There are no frames.
    #[error("there are no Wi-Fi frames to log; add a `wlan`, or log no frames")]
    NoCell,
    /// A file that cannot be written.
    #[error("cannot write the frames to {}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Consecutive packets of one frame, as the receiver handed them up: a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    frame: Time,
    delivered: Time,
    from: u32,
    to: u32,
    rate: BitRate,
    packets: u64,
    bytes: Bytes,
}

/// A log of frames. Lines are buffered in memory before they are written.
#[derive(Debug)]
pub(super) struct FrameLog {
    /// The wall clock at [`Time::ZERO`].
    epoch: Duration,
    file: PathBuf,
    out: BufWriter<File>,
    /// The line to which the next packet may belong.
    run: Option<Run>,
    /// The first failure to write.
    failure: Option<io::Error>,
}

impl FrameLog {
    /// Some thousand lines; writing them takes less time than a frame is on the air.
    const BUFFER: usize = 1 << 16;

    /// The log of the frames of `conditions`, if a log is wanted.
    pub(super) fn of<P: Airborne>(
        file: Option<&Path>,
        conditions: &Conditions<P>,
        epoch: Duration,
    ) -> Result<Option<Self>, FrameLogError> {
        let Some(file) = file else { return Ok(None) };
        conditions.cell().ok_or(FrameLogError::NoCell)?;
        Self::create(file, epoch).map(Some)
    }

    /// Creates or overwrites the file. [`Time::ZERO`] is `epoch` after 1970.
    fn create(file: &Path, epoch: Duration) -> Result<Self, FrameLogError> {
        let created = File::create(file).and_then(|file| {
            let mut out = BufWriter::with_capacity(Self::BUFFER, file);
            writeln!(out, "frame_ns,delivered_ns,from,to,rate_bps,packets,bytes")?;
            Ok(out)
        });
        let out = created.map_err(|source| FrameLogError::File { file: file.into(), source })?;
        Ok(Self { epoch, file: file.into(), out, run: None, failure: None })
    }

    /// Notes a packet that came over the air.
    pub(super) fn record<P: Packet>(&mut self, arrival: &Delivered<P>) {
        let Delivered { at: delivered, from, to, frame, ref packet } = *arrival;
        let (frame, rate) = (frame.at, frame.rate);
        let run = Run { frame, delivered, from, to, rate, packets: 0, bytes: Bytes::ZERO };
        // Within a frame, each packet is handed up at the end of its MPDU: a line has the last
        // time.
        let goes_on = |last: &Run| {
            let same = Run { delivered, packets: 0, bytes: Bytes::ZERO, ..*last } == run;
            same && (delivered <= frame || delivered == last.delivered)
        };
        if !self.run.as_ref().is_some_and(goes_on) {
            self.write_run();
        }
        let run = self.run.get_or_insert(run);
        run.delivered = delivered;
        run.packets += 1;
        run.bytes += packet.size();
    }

    /// Writes the buffered lines; returns the first failure ever, if there was one.
    pub(super) fn flush(&mut self) -> Result<(), FrameLogError> {
        self.write_run();
        let flushed = self.failure.take().map_or_else(|| self.out.flush(), Err);
        flushed.map_err(|source| FrameLogError::File { file: self.file.clone(), source })
    }

    fn write_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        let nanos = |at: Time| (self.epoch + Duration::from(at.since(Time::ZERO))).as_nanos();
        let Run { frame, delivered, from, to, rate, packets, bytes } = run;
        let (frame, delivered) = (nanos(frame), nanos(delivered));
        let (rate, bytes) = (rate.as_bps(), bytes.get());
        let line = format_args!("{frame},{delivered},{from},{to},{rate},{packets},{bytes}\n");
        if let Err(error) = self.out.write_fmt(line) {
            self.failure.get_or_insert(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshline_core::wlan::mac::Received;

    struct Update;

    impl Packet for Update {
        fn size(&self) -> Bytes {
            Bytes::new(1000)
        }
    }

    fn arrival(to: u32, frame: u64, at: u64) -> Delivered<Update> {
        let frame = Received { at: Time::from_nanos(frame), rate: BitRate::from_mbps(65) };
        Delivered { at: Time::from_nanos(at), from: 0, to, frame, packet: Update }
    }

    #[test]
    fn what_was_held_back_has_a_line_of_its_own() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut log = FrameLog::create(file.path(), Duration::from_secs(1)).unwrap();
        for packet in [
            arrival(1, 5, 4),
            arrival(1, 5, 5),
            arrival(1, 9, 9),
            arrival(1, 5, 9),
            arrival(2, 9, 9),
        ] {
            log.record(&packet);
        }
        log.flush().unwrap();
        let lines = [
            "frame_ns,delivered_ns,from,to,rate_bps,packets,bytes",
            "1000000005,1000000005,0,1,65000000,2,2000",
            "1000000009,1000000009,0,1,65000000,1,1000",
            "1000000005,1000000009,0,1,65000000,1,1000",
            "1000000009,1000000009,0,2,65000000,1,1000",
        ];
        let written = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(written.lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_named() {
        let refused = FrameLog::create(Path::new("/nowhere/frames.csv"), Duration::ZERO);
        let message = refused.unwrap_err().to_string();
        assert!(message.starts_with("cannot write the frames to /nowhere/frames.csv"), "{message}");
    }
}
