//! Writes captures in the classic pcap format, which every tool reads.
//!
//! Little-endian, with timestamps in ns: draft-ietf-opsawg-pcap. Times are of the lab's clock, so
//! that a run begins in 1970.

use std::io::{self, Write};

use freshline_core::unit::{Bytes, Time};

use super::LinkType;

/// The magic number of timestamps in ns.
const MAGIC: u32 = 0xA1B2_3C4D;
/// The maximum captured length of a frame; readers size their buffers by it.
const SNAPLEN: u32 = 262_144;

/// Writes frames to a capture. Does not buffer: hand it a [`std::io::BufWriter`].
#[derive(Debug)]
pub struct PcapWriter<W> {
    out: W,
}

impl<W: Write> PcapWriter<W> {
    /// Begins a capture in which every frame begins with `link`'s header.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn new(mut out: W, link: LinkType) -> io::Result<Self> {
        let (major, minor) = (2_u16, 4_u16);
        let mut header = [0; 24];
        header[..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[4..6].copy_from_slice(&major.to_le_bytes());
        header[6..8].copy_from_slice(&minor.to_le_bytes());
        header[16..20].copy_from_slice(&SNAPLEN.to_le_bytes());
        header[20..].copy_from_slice(&link.number().to_le_bytes());
        out.write_all(&header)?;
        Ok(Self { out })
    }

    /// Adds a frame with the timestamp `at` and `wire_len` bytes on the wire, of which `frame`
    /// holds the first, or all: the payload of a simulated packet need not be written.
    ///
    /// # Errors
    /// Errors of the output, and [`io::ErrorKind::InvalidInput`] for values that the format cannot
    /// hold: more than 262,144 bytes captured, a length of more than 32 bits, a time after 2106.
    pub fn write(&mut self, at: Time, frame: &[u8], wire_len: Bytes) -> io::Result<()> {
        let field = |number: u64, what: &'static str| {
            u32::try_from(number).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, what))
        };
        let nanos = at.as_nanos();
        let captured = frame.len() as u64;
        if captured > SNAPLEN.into() {
            let what = "a frame of more than 262144 bytes";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let fields = [
            field(nanos / 1_000_000_000, "a time after the year 2106")?,
            (nanos % 1_000_000_000) as u32,
            captured as u32,
            field(wire_len.get().max(captured), "a frame of more than 4 GiB")?,
        ];
        for field in fields {
            self.out.write_all(&field.to_le_bytes())?;
        }
        self.out.write_all(frame)
    }

    /// Ends the capture: flushes the output and hands it back.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn into_inner(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::read_frames;

    #[test]
    fn what_is_written_is_read_back_to_the_ns() {
        let mut writer = PcapWriter::new(Vec::new(), LinkType::Raw).unwrap();
        let at = Time::from_nanos(3_000_000_007);
        writer.write(at, b"whole", Bytes::new(5)).unwrap();
        writer.write(at, b"front", Bytes::new(1500)).unwrap();
        let file = writer.into_inner().unwrap();
        let mut found = Vec::new();
        read_frames(&file[..], |frame| {
            assert_eq!((frame.at, frame.link), (at, LinkType::Raw));
            found.push((frame.bytes.to_vec(), frame.wire_len));
        })
        .unwrap();
        assert_eq!(found, [(b"whole".to_vec(), 5), (b"front".to_vec(), 1500)]);
    }

    #[test]
    fn what_the_format_cannot_hold_is_refused() {
        let mut writer = PcapWriter::new(Vec::new(), LinkType::Raw).unwrap();
        let year_2106 = Time::from_nanos(u64::from(u32::MAX) * 1_000_000_000 + 1_000_000_000);
        let refused = [
            writer.write(year_2106, b"", Bytes::ZERO),
            writer.write(Time::ZERO, b"", Bytes::new(1 << 32)),
            writer.write(Time::ZERO, &vec![0; 262_145], Bytes::ZERO),
        ];
        for result in refused {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!(writer.into_inner().unwrap().len(), 24);
    }
}
