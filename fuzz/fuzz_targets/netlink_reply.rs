//! Any datagrams as the kernel's answer to request 1, and the bodies in them as attributes and as
//! descriptions of queueing disciplines. The first byte is the length of the datagrams in units of 16
//! bytes, less one.
#![no_main]

use freshline_system::netlink::{Answer, Content, Qdisc, attributes, replies};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((units, bytes)) = bytes.split_first() else { return };
    let mut answer = Answer::new(1, 1, 1);
    let mut held = 0;
    for datagram in bytes.chunks(16 * (1 + usize::from(*units))) {
        let was_over = answer.is_over();
        let taken = answer.on_datagram(datagram, |_, body| {
            assert!(!was_over, "an object after the end");
            held += body.len();
            read(body);
        });
        assert!(answer.is_over() || !was_over);
        assert!(replies(datagram).count() <= datagram.len() / 16 + 1);
        for reply in replies(datagram).flatten() {
            if let Content::Refused { request, errno, .. } = reply.content {
                assert!(request.len() < datagram.len() && errno > 0);
            }
        }
        if taken.is_err() {
            return;
        }
    }
    assert!(held <= bytes.len());
    let _ = answer.result();
});

fn read(body: &[u8]) {
    let values: usize = attributes(body).map(|(_, value)| 4 + value.len()).sum();
    assert!(values <= body.len());
    let Some(qdisc) = Qdisc::parse(body) else { return };
    // Settings that are written back are read again unchanged.
    let again = [&body[..20], &qdisc.settings].concat();
    let again = Qdisc::parse(&again).expect("it has a header");
    assert_eq!((again.settings, again.handle), (qdisc.settings, qdisc.handle));
}
