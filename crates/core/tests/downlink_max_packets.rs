//! Nmax in a downlink's session: the value that a client states, and peers that do not know it.

use core::num::NonZeroU16;

use freshline_core::session::downlink::{Client, ClientParams, Server, ServerParams};
use freshline_core::session::{Admission, Secret};
use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wire::{Message, Report, SessionId};
use freshline_core::wlan::{self, Arrival, Fixed, LevelCounter};

/// Frames of 8 packets, or of as many as there may be.
#[derive(Debug)]
struct Counter(Option<NonZeroU16>);

impl LevelCounter for Counter {
    fn on_packet(&mut self, _now: Time, _packet: Arrival) {}

    fn max_packets(&self) -> Option<NonZeroU16> {
        self.0
    }

    fn report(&mut self, _now: Time) -> Option<wlan::Report> {
        let rate = BitRate::from_mbps(390);
        Some(wlan::Report { level: 8.0, deviation: 0.0, frames: 10, rate, loss: 0.0 })
    }

    fn restart(&mut self) {}
}

/// The server's knowledge after a client's report, of which `len` bytes are those of its version.
fn known(stated: Option<u16>, len: usize) -> Option<u16> {
    let stated = stated.and_then(NonZeroU16::new);
    let params = ServerParams { admission: Admission::Proven, ..ServerParams::default() };
    let law = Box::new(Fixed::new(BitRate::from_mbps(1)));
    let mut server: Server<u8> = Server::new(params, law, Secret::new([7; 16]));
    let counter = Box::new(Counter(stated));
    let mut now = Time::ZERO;
    let mut client = Client::new(ClientParams::default(), SessionId(5), counter, now).unwrap();
    let mut out = Vec::new();
    client.handle_timeout(now);
    let joined = client.poll_transmit(now, &mut out).unwrap();
    server.handle_datagram(now, 1, &out[..joined.len]).unwrap();
    let (key, _) = server.clients().next().unwrap();
    for _ in 0..2 {
        server.put(now, key, b"state").unwrap();
        let packet = server.poll_transmit(now, &mut out).unwrap();
        client.handle_datagram(now, &out[..packet.len]).unwrap();
        now += Span::from_millis(600);
    }
    let reported = client.poll_transmit(now, &mut out).unwrap();
    assert_eq!(reported.len, Report::LEN);
    assert!(matches!(Message::parse(&out[..len]), Ok(Message::Report(_))));
    server.handle_datagram(now, 1, &out[..len]).unwrap();
    let record = server.client(key).unwrap();
    assert_eq!(record.reports, 1);
    record.max_packets.map(u16::from)
}

#[test]
fn the_server_knows_what_the_client_states() {
    for stated in [None, Some(1), Some(64), Some(128), Some(u16::MAX)] {
        assert_eq!(known(stated, Report::LEN), stated);
    }
}

#[test]
fn reports_of_earlier_clients_count_without_it() {
    for len in
        [Report::LEN_WITHOUT_MARKS, Report::LEN_WITHOUT_ARRIVALS, Report::LEN_WITHOUT_MAX_PACKETS]
    {
        assert_eq!(known(Some(128), len), None);
    }
}
