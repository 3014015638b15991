//! Captures of the packets that pass a point of a path, in the classic pcap format, with times in
//! ns and packets from their IP headers on (`LINKTYPE_RAW`).

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use freshline_core::link::{ConditionsConfig, Direction};
use freshline_core::unit::Time;

use super::super::pcap;
use super::RunError;

/// A point of a path, written `forward.1`: behind that hop; 0 is in front of the first hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturePoint {
    /// The path.
    pub direction: Direction,
    /// The hop that packets have left, counted from 1, or 0 for packets that enter the path.
    pub behind: usize,
}

/// A string that is not a point of a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a point of a path; write `forward.1` for packets that leave the first \
     hop, `reverse.0` for packets that enter the reverse path"
)]
pub struct ParseCapturePointError(String);

impl FromStr for CapturePoint {
    type Err = ParseCapturePointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('.').and_then(|(direction, hop)| {
            let direction = Direction::ALL.into_iter().find(|known| known.name() == direction)?;
            Some(Self { direction, behind: hop.parse().ok()? })
        });
        parsed.ok_or_else(|| ParseCapturePointError(text.to_owned()))
    }
}

impl fmt::Display for CapturePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.direction.name(), self.behind)
    }
}

/// A point to capture, and its file. Points may share a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// The point.
    pub point: CapturePoint,
    /// The file, which is overwritten.
    pub file: PathBuf,
}

/// The captures of a run.
#[derive(Debug)]
pub(super) struct Captures {
    /// The wall clock at [`Time::ZERO`].
    epoch: Duration,
    files: Vec<(PathBuf, BufWriter<File>)>,
    /// Points, with the indices of their files.
    points: Vec<(CapturePoint, usize)>,
    /// The first failure to write.
    failure: Option<RunError>,
}

impl Captures {
    /// Creates the files. [`Time::ZERO`] is `epoch` after 1970.
    pub(super) fn create(
        captures: &[Capture],
        conditions: &ConditionsConfig,
        epoch: Duration,
    ) -> Result<Self, RunError> {
        let mut all = Self { epoch, files: Vec::new(), points: Vec::new(), failure: None };
        for Capture { point, file } in captures {
            let path = match point.direction {
                Direction::Forward => &conditions.forward,
                Direction::Reverse => &conditions.reverse,
            };
            // A path without configured hops is one ideal hop.
            let hops = path.hop.len().max(1);
            if point.behind > hops {
                return Err(RunError::NoSuchHop { point: *point, hops });
            }
            let place = match all.files.iter().position(|(known, _)| known == file) {
                Some(place) => place,
                None => {
                    let created = File::create(file).map(BufWriter::new).and_then(with_header);
                    let refused = |source| RunError::Capture { file: file.clone(), source };
                    all.files.push((file.clone(), created.map_err(refused)?));
                    all.files.len() - 1
                }
            };
            all.points.push((*point, place));
        }
        Ok(all)
    }

    /// Whether there is nothing to capture.
    pub(super) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Whether a point of this direction is captured.
    pub(super) fn watches(&self, direction: Direction) -> bool {
        self.points.iter().any(|(point, _)| point.direction == direction)
    }

    /// Writes a packet that passed `point` at `at` to the files of that point.
    pub(super) fn record(&mut self, point: CapturePoint, at: Time, packet: &[u8]) {
        let since_1970 = self.epoch + Duration::from(at.since(Time::ZERO));
        for (_, place) in self.points.iter().filter(|(wanted, _)| *wanted == point) {
            let (path, file) = &mut self.files[*place];
            if let Err(source) = pcap::write_record(file, since_1970, packet) {
                self.failure.get_or_insert(RunError::Capture { file: path.clone(), source });
            }
        }
    }

    /// Writes the buffered packets; returns the first failure of the whole run, if there was one.
    pub(super) fn finish(mut self) -> Result<(), RunError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        for (path, file) in &mut self.files {
            file.flush().map_err(|source| RunError::Capture { file: path.clone(), source })?;
        }
        Ok(())
    }
}

fn with_header(mut file: BufWriter<File>) -> io::Result<BufWriter<File>> {
    pcap::write_header(&mut file, pcap::RAW)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshline_core::unit::Span;

    #[test]
    fn points_read_as_they_print() {
        for text in ["forward.0", "reverse.12"] {
            assert_eq!(text.parse::<CapturePoint>().unwrap().to_string(), text);
        }
        for text in ["forward", "back.1", "forward.x", "reverse.-1"] {
            let message = text.parse::<CapturePoint>().unwrap_err().to_string();
            assert!(message.contains("write `forward.1`"), "{message}");
        }
    }

    #[test]
    fn a_hop_that_is_not_there_is_refused() {
        let capture = Capture { point: "reverse.2".parse().unwrap(), file: "/nowhere/x".into() };
        let refused = Captures::create(&[capture], &ConditionsConfig::default(), Duration::ZERO);
        let message = refused.unwrap_err().to_string();
        assert_eq!(message, "there is no reverse.2: that path has 1 hop(s)");
    }

    #[test]
    fn points_may_share_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("both.pcap");
        let capture = |point: &str| Capture { point: point.parse().unwrap(), file: file.clone() };
        let captures = [capture("forward.0"), capture("reverse.1")];
        let epoch = Duration::from_secs(1_000);
        let mut captures =
            Captures::create(&captures, &ConditionsConfig::default(), epoch).unwrap();
        let at = Time::ZERO + Span::from_nanos(5);
        captures.record("forward.0".parse().unwrap(), at, b"out");
        captures.record("forward.1".parse().unwrap(), at, b"not wanted");
        captures.record("reverse.1".parse().unwrap(), at, b"back");
        captures.finish().unwrap();
        let written = std::fs::read(&file).unwrap();
        assert_eq!(written.len(), 24 + (16 + 3) + (16 + 4));
        assert_eq!(written[24..32], [0xe8, 3, 0, 0, 5, 0, 0, 0]);
        assert!(written.ends_with(b"back"));
    }
}
