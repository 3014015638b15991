//! From a stream's head to a TCP connection: by name or address, and by the rules.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use freshline_core::unit::{Span, Time};
use mio::net::TcpStream;

use super::super::Target;
use super::super::driver::Watched;
use super::super::flow::{self, Pipe};
use super::super::head::{self, Parsed, Reply};
use super::super::incoming::{self, Incoming};
use super::super::resolve::Asker;
use super::{Server, Step, Wish};

/// How long an address may take to answer before the next one is tried in parallel (RFC 8305,
/// section 5).
const ATTEMPT_DELAY: Span = Span::from_millis(250);

/// How long the address family of the last answer is remembered (section 4: about 10 minutes).
const REMEMBERED: Span = Span::from_secs(600);

impl Server {
    pub(super) fn read_head(&mut self, key: usize) {
        let Some(flow) = self.flows.get_mut(key) else { return };
        let Step::Head(bytes) = &mut flow.step else { return };
        let Some((link, _)) = self.links.get_mut(&flow.link) else { return };
        loop {
            match incoming::read(&mut link.connection, flow.stream, head::LONGEST) {
                Incoming::Bytes(more) => bytes.extend_from_slice(&more),
                Incoming::Nothing => return,
                Incoming::End | Incoming::Reset => {
                    flow::reset(&mut link.connection, flow.stream);
                    return self.forget(key);
                }
            }
            match head::parse(bytes) {
                Parsed::Partial => {}
                Parsed::Bad => return self.refuse(key, Reply::Failed),
                Parsed::Whole(target, len) => {
                    let wish = Wish { target, rest: Bytes::copy_from_slice(&bytes[len..]) };
                    let (name, port) = match &wish.target {
                        Target::Address(address) => {
                            let addresses = vec![*address];
                            return self.connect(key, addresses, wish);
                        }
                        Target::Name(name, port) => (name, *port),
                    };
                    self.questions += 1;
                    if !self.resolver.ask((key, self.questions), name, port) {
                        return self.refuse(key, Reply::Failed);
                    }
                    flow.step = Step::Resolving(self.questions, wish);
                    return;
                }
            }
        }
    }

    pub(super) fn on_resolved(&mut self, (key, question): Asker, addresses: Vec<SocketAddr>) {
        if self.on_datagram_resolved(question, &addresses) {
            return;
        }
        // The stream that asked may be gone.
        let Some(flow) = self.flows.get_mut(key) else { return };
        if !matches!(flow.step, Step::Resolving(asked, _) if asked == question) {
            return;
        }
        if let Step::Resolving(_, wish) = std::mem::replace(&mut flow.step, Step::Gone) {
            self.connect(key, addresses, wish);
        }
    }

    /// Connects to one of `addresses` after the other, until one answers (RFC 8305).
    fn connect(&mut self, key: usize, addresses: Vec<SocketAddr>, wish: Wish) {
        let others = self.families.order(addresses, self.driver.clock.now());
        let why = Reply::HostUnreachable;
        let attempts = Attempts { tcps: Vec::new(), others, next_at: Time::ZERO, why, wish };
        if let Some(flow) = self.flows.get_mut(key) {
            flow.step = Step::Connecting(attempts);
            self.attempt_next(key);
        }
    }

    /// Starts a connection to the next address that the rules allow and the system accepts.
    fn attempt_next(&mut self, key: usize) {
        let Some(flow) = self.flows.get_mut(key) else { return };
        let Step::Connecting(mut attempts) = std::mem::replace(&mut flow.step, Step::Gone) else {
            return;
        };
        while let Some(address) = attempts.others.pop_front() {
            match self.begin(key, address, &attempts.wish.target) {
                Ok(Some(tcp)) => {
                    attempts.tcps.push(tcp);
                    break;
                }
                Ok(None) => {
                    let target = &attempts.wish.target;
                    tracing::info!("not connected to {target} at {address}: forbidden");
                    attempts.why = Reply::Forbidden;
                }
                Err(error) => attempts.why = Reply::of(&error),
            }
        }
        if attempts.tcps.is_empty() {
            return self.refuse(key, attempts.why);
        }
        attempts.next_at = self.driver.clock.now() + ATTEMPT_DELAY;
        if !attempts.others.is_empty() {
            let at = self.next_attempt_at.get_or_insert(attempts.next_at);
            *at = (*at).min(attempts.next_at);
        }
        if let Some(flow) = self.flows.get_mut(key) {
            flow.step = Step::Connecting(attempts);
        }
    }

    /// Starts a connection; `None` if the rules forbid it.
    fn begin(
        &self,
        key: usize,
        address: SocketAddr,
        target: &Target,
    ) -> io::Result<Option<TcpStream>> {
        if address.port() != target.port() || !self.rules.allow(target, address.ip())? {
            return Ok(None);
        }
        let mut tcp = TcpStream::connect(address)?;
        self.driver.watch(&mut tcp, Watched::Flow(key))?;
        Ok(Some(tcp))
    }

