//! A program's connection until it is carried by a stream: the program's request, the stream's
//! head, the server's answer.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use bytes::Bytes;
use freshline_core::unit::{Span, Time};
use mio::net::TcpStream;
use noq_proto::{Connection, Dir, StreamId};

use super::super::Target;
use super::super::driver::{Driver, Watched};
use super::super::flow::{self, Pipe, Pumped};
use super::super::greeting::{Greeting, Next, Protocol};
use super::super::head::{self, Reply};
use super::super::incoming::{self, Incoming};
use super::super::link::Link;
use super::super::socks;
use super::Client;
use super::udp::Associations;

/// Time limit of a program's request.
const GREETING: Span = Span::from_secs(10);

/// How long a program waits for the server: the server's own time limit, and a connection to it
/// first.
const PATIENCE: Span = Span::from_secs(30);

/// Maximum bytes that a program may send on the connection of its association: SOCKS5 defines none.
const MAX_IDLE_TALK: usize = 4096;

/// A program's connection.
pub(super) struct ProgramConnection {
    pub(super) step: Step,
    began_at: Time,
}

pub(super) enum Step {
    /// Taken out, to be moved to the next step.
    Gone,
    /// The program sends its request.
    Greeting(TcpStream, Greeting),
    /// It waits for a stream.
    Waiting(Program, Target),
    /// The server is connecting to the target. The rest of the head is still to be sent.
    Asked(Program, StreamId, Bytes),
    Open(Pipe),
    /// It lives as long as the association with this number. The last field counts the bytes that
    /// the program has sent meanwhile, which are ignored.
    Associated(TcpStream, usize, usize),
}

/// A program whose destination is known.
pub(super) struct Program {
    pub(super) tcp: TcpStream,
    /// The protocol of its request; `None` if its port determines the destination.
    protocol: Option<Protocol>,
    /// Bytes that it has sent after the request.
    said: Bytes,
}

impl Program {
    /// Sends it the result of its request.
    fn answer(&mut self, reply: Reply) {
        match self.protocol {
            // A new socket has room for it.
            Some(protocol) => drop(self.tcp.write(&protocol.answer(reply))),
            None if reply == Reply::Connected => {}
            None => flow::abort(&self.tcp),
        }
    }
}

impl ProgramConnection {
    /// Its stream, once it has one.
    pub(super) fn stream(&self) -> Option<StreamId> {
        match &self.step {
            Step::Asked(_, stream, _) | Step::Open(Pipe { stream, .. }) => Some(*stream),
            Step::Gone | Step::Greeting(..) | Step::Waiting(..) | Step::Associated(..) => None,
        }
    }

    /// Whether it has waited for too long; if so, the program is answered.
    pub(super) fn is_late(&mut self, now: Time) -> bool {
        let waited = now.since(self.began_at);
        match &mut self.step {
            Step::Gone | Step::Open(_) | Step::Associated(..) => false,
            Step::Greeting(..) => waited > GREETING,
            Step::Waiting(..) | Step::Asked(..) if waited <= PATIENCE => false,
            Step::Waiting(program, _) | Step::Asked(program, ..) => {
                program.answer(Reply::TimedOut);
                true
            }
        }
    }
}

impl Client {
    /// Accepts programs at a listener.
    pub(super) fn accept_programs(&mut self, index: usize) {
        let Some(listener) = self.listeners.get_mut(index) else { return };
        loop {
            let (mut tcp, _) = match listener.socket.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    // No descriptors or memory are left. The poll does not report this connection
                    // again.
                    if !std::mem::replace(&mut listener.is_short, true) {
                        tracing::warn!("cannot accept a program's connection: {error}");
                    }
                    return;
                }
            };
            let entry = self.flows.vacant_entry();
            if entry.key() >= self.driver.sending.streams as usize
                || self.driver.watch(&mut tcp, Watched::Flow(entry.key())).is_err()
            {
                flow::abort(&tcp);
                continue;
            }
            self.driver.ready.push_back(entry.key());
            let step = match listener.target.clone() {
                Some(target) => {
                    Step::Waiting(Program { tcp, protocol: None, said: Bytes::new() }, target)
                }
                None => Step::Greeting(tcp, Greeting::default()),
            };
            entry.insert(ProgramConnection { step, began_at: self.driver.clock.now() });
            self.driver.streams += 1;
        }
        listener.is_short = false;
    }
}

