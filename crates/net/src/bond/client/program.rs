//! A program's connection on its way to a stream: SOCKS5, the head, the server's answer.

use std::collections::HashMap;
use std::io::{self, Read, Write};

use bytes::Bytes;
use mio::net::TcpStream;
use noq_proto::{Dir, StreamId};

use super::super::endpoint::Watched;
use super::super::flow::{self, Incoming, Moved, Pipe, Pumped};
use super::super::link::Link;
use super::super::{Target, head, socks};
use super::Client;

/// A program's connection.
pub(super) enum Flow {
    /// It is being moved on.
    Gone,
    /// It speaks SOCKS5: what it has said, and whether it was greeted.
    Greeting(TcpStream, Vec<u8>, bool),
    /// It waits for a stream; does it speak SOCKS5?
    Waiting(TcpStream, Target, bool),
    /// The server connects to the target. The rest of the head waits to leave.
    Asked(TcpStream, StreamId, Bytes, bool),
    Open(Pipe),
}

impl Client {
    /// Takes programs that have come to a listener.
    pub(super) fn accept_programs(&mut self, index: usize) {
        let Some(listener) = self.listeners.get(index) else { return };
        loop {
            let (mut tcp, _) = match listener.socket.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::debug!("a connection was not accepted: {error}");
                    return;
                }
            };
            let _ = tcp.set_nodelay(true);
            let entry = self.flows.vacant_entry();
            if entry.key() >= self.driver.sending.streams as usize
                || self.driver.watch(&mut tcp, Watched::Flow(entry.key())).is_err()
            {
                flow::abort(&tcp);
                continue;
            }
            self.driver.ready.push_back(entry.key());
            entry.insert(match &listener.target {
                Some(target) => Flow::Waiting(tcp, target.clone(), false),
                None => Flow::Greeting(tcp, Vec::new(), false),
            });
            self.driver.streams += 1;
        }
    }
}

/// Carries a flow on from where it stands.
pub(super) fn advance(
    flow: &mut Flow,
    link: &mut Link,
    by_stream: &mut HashMap<StreamId, usize>,
    key: usize,
    scratch: &mut [u8],
    moved: &mut Moved,
) -> Pumped {
    loop {
        let connection = &mut link.connection;
        match std::mem::replace(flow, Flow::Gone) {
            Flow::Gone => return Pumped::Over,
            Flow::Greeting(tcp, said, was_greeted) => match greet(tcp, said, was_greeted) {
                Some(next @ Flow::Greeting(..)) => {
                    *flow = next;
                    return Pumped::Waits;
                }
                Some(next) => *flow = next,
                None => return Pumped::Over,
            },
            Flow::Waiting(tcp, target, is_socks) => {
                let Some(stream) = connection.streams().open(Dir::Bi) else {
                    *flow = Flow::Waiting(tcp, target, is_socks);
                    return Pumped::Waits;
                };
                by_stream.insert(stream, key);
                *flow = Flow::Asked(tcp, stream, head::write(&target).into(), is_socks);
            }
            Flow::Asked(mut tcp, stream, mut rest, is_socks) => {
                if !rest.is_empty() {
                    let taken = connection.send_stream(stream).write(&rest).unwrap_or(0);
                    drop(rest.split_to(taken));
                    moved.up += taken as u64;
                }
                let reply = match flow::read(connection, stream, 1) {
                    Incoming::Bytes(reply) => reply.first().copied().unwrap_or_default(),
                    Incoming::Nothing => {
                        *flow = Flow::Asked(tcp, stream, rest, is_socks);
                        return Pumped::Waits;
                    }
                    Incoming::End | Incoming::Reset => head::Reply::Failed as u8,
                };
                // A socket that is new has room for ten bytes.
                if is_socks {
                    let _ = tcp.write(&socks::answer(reply));
                }
                if reply != head::Reply::Connected as u8 {
                    flow::reset(connection, stream);
                    by_stream.remove(&stream);
                    if !is_socks {
                        flow::abort(&tcp);
                    }
                    return Pumped::Over;
                }
                *flow = Flow::Open(Pipe::new(tcp, stream, Bytes::new()));
            }
            Flow::Open(mut pipe) => {
                let pumped = pipe.pump(connection, scratch, moved);
                *flow = Flow::Open(pipe);
                return pumped;
            }
        }
    }
}

/// Reads what a program says by SOCKS5; `None`: it has gone, or is sent away.
fn greet(mut tcp: TcpStream, mut said: Vec<u8>, mut was_greeted: bool) -> Option<Flow> {
    loop {
        let step = if was_greeted { socks::request(&said) } else { socks::greeting(&said) };
        match step {
            socks::Step::Greet(len, words) => {
                // A socket that is new has room for two bytes.
                let _ = tcp.write(&words);
                said.drain(..len);
                was_greeted = true;
            }
            // A program waits for the answer before it goes on.
            socks::Step::Connect(len, target) if len == said.len() => {
                return Some(Flow::Waiting(tcp, target, true));
            }
            socks::Step::Connect(..) => return None,
            socks::Step::Refuse(words) => {
                let _ = tcp.write(words);
                return None;
            }
            socks::Step::More => {
                let len = said.len();
                said.resize(socks::LONGEST, 0);
                let read = tcp.read(&mut said[len..]);
                said.truncate(len + read.as_ref().copied().unwrap_or(0));
                match read {
                    Ok(0) => return None,
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Some(Flow::Greeting(tcp, said, was_greeted));
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return None,
                }
            }
        }
    }
}
