//! Acks that ride on updates of the other direction, behind them in the same datagram.

use alloc::vec::Vec;

use super::{Ack, Heading, Update, heading, update};

/// The ack that an update carries behind itself, if this is an update that says so. Whoever reads the update
/// ignores it, as all that is behind a message.
pub fn rider(datagram: &[u8]) -> Option<&[u8]> {
    let Heading::Update { has_rider: true, .. } = heading(datagram)? else { return None };
    let update = datagram.len().checked_sub(Ack::LEN_OF_PARTS)?;
    (update >= Update::MIN_LEN).then(|| &datagram[update..])
}

/// Writes an ack behind the update of `len` bytes at the front of `out`, which says so from then on. It takes
/// [`Ack::LEN_OF_PARTS`] bytes, of which what it does not need is zero.
pub fn put_rider(ack: &Ack, out: &mut Vec<u8>, len: usize) {
    out.truncate(len);
    out.resize(len + Ack::LEN_OF_PARTS, 0);
    ack.write(&mut out[len..]);
    update::note_rider(out);
}
