//! Any bytes, parsed as a message: no panic, and a parsed message that is written and parsed again is
//! equal.
#![no_main]

use freshline_core::wire::{Message, Report, Update};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| {
    let Ok(message) = Message::parse(datagram) else { return };
    // A report without code points comes from an older client, and is written with all fields.
    let room = match message {
        Message::Report(_) => datagram.len().max(Report::LEN),
        _ => datagram.len(),
    };
    let mut buffer = vec![0; Update::MIN_LEN.max(room)];
    let written = match message {
        Message::Update(update) => {
            let len = update.write(&mut buffer).expect("an update that was read can be written");
            &buffer[..len]
        }
        Message::Ack(ack) => put(&mut buffer, &ack.bytes()),
        Message::Challenge(challenge) => put(&mut buffer, &challenge.bytes()),
        Message::Close(close) => put(&mut buffer, &close.bytes()),
        Message::Join(join) => {
            let len = join.write(&mut buffer).expect("a join that was read can be written");
            &buffer[..len]
        }
        Message::Packet(packet) => {
            let len = packet.write(&mut buffer).expect("a packet that was read can be written");
            &buffer[..len]
        }
        Message::Report(report) => put(&mut buffer, &report.bytes()),
    };
    assert!(written.len() <= room, "a written message is not longer than the one that was read");
    assert_eq!(Message::parse(written), Ok(message));
});

fn put<'a>(buffer: &'a mut [u8], bytes: &[u8]) -> &'a [u8] {
    buffer[..bytes.len()].copy_from_slice(bytes);
    &buffer[..bytes.len()]
}
