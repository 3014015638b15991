//! A browser from the gateway's point of view: a WebSocket or WebTransport, and a receiver of the
//! Freshline protocol.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use freshline::driver::clock::Clock;
use freshline_core::session::{Admission, Monitor, MonitorParams, Secret};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use web_transport_noq::{ClientBuilder, RecvStream, SendStream, Session};

/// Maximum time that a test waits for an expected message.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

enum Link {
    WebSocket(Box<WebSocketStream<MaybeTlsStream<TcpStream>>>),
    WebTransport(Box<(Session, SendStream, RecvStream)>),
}

/// A state that a browser shows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shown {
    pub(crate) name: Value,
    pub(crate) flags: u8,
    pub(crate) len: u32,
    pub(crate) state: Vec<u8>,
    pub(crate) age_ms: Option<f64>,
}

pub(crate) struct Browser {
    link: Link,
    receiver: Monitor<()>,
    clock: Clock,
    /// Replies to control messages.
    pub(crate) replies: Vec<Value>,
    pub(crate) datagrams: usize,
}

impl Browser {
    fn new(link: Link) -> Self {
        let params = MonitorParams { admission: Admission::Proven, ..MonitorParams::default() };
        let receiver = Monitor::new(params, Secret::new([7; 16]));
        Self { link, receiver, clock: Clock::new(), replies: Vec::new(), datagrams: 0 }
    }

    /// By a WebSocket, with this token.
    pub(crate) async fn websocket(at: SocketAddr, token: &str) -> Result<Self, Box<Error>> {
        let mut request = format!("ws://{at}/ws?token={token}").into_client_request()?;
        let protocol = "freshline.2".parse().expect("a header");
        request.headers_mut().insert("sec-websocket-protocol", protocol);
        let (socket, answer) = connect_async(request).await?;
        assert_eq!(answer.headers()["sec-websocket-protocol"], "freshline.2");
        Ok(Self::new(Link::WebSocket(Box::new(socket))))
    }

    /// By WebTransport, with the certificate of this hash.
    pub(crate) async fn webtransport(
        at: SocketAddr,
        hash: &str,
        token: &str,
    ) -> Result<Self, web_transport_noq::ClientError> {
        let bytes: Vec<u8> = (0..hash.len() / 2)
            .map(|at| u8::from_str_radix(&hash[2 * at..2 * at + 2], 16).expect("hexadecimal"))
            .collect();
        let client = ClientBuilder::new().with_server_certificate_hashes(vec![bytes])?;
        let url = format!("https://{at}/freshline?token={token}");
        let session = client.connect(web_transport_noq::proto::ConnectRequest::new(
            url.parse::<url::Url>().expect("a URL"),
        ));
        let session = session.await?;
        let (send, recv) = session.open_bi().await.expect("the gateway takes a stream");
        Ok(Self::new(Link::WebTransport(Box::new((session, send, recv)))))
    }

    pub(crate) async fn say(&mut self, message: Value) {
        self.say_text(message.to_string()).await;
    }

    pub(crate) async fn say_text(&mut self, text: String) {
        match &mut self.link {
            Link::WebSocket(socket) => _ = socket.send(Message::text(text)).await,
            Link::WebTransport(link) => {
                _ = link.1.write_all(format!("{text}\n").as_bytes()).await;
            }
        }
    }

    pub(crate) async fn subscribe(&mut self, patterns: &[&str]) {
        self.say(json!({ "id": 1, "subscribe": patterns })).await;
    }

    /// Handles the next message; `false` if the gateway has closed the connection.
    pub(crate) async fn turn(&mut self) -> bool {
        let datagram = match &mut self.link {
            Link::WebSocket(socket) => match socket.next().await {
                Some(Ok(Message::Binary(bytes))) => bytes,
                Some(Ok(Message::Text(text))) => {
                    self.replies.push(serde_json::from_str(&text).expect("JSON"));
                    return true;
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => return true,
                _ => return false,
            },
            Link::WebTransport(link) => {
                let (session, _, replies) = &mut **link;
                let mut line = vec![0; 4096];
                tokio::select! {
                    datagram = session.read_datagram() => match datagram {
                        Ok(datagram) => datagram,
                        Err(_) => return false,
                    },
                    read = replies.read(&mut line) => {
                        let Ok(Some(len)) = read else { return false };
                        for line in str::from_utf8(&line[..len]).expect("text").lines() {
                            self.replies.push(serde_json::from_str(line).expect("JSON"));
                        }
                        return true;
                    }
                }
            }
        };
        self.datagrams += 1;
        let now = self.clock.now();
        let heard = self.receiver.handle_datagram(now, (), &*datagram);
        assert!(heard.is_ok(), "{heard:?}");
        while self.receiver.poll_event().is_some() {}
        let mut out = Vec::new();
        while let Some(answer) = self.receiver.poll_transmit(self.clock.now(), &mut out) {
            let bytes = out[..answer.len].to_vec();
            match &mut self.link {
                Link::WebSocket(socket) => _ = socket.send(Message::binary(bytes)).await,
                Link::WebTransport(link) => _ = link.0.send_datagram(bytes.into()),
            }
        }
        true
    }

    /// Handles messages until `holds` does.
    pub(crate) async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            let is_there = timeout(PATIENCE, self.turn()).await;
            assert_eq!(is_there, Ok(true), "the gateway has gone; waiting for {what}");
            assert!(began.elapsed() < PATIENCE, "no {what}: {:?}", self.shown());
        }
    }

    /// Waits until the gateway has closed the connection.
    pub(crate) async fn until_closed(&mut self) {
        let closed = async { while self.turn().await {} };
        timeout(PATIENCE, closed).await.expect("it closes");
    }

    /// The states of a topic of the gateway, by keys.
    fn topic(&self, name: &str) -> Vec<(u16, Vec<u8>, Option<f64>)> {
        let now = self.clock.now();
        let records = self.receiver.records().flat_map(|(_, record)| record.topics());
        let of = records.filter(|topic| topic.name() == name);
        let states = of.filter_map(|topic| {
            let key = topic.key().map_or(0, |key| u16::from_be_bytes([key[0], key[1]]));
            let age = topic.state_age(now).map(|age| age.as_millis_f64());
            Some((key, topic.payload()?.to_vec(), age))
        });
        states.collect()
    }

    pub(crate) fn shown(&self) -> Vec<Shown> {
        let names = self.topic("names");
        let states = self.topic("states").into_iter().filter_map(|(id, state, age_ms)| {
            let name = &names.iter().find(|(of, ..)| *of == id)?.1;
            Some(Shown {
                name: serde_json::from_slice(name).expect("JSON"),
                flags: state[0],
                len: u32::from_be_bytes([state[1], state[2], state[3], state[4]]),
                state: state[9..].to_vec(),
                age_ms,
            })
        });
        states.collect()
    }

    /// The state of this source and topic.
    pub(crate) fn state_of(&self, source: &str, topic: &str) -> Option<Shown> {
        let is_it = |shown: &Shown| {
            shown.name["source"] == source && shown.name["topic"].as_str().unwrap_or("") == topic
        };
        self.shown().into_iter().find(is_it)
    }

    pub(crate) fn sources(&self) -> Vec<Value> {
        let sources = self.topic("sources").into_iter();
        sources.map(|(_, json, _)| serde_json::from_slice(&json).expect("JSON")).collect()
    }

    pub(crate) fn link(&self) -> Option<Value> {
        // It has no key, and a topic with a key of one byte would not be it.
        let (_, json, _) = self.topic("link").pop()?;
        Some(serde_json::from_slice(&json).expect("JSON"))
    }
}
