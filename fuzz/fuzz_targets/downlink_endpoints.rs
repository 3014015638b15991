//! Any datagrams from any address at any time to both ends of a downlink: no panic, a bounded number
//! of clients, and no answer longer than its request. The client answers challenges and reports
//! packets, so that clients do join.
#![no_main]

use arbitrary::Arbitrary;
use freshline_core::session::downlink::{
    Client, ClientParams, PutError, ReceivedDatagram, Server, ServerEvent, ServerParams, Stamp,
};
use freshline_core::session::{Admission, Secret, TransportState};
use freshline_core::unit::{BitRate, Span, Time};
use freshline_core::wire::SessionId;
use freshline_core::wlan::{Aggregation, AggregationParams, DownlinkParams, NonlinearParams};
use libfuzzer_sys::fuzz_target;

const MAX_CLIENTS: u32 = 3;
const MAX_PAYLOAD: usize = 200;
/// More packets than this are due at once only if the driver has slept for hours.
const MAX_PACKETS: usize = 64;

#[derive(Debug, Arbitrary)]
struct Story<'a> {
    proven: bool,
    token: bool,
    steps: Vec<Step<'a>>,
}

/// The driver's answer to a request for a packet.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Feed {
    Payload(u8),
    Pause,
    Finish,
    Silence,
}

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    /// Time passes, ns.
    Wait(u64),
    /// The server's timers.
    Tick,
    /// Due packets are sent.
    Serve {
        feed: Feed,
        lost: bool,
    },
    /// The driver may have packets again.
    Resume,
    /// The client's pending messages, from an address.
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
    Transport(u8),
}

fuzz_target!(|story: Story<'_>| {
    let mut world = World::new(story.proven, story.token);
    for step in story.steps {
        world.step(step);
        let count = world.server.clients().count();
        assert!(count <= MAX_CLIENTS as usize, "more clients than allowed");
        let _ = (world.server.poll_timeout(), world.client.poll_timeout());
    }
});

struct World {
    now: Time,
    server: Server<u8>,
    client: Client,
    out: Vec<u8>,
}

impl World {
    fn new(proven: bool, token: bool) -> Self {
        let admission = if proven { Admission::Proven } else { Admission::Cookie };
        let tokens = if token { vec![b"token".to_vec()] } else { Vec::new() };
        let params = NonlinearParams {
            downlink: DownlinkParams { max_stations: MAX_CLIENTS, ..DownlinkParams::default() },
            ..NonlinearParams::default()
        };
        let law = params.build().expect("these are the defaults");
        let max_payload = MAX_PAYLOAD;
        let params = ServerParams { admission, tokens, max_payload, ..ServerParams::default() };
        let server = Server::new(params, Box::new(law), Secret::new([1; 16]));
        let params = ClientParams { token: b"token".to_vec(), ..ClientParams::default() };
        let counter = Box::new(Aggregation::new(AggregationParams::default()));
        let client = Client::new(params, SessionId(7), counter, Time::ZERO);
        let client = client.expect("the token is short");
        Self { now: Time::ZERO, server, client, out: Vec::new() }
    }

    fn step(&mut self, step: Step<'_>) {
        let now = self.now;
        match step {
            Step::Wait(nanos) => self.now += Span::from_nanos(nanos),
            Step::Tick => self.server.handle_timeout(now),
            Step::Serve { feed, lost } => self.serve(feed, lost),
            Step::Resume => {
                let keys: Vec<_> = self.server.clients().map(|(key, _)| key).collect();
                keys.into_iter().for_each(|key| self.server.resume(now, key));
            }
            Step::Speak { peer, lost } => self.speak(peer, lost),
            Step::ToServer { peer, datagram } => self.to_server(peer, datagram),
            Step::ToClient { datagram, stamp, bps } => self.to_client(datagram, stamp, bps),
            Step::Transport(state) => {
                let states =
                    [TransportState::Down, TransportState::Connecting, TransportState::Ready];
                self.client.handle_transport(now, states[usize::from(state) % states.len()]);
            }
        }
    }

    fn serve(&mut self, feed: Feed, lost: bool) {
        for _ in 0..MAX_PACKETS {
            self.server.handle_timeout(self.now);
            while let Some(event) = self.server.poll_event() {
                let ServerEvent::PacketWanted(client) = event else { continue };
                match feed {
                    Feed::Payload(len) => {
                        let put = self.server.put(self.now, client, &[0; 255][..len.into()]);
                        let is_too_large = matches!(put, Err(PutError::TooLarge { .. }));
                        assert_eq!(is_too_large, usize::from(len) > MAX_PAYLOAD);
                        assert!(is_too_large || put.is_ok(), "{put:?}");
                    }
                    Feed::Pause => self.server.pause(self.now, client),
                    Feed::Finish => self.server.finish(self.now, client),
                    Feed::Silence => {}
                }
            }
            let mut out = std::mem::take(&mut self.out);
            let mut is_idle = true;
            while let Some(transmit) = self.server.poll_transmit(self.now, &mut out) {
                is_idle = false;
                if !lost {
                    self.to_client(&out[..transmit.len], self.now.as_nanos(), 390_000_000);
                }
            }
            self.out = out;
            if is_idle {
                return;
            }
        }
    }

    fn speak(&mut self, peer: u8, lost: bool) {
        self.client.handle_timeout(self.now);
        while self.client.poll_event().is_some() {}
        let mut out = Vec::new();
        // An urgent report whose time is in the past is due again at once.
        for _ in 0..MAX_PACKETS {
            let Some(transmit) = self.client.poll_transmit(self.now, &mut out) else { return };
            if !lost {
                self.to_server(peer, &out[..transmit.len]);
            }
        }
    }

    fn to_server(&mut self, peer: u8, datagram: &[u8]) {
        let _ = self.server.handle_datagram(self.now, peer, datagram);
        let mut out = Vec::new();
        while let Some(answer) = self.server.poll_answer(&mut out) {
            assert_eq!(answer.peer, peer, "an answer to another peer");
            assert!(answer.len <= datagram.len(), "an answer longer than its question");
            self.to_client(&out[..answer.len], 0, 0);
        }
    }

    fn to_client(&mut self, bytes: &[u8], stamp: u64, bps: u64) {
        let stamp = Stamp { at: Time::from_nanos(stamp), rate: BitRate::from_bps(bps) };
        let datagram = ReceivedDatagram::at(self.now, bytes);
        let _ = self.client.handle_stamped_datagram(self.now, stamp, datagram);
        // And once more, as a monitor-mode capture would show it.
        let _ = self.client.handle_captured(self.now, stamp, bytes);
        if let Some(packet) = self.client.poll_event() {
            assert!(!format!("{packet:?}").is_empty());
        }
    }
}
