//! Capture files: the classic pcap format, with times in ns (draft-ietf-opsawg-pcap).

use std::io::{self, Write};
use std::time::Duration;

/// Packets from their IP headers on.
pub(super) const RAW: u32 = 101;
/// Frames of 802.11 behind radiotap.
pub(super) const RADIOTAP: u32 = 127;

/// The maximum number of bytes kept per packet: the whole packet.
const SNAP_LEN: u32 = 1 << 18;
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;

/// Begins a file with frames of this link type.
pub(super) fn write_header(file: &mut impl Write, link: u32) -> io::Result<()> {
    let (major, minor) = (2u16, 4u16);
    file.write_all(&MAGIC_NANOS.to_le_bytes())?;
    file.write_all(&major.to_le_bytes())?;
    file.write_all(&minor.to_le_bytes())?;
    // Times are in UTC, and of unknown accuracy.
    file.write_all(&[0; 8])?;
    file.write_all(&SNAP_LEN.to_le_bytes())?;
    file.write_all(&link.to_le_bytes())
}

/// Adds a frame.
pub(super) fn write_record(
    file: &mut impl Write,
    since_1970: Duration,
    frame: &[u8],
) -> io::Result<()> {
    // The format ends in 2106, and a packet has at most 64 kB.
    let (secs, len) = (since_1970.as_secs() as u32, frame.len() as u32);
    for field in [secs, since_1970.subsec_nanos(), len, len] {
        file.write_all(&field.to_le_bytes())?;
    }
    file.write_all(frame)
}
