//! The bytes that a process of the monitor has received and sent, per address, and the limits of its answers.

use std::collections::HashMap;

use freshline_core::session::{ListenerTransmit, SourceKey};
use freshline_core::wire::{Message, SessionId};

use super::network::Address;
use super::observation::Observation;

/// The maximum ratio of the bytes sent to an unproven address to the bytes received from it (docs/protocol.md).
const AMPLIFICATION: usize = 3;

#[derive(Default)]
pub(super) struct Traffic {
    /// The length of each update: its ack may wait for a command with which it is sent.
    updates: HashMap<(SessionId, u64), usize>,
    addresses: HashMap<Address, Balance>,
    /// The destination of the newest update of each return session.
    returns: HashMap<SourceKey, Address>,
}

/// The traffic with an address, in bytes.
#[derive(Default)]
struct Balance {
    received: usize,
    /// Sent by return sessions.
    sent: usize,
    /// Whether the address has answered a datagram, or shown a cookie.
    is_proven: bool,
}

impl Traffic {
    /// A datagram has arrived.
    pub(super) fn receive(&mut self, from: Address, datagram: &[u8]) {
        self.addresses.entry(from).or_default().received += datagram.len();
        if let Ok(Message::Update(update)) = Message::parse(datagram) {
            let len = self.updates.entry((update.session, update.seq)).or_default();
            *len = datagram.len().max(*len);
        }
    }

    /// The address has shown a cookie.
    pub(super) fn prove(&mut self, address: Address) {
        self.addresses.entry(address).or_default().is_proven = true;
    }

    /// An update of the return session to this source is answered, possibly on another path.
    pub(super) fn prove_return(&mut self, to: SourceKey) {
        if let Some(address) = self.returns.get(&to) {
            self.prove(*address);
        }
    }

    /// A datagram is sent, possibly as the answer to one of `handed_in` bytes. Returns its length
    /// and the length of its question, if it has a limit.
    pub(super) fn send(
        &mut self,
        transmit: ListenerTransmit<Address>,
        datagram: &[u8],
        handed_in: Option<usize>,
    ) -> Option<Observation> {
        let Some(source) = transmit.source else {
            let of_update = match Message::parse(datagram) {
                Ok(Message::Ack(ack)) => self.updates.get(&(ack.session, ack.seq)).copied(),
                _ => None,
            };
            let question = of_update.or(handed_in)?;
            return Some(Observation::Answered { question, answer: datagram.len() });
        };
        self.returns.insert(source, transmit.peer);
        let balance = self.addresses.entry(transmit.peer).or_default();
        balance.sent += datagram.len();
        let (question, answer) = (AMPLIFICATION * balance.received, balance.sent);
        (!balance.is_proven).then_some(Observation::Answered { question, answer })
    }
}