/// Moves a flow through its steps; without a link, up to the step that needs one.
pub(super) fn advance(
    flow: &mut ProgramConnection,
    link: Option<&mut Link>,
    by_stream: &mut HashMap<StreamId, usize>,
    key: usize,
    driver: &mut Driver,
    associations: &mut Associations,
) -> Pumped {
    if let Step::Greeting(..) = flow.step {
        let Step::Greeting(tcp, greeting) = std::mem::replace(&mut flow.step, Step::Gone) else {
            return Pumped::Over;
        };
        match greet(tcp, greeting, driver, associations) {
            Some(next) => flow.step = next,
            None => return Pumped::Over,
        }
    }
    if let Step::Associated(tcp, _, talk) = &mut flow.step {
        return if has_ended(tcp, talk) { Pumped::Over } else { Pumped::Blocked };
    }
    let Some(link) = link else { return Pumped::Blocked };
    loop {
        let connection = &mut link.connection;
        match std::mem::replace(&mut flow.step, Step::Gone) {
            Step::Gone => return Pumped::Over,
            step @ (Step::Greeting(..) | Step::Associated(..)) => {
                flow.step = step;
                return Pumped::Blocked;
            }
            Step::Waiting(program, target) => {
                let Some(stream) = connection.streams().open(Dir::Bi) else {
                    flow.step = Step::Waiting(program, target);
                    return Pumped::Blocked;
                };
                by_stream.insert(stream, key);
                flow.step = Step::Asked(program, stream, head::write(&target).into());
            }
            Step::Asked(mut program, stream, mut rest) => {
                if !rest.is_empty() {
                    let taken = connection.send_stream(stream).write(&rest).unwrap_or(0);
                    drop(rest.split_to(taken));
                    link.paths.on_written(taken as u64);
                }
                let Some(reply) = read_reply(connection, stream) else {
                    flow.step = Step::Asked(program, stream, rest);
                    return Pumped::Blocked;
                };
                program.answer(reply);
                if reply != Reply::Connected {
                    flow::reset(connection, stream);
                    by_stream.remove(&stream);
                    return Pumped::Over;
                }
                let read = [program.said, Bytes::new()];
                let mut pipe = Pipe::new(program.tcp, stream, read, driver.clock.now());
                if let Some(Protocol::Absolute(rest)) = program.protocol {
                    pipe.limit_up(rest);
                }
                flow.step = Step::Open(pipe);
            }
            Step::Open(mut pipe) => {
                let pumped = driver.pump(&mut pipe, link);
                flow.step = Step::Open(pipe);
                return pumped;
            }
        }
    }
}

/// The server's answer to the head of a stream; `None` until it arrives.
fn read_reply(connection: &mut Connection, stream: StreamId) -> Option<Reply> {
    match incoming::read(connection, stream, 1) {
        Incoming::Bytes(reply) => Some(reply.first().map_or(Reply::Failed, |it| (*it).into())),
        Incoming::Nothing => None,
        Incoming::End | Incoming::Reset => Some(Reply::Failed),
    }
}

/// Reads a program's request; `None` if the program has gone, or is refused.
fn greet(
    mut tcp: TcpStream,
    mut greeting: Greeting,
    driver: &Driver,
    associations: &mut Associations,
) -> Option<Step> {
    let mut piece = [0; 1024];
    loop {
        let most = piece.len().min(greeting.room());
        let len = match tcp.read(&mut piece[..most]) {
            Ok(0) => return None,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Some(Step::Greeting(tcp, greeting));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return None,
        };
        let (answer, next) = greeting.hear(&piece[..len]);
        if !answer.is_empty() {
            // A new socket has room for it.
            let _ = tcp.write(&answer);
        }
        match next {
            Next::Listen => {}
            Next::Connect(protocol, target, said) => {
                let program = Program { tcp, protocol: Some(protocol), said: said.into() };
                return Some(Step::Waiting(program, target));
            }
            Next::Associate => {
                let at = any_port_of_family(tcp.local_addr().ok()?);
                let opened = associations.open(driver, at, tcp.peer_addr().ok()?.ip());
                let Ok((association, address)) = opened else {
                    let _ = tcp.write(&socks::answer(Reply::Failed));
                    return None;
                };
                let _ = tcp.write(&socks::associated(address));
                flow::keep_alive(&tcp);
                return Some(Step::Associated(tcp, association, 0));
            }
            Next::End => return None,
        }
    }
}

/// The address for the socket of an association, given the address `at` of the program's
/// connection: IPv4 if the program uses IPv4 at a listener of both families, and in the same zone.
fn any_port_of_family(at: SocketAddr) -> SocketAddr {
    match (at, at.ip().to_canonical()) {
        (SocketAddr::V6(at), IpAddr::V6(ip)) => SocketAddrV6::new(ip, 0, 0, at.scope_id()).into(),
        (_, ip) => SocketAddr::new(ip, 0),
    }
}

/// Whether a program has closed the connection of its association, or has sent more than
/// [`MAX_IDLE_TALK`] on it. `talk` counts the bytes, which are dropped.
fn has_ended(mut tcp: impl Read, talk: &mut usize) -> bool {
    let mut piece = [0; 256];
    while *talk <= MAX_IDLE_TALK {
        match tcp.read(&mut piece) {
            Ok(0) => return true,
            Ok(len) => *talk += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_association_ends_when_its_connection_is_flooded() {
        let (mut talk, mut reads) = (0, 0);
        let mut flood = |piece: &mut [u8]| {
            reads += 1;
            Ok(piece.len())
        };
        assert!(has_ended(Endless(&mut flood), &mut talk));
        assert!(reads <= 1 + MAX_IDLE_TALK / 256, "{reads} reads");
        // A few bytes are tolerated.
        let (mut talk, mut left) = (0, Some(2));
        let mut some = |_: &mut [u8]| left.take().ok_or(io::ErrorKind::WouldBlock.into());
        assert!(!has_ended(Endless(&mut some), &mut talk));
        assert_eq!(talk, 2);
        assert!(has_ended(&b""[..], &mut talk));
    }

    /// A reader that calls a function.
    struct Endless<'a>(&'a mut dyn FnMut(&mut [u8]) -> io::Result<usize>);

    impl Read for Endless<'_> {
        fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
            (self.0)(piece)
        }
    }

    #[test]
    fn the_socket_of_an_association_is_of_the_family_and_zone_that_the_program_uses() {
        for (at, bound) in [
            ("127.0.0.1:1080", "127.0.0.1:0"),
            ("[::ffff:192.0.2.1]:1080", "192.0.2.1:0"),
            ("[::1]:1080", "[::1]:0"),
            ("[fe80::1%3]:1080", "[fe80::1%3]:0"),
        ] {
            assert_eq!(any_port_of_family(at.parse().unwrap()), bound.parse().unwrap(), "{at}");
        }
    }
}
