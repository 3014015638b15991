//! Any datagrams from anyone at any time to both ends of a downlink: no panic, bounded clients, and
//! no answer longer than its question. Challenges are taken up and packets reported, so that clients
//! do join.
#![no_main]

use arbitrary::Arbitrary;
use freshline_core::session::downlink::{
    Client, ClientParams, Server, ServerParams, ServerVerdict, Stamp,
};
use freshline_core::session::{Admission, Clocked, Secret};
use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wire::SessionId;
use freshline_core::wlan::{Aggregation, AggregationParams, DownlinkParams, NonlinearParams};
use libfuzzer_sys::fuzz_target;

const MAX_CLIENTS: u32 = 3;
/// More packets than this due at once is a driver that has slept for hours.
const MAX_PACKETS: usize = 64;

#[derive(Debug, Arbitrary)]
struct Story<'a> {
    proven: bool,
    token: bool,
    steps: Vec<Step<'a>>,
}

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    /// Time passes, ns.
    Wait(u64),
    /// The server's timers.
    Tick,
    /// Packets that are due, or nothing to send.
    Serve {
        payload: Option<u8>,
        lost: bool,
    },
    /// What the client wants to say, from an address.
    Speak {
        peer: u8,
        lost: bool,
    },
    ToServer {
        peer: u8,
        datagram: &'a [u8],
    },
    ToClient {
        datagram: &'a [u8],
        stamp: u64,
        bps: u64,
    },
    Lost,
    Ready,
}

fuzz_target!(|story: Story<'_>| {
    let admission = if story.proven { Admission::Proven } else { Admission::Cookie };
    let tokens = if story.token { vec![b"token".to_vec()] } else { Vec::new() };
    let params = NonlinearParams {
        downlink: DownlinkParams { max_stations: MAX_CLIENTS, ..DownlinkParams::default() },
        ..NonlinearParams::default()
    };
    let law = params.build().expect("these are the defaults");
    let params = ServerParams { admission, tokens, ..ServerParams::default() };
    let mut server: Server<u8> = Server::new(params, Box::new(law), Secret::new([1; 16]));
    let params = ClientParams { token: b"token".to_vec(), ..ClientParams::default() };
    let counter = Box::new(Aggregation::new(AggregationParams::default()));
    let mut now = Time::ZERO;
    let mut client = Client::new(params, SessionId(7), counter, now).expect("the token is short");
    let to_client = |client: &mut Client, now, bytes: &[u8], stamp: u64, bps: u64| {
        let stamp = Stamp { at: Time::from_nanos(stamp), rate: BitRate::from_bps(bps) };
        let _ = client.on_datagram(Clocked { received_at: now, now }, stamp, bytes);
        // And once more, as a capture of the air would tell it.
        let _ = client.on_captured(now, stamp, bytes);
    };
    for step in story.steps {
        let mut out = [0; 1500];
        let mut reply = [0; Server::<u8>::MAX_REPLY];
        let clocked = Clocked { received_at: now, now };
        match step {
            Step::Wait(nanos) => now += Span::from_nanos(nanos),
            Step::Tick => server.handle_timeout(now, |_, _| {}),
            Step::Serve { payload, lost } => {
                for _ in 0..MAX_PACKETS {
                    let Some(due) = server.due(now) else { break };
                    let len = match payload {
                        Some(len) => {
                            let payload = [0; 255];
                            let payload = &payload[..usize::from(len)];
                            server.write_packet(now, due, payload, &mut out).expect("it fits")
                        }
                        None => server.on_nothing_to_send(now, due, &mut out),
                    };
                    if !lost {
                        to_client(&mut client, now, &out[..len], now.as_nanos(), 390_000_000);
                    }
                }
            }
            Step::Speak { peer, lost } => {
                client.handle_timeout(now);
                if let Some(len) = client.write(now, &mut out).filter(|_| !lost) {
                    let receipt = server.on_datagram(clocked, peer, &out[..len], &mut reply);
                    assert!(receipt.reply <= len, "an answer longer than its question");
                    if let ServerVerdict::Joined(key) = receipt.verdict {
                        assert!(server.client(key).is_some());
                    }
                    to_client(&mut client, now, &reply[..receipt.reply], 0, 0);
                }
            }
            Step::ToServer { peer, datagram } => {
                let receipt = server.on_datagram(clocked, peer, datagram, &mut reply);
                assert!(receipt.reply <= datagram.len(), "an answer longer than its question");
            }
            Step::ToClient { datagram, stamp, bps } => {
                to_client(&mut client, now, datagram, stamp, bps);
            }
            Step::Lost => client.on_transport_lost(now),
            Step::Ready => client.on_transport_ready(now),
        }
        assert!(server.clients().count() <= MAX_CLIENTS as usize, "more clients than allowed");
        let _ = (server.poll_timeout(), server.next_packet_at(), client.poll_timeout());
    }
});