    /// Tries the next address of each destination whose last one has not answered yet.
    pub(super) fn attempt_others(&mut self, now: Time) {
        if self.next_attempt_at.is_none_or(|at| at > now) {
            return;
        }
        let mut due = Vec::new();
        self.next_attempt_at = None;
        for (key, flow) in &self.flows {
            let Step::Connecting(attempts) = &flow.step else { continue };
            if attempts.others.is_empty() {
                continue;
            }
            if attempts.next_at <= now {
                due.push(key);
            } else {
                let at = self.next_attempt_at.get_or_insert(attempts.next_at);
                *at = (*at).min(attempts.next_at);
            }
        }
        due.into_iter().for_each(|key| self.attempt_next(key));
    }

    pub(super) fn on_connecting(&mut self, key: usize) {
        let Some(flow) = self.flows.get_mut(key) else { return };
        let Step::Connecting(attempts) = &mut flow.step else { return };
        let mut connected = None;
        let before = attempts.tcps.len();
        for at in (0..before).rev() {
            match outcome(&attempts.tcps[at]) {
                Ok(true) => connected = Some(at),
                Ok(false) => {}
                Err(error) => {
                    attempts.why = Reply::of(&error);
                    attempts.tcps.remove(at);
                    // The indices behind it decrease by one.
                    connected = connected.map(|connected| connected - 1);
                }
            }
        }
        let Some(connected) = connected else {
            if attempts.tcps.len() < before {
                self.attempt_next(key);
            }
            return;
        };
        let Some((link, _)) = self.links.get_mut(&flow.link) else { return };
        // One address has answered, so the others are dropped.
        attempts.tcps.swap(0, connected);
        attempts.tcps.truncate(1);
        attempts.others.clear();
        let answer = [Reply::Connected as u8];
        match link.connection.send_stream(flow.stream).write(&answer) {
            Ok(_) => {
                let Step::Connecting(mut attempts) = std::mem::replace(&mut flow.step, Step::Gone)
                else {
                    return;
                };
                let Some(tcp) = attempts.tcps.pop() else { return };
                let now = self.driver.clock.now();
                if let (Target::Name(..), Ok(address)) = (&attempts.wish.target, tcp.peer_addr()) {
                    self.families.on_answer(address, now);
                }
                let read = [Bytes::new(), attempts.wish.rest];
                flow.step = Step::Open(Pipe::new(tcp, flow.stream, read, now));
                self.driver.ready.push_back(key);
            }
            // Other streams fill the windows; the next event tries again.
            Err(noq_proto::WriteError::Blocked) => {}
            Err(_) => {
                flow::reset(&mut link.connection, flow.stream);
                self.forget(key);
            }
        }
    }
}

/// Whether the connection is established.
fn outcome(tcp: &TcpStream) -> io::Result<bool> {
    if let Some(error) = tcp.take_error()? {
        return Err(error);
    }
    match tcp.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

/// Attempts to connect to the addresses of one destination; the first that answers is used.
pub(super) struct Attempts {
    /// TCP handshakes that have begun.
    pub(super) tcps: Vec<TcpStream>,
    others: VecDeque<SocketAddr>,
    /// When the next address is tried.
    next_at: Time,
    /// Why the last one failed.
    why: Reply,
    wish: Wish,
}

/// The address family that answered last.
#[derive(Debug, Default)]
pub(super) struct Families(Option<(bool, Time)>);

impl Families {
    /// An address of a name has answered.
    fn on_answer(&mut self, address: SocketAddr, now: Time) {
        self.0 = Some((address.is_ipv6(), now));
    }

    /// The addresses, with the families alternating (RFC 8305, section 4). The first is of the
    /// family that answered last, or else of the family that the resolver put first.
    fn order(&self, addresses: Vec<SocketAddr>, now: Time) -> VecDeque<SocketAddr> {
        let fresh = self.0.filter(|(_, at)| now.since(*at) < REMEMBERED);
        let Some(first) = addresses.first() else { return VecDeque::new() };
        let is_v6_first = fresh.map_or(first.is_ipv6(), |(is_v6, _)| is_v6);
        let (mut first, mut second): (VecDeque<_>, VecDeque<_>) =
            addresses.into_iter().partition(|address| address.is_ipv6() == is_v6_first);
        let mut ordered = VecDeque::new();
        while !first.is_empty() || !second.is_empty() {
            ordered.extend(first.pop_front());
            ordered.extend(second.pop_front());
        }
        ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_and_the_one_that_answered_is_first() {
        let addresses = |texts: &[&str]| {
            texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>()
        };
        let given =
            addresses(&["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1", "192.0.2.1:1"]);
        let mut families = Families::default();
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let order = |families: &Families, now| Vec::from(families.order(given.clone(), now));
        let turns = [0, 3, 1, 2].map(|index| given[index]);
        assert_eq!(order(&families, at(0)), turns);
        families.on_answer(given[3], at(1));
        assert_eq!(order(&families, at(2)), [3, 0, 1, 2].map(|index| given[index]));
        // Not for ever.
        assert_eq!(order(&families, at(700)), turns);
        assert_eq!(families.order(Vec::new(), at(2)), Vec::new());
    }
}
