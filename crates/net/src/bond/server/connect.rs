//! From a stream's head to a TCP connection: by name or address, and by the rules.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use mio::net::TcpStream;

use super::super::Target;
use super::super::endpoint::Watched;
use super::super::flow::{self, Pipe};
use super::super::head::{self, Parsed, Reply};
use super::{Flow, Server, Step};

impl Server {
    pub(super) fn read_head(&mut self, key: usize) {
        let Some(flow) = self.flows.get_mut(key) else { return };
        let Step::Head(bytes) = &mut flow.step else { return };
        let Some((link, _)) = self.links.get_mut(&flow.link) else { return };
        loop {
            match flow::read(&mut link.connection, flow.stream, head::LONGEST) {
                flow::Incoming::Bytes(more) => bytes.extend_from_slice(&more),
                flow::Incoming::Nothing => return,
                flow::Incoming::End | flow::Incoming::Reset => {
                    flow::reset(&mut link.connection, flow.stream);
                    return self.forget(key);
                }
            }
            match head::parse(bytes) {
                Parsed::Partial => {}
                Parsed::Bad => return self.refuse(key, Reply::Failed),
                Parsed::Whole(target, len) => {
                    let rest = Bytes::copy_from_slice(&bytes[len..]);
                    match &target {
                        Target::Address(address) => {
                            let address = *address;
                            return self.connect(key, vec![address], target, rest);
                        }
                        Target::Name(name, port) => {
                            self.questions += 1;
                            if !self.resolver.ask(self.questions, name, *port) {
                                return self.refuse(key, Reply::Failed);
                            }
                            flow.step = Step::Resolving(self.questions, target, rest);
                            return;
                        }
                    }
                }
            }
        }
    }

    pub(super) fn on_resolved(&mut self, question: u64, addresses: Vec<SocketAddr>) {
        // Who has asked may have gone.
        let asked = |flow: &Flow| matches!(flow.step, Step::Resolving(it, ..) if it == question);
        let Some((key, flow)) = self.flows.iter_mut().find(|(_, flow)| asked(flow)) else { return };
        if let Step::Resolving(_, target, rest) = std::mem::replace(&mut flow.step, Step::Gone) {
            self.connect(key, addresses, target, rest);
        }
    }

    /// Begins to connect to the first of `addresses` that is allowed and can be.
    fn connect(&mut self, key: usize, addresses: Vec<SocketAddr>, target: Target, rest: Bytes) {
        let mut why = Reply::HostUnreachable;
        let mut addresses = addresses.into_iter();
        while let Some(address) = addresses.next() {
            if !self.rules.allow(&target, address.ip()) || address.port() != target.port() {
                tracing::info!("not connected to {target} at {}: forbidden", address.ip());
                why = Reply::Forbidden;
                continue;
            }
            let connected = TcpStream::connect(address).and_then(|mut tcp| {
                self.driver.watch(&mut tcp, Watched::Flow(key))?;
                Ok(tcp)
            });
            match connected {
                Ok(tcp) => {
                    if let Some(flow) = self.flows.get_mut(key) {
                        flow.step = Step::Connecting(tcp, addresses.collect(), target, rest);
                    }
                    return;
                }
                Err(error) => why = Reply::of(&error),
            }
        }
        self.refuse(key, why);
    }

    pub(super) fn on_connecting(&mut self, key: usize) {
        let Some(flow) = self.flows.get_mut(key) else { return };
        let Step::Connecting(tcp, others, target, rest) =
            std::mem::replace(&mut flow.step, Step::Gone)
        else {
            return;
        };
        let failed = match tcp.take_error() {
            Ok(None) => tcp.peer_addr().err().filter(|e| e.kind() != io::ErrorKind::NotConnected),
            Ok(Some(error)) | Err(error) => Some(error),
        };
        match failed {
            Some(error) if others.is_empty() => self.refuse(key, Reply::of(&error)),
            Some(_) => self.connect(key, others, target, rest),
            // Not yet.
            None if tcp.peer_addr().is_err() => {
                flow.step = Step::Connecting(tcp, others, target, rest);
            }
            None => {
                let _ = tcp.set_nodelay(true);
                let Some((link, _)) = self.links.get_mut(&flow.link) else { return };
                let answer = [Reply::Connected as u8];
                match link.connection.send_stream(flow.stream).write(&answer) {
                    Ok(_) => {
                        flow.step = Step::Open(Pipe::new(tcp, flow.stream, rest));
                        self.driver.ready.push_back(key);
                    }
                    // Windows are full of others' bytes; this is tried again with the next event.
                    Err(noq_proto::WriteError::Blocked) => {
                        flow.step = Step::Connecting(tcp, others, target, rest);
                    }
                    Err(_) => {
                        flow::reset(&mut link.connection, flow.stream);
                        self.forget(key);
                    }
                }
            }
        }
    }
}
