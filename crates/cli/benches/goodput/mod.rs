//! Parts that the benches of goodput share.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

pub(crate) const FRESHLINE: &str = env!("CARGO_BIN_EXE_freshline");
/// Ramp-up is not measured.
pub(crate) const WARM_UP: Duration = Duration::from_secs(1);
pub(crate) const MEASURED: Duration = Duration::from_secs(4);
/// Runs of each row; the rows take turns.
pub(crate) const TURNS: usize = 3;

/// Sends these bytes repeatedly until the receiver closes the connection.
pub(crate) fn send(to: &str, bytes: &[u8]) {
    let mut stream = TcpStream::connect(to).expect("the receiver listens");
    while stream.write_all(bytes).is_ok() {}
}

/// Receives for `time`, and passes each piece to `check`; returns the goodput in Gbit/s.
pub(crate) fn receive_for(
    time: Duration,
    stream: &mut TcpStream,
    buffer: &mut [u8],
    mut check: impl FnMut(&[u8]),
) -> f64 {
    let (start, mut bytes) = (Instant::now(), 0);
    while start.elapsed() < time {
        let len = stream.read(buffer).expect("the transfer goes on");
        assert!(len > 0, "the transfer ended early");
        check(&buffer[..len]);
        bytes += len;
    }
    bytes as f64 * 8e-9 / start.elapsed().as_secs_f64()
}

/// `None` without values.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
