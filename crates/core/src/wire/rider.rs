//! Acks that ride on updates of the other direction, behind them in the same datagram.

use alloc::vec::Vec;

use super::{Ack, Heading, Update, heading, update};

/// The ack behind an update, if this is an update with the flag for it. Readers of the update
/// ignore it, as all bytes after a message.
pub fn rider(datagram: &[u8]) -> Option<&[u8]> {
    let Heading::Update { has_rider: true, .. } = heading(datagram)? else { return None };
    let update = datagram.len().checked_sub(Ack::LEN_OF_PARTS)?;
    (update >= Update::MIN_LEN).then(|| &datagram[update..])
}

/// Writes an ack behind the update of `len` bytes at the front of `out`, and sets the update's flag
/// for it. It takes [`Ack::LEN_OF_PARTS`] bytes; unused ones are zero.
pub fn put_rider(ack: &Ack, out: &mut Vec<u8>, len: usize) {
    out.truncate(len);
    out.resize(len + Ack::LEN_OF_PARTS, 0);
    ack.write(&mut out[len..]);
    update::note_rider(out);
}
