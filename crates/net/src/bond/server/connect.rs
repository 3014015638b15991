//! From a stream's head to a TCP connection: by name or address, and by the rules.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use freshline_core::unit::Time;
use mio::net::TcpStream;

use super::super::Target;
use super::super::driver::Watched;
use super::super::flow::{self, Pipe};
use super::super::head::{self, Parsed, Reply};
use super::super::resolve::Asker;
use super::{ADDRESS_PATIENCE, Server, Step, Wish};

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
        // Who has asked may have gone.
        let Some(flow) = self.flows.get_mut(key) else { return };
        if !matches!(flow.step, Step::Resolving(asked, _) if asked == question) {
            return;
        }
        if let Step::Resolving(_, wish) = std::mem::replace(&mut flow.step, Step::Gone) {
            self.connect(key, addresses, wish);
        }
    }

    /// Begins to connect to the first of `addresses` that is allowed and can be.
    fn connect(&mut self, key: usize, addresses: Vec<SocketAddr>, wish: Wish) {
        let mut why = Reply::HostUnreachable;
        let mut addresses = addresses.into_iter();
        while let Some(address) = addresses.next() {
            match self.begin(key, address, &wish.target) {
                Ok(Some(tcp)) => {
                    if let Some(flow) = self.flows.get_mut(key) {
                        let now = self.driver.clock.now();
                        flow.step = Step::Connecting(tcp, now, addresses.collect(), wish);
                    }
                    return;
                }
                Ok(None) => {
                    tracing::info!("not connected to {} at {address}: forbidden", wish.target);
                    why = Reply::Forbidden;
                }
                Err(error) => why = Reply::of(&error),
            }
        }
        self.refuse(key, why);
    }

    /// Begins to connect; `None`: the rules forbid it.
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

    /// Tries the next address of those names whose last one does not answer.
    pub(super) fn go_on_to_other_addresses(&mut self, now: Time) {
        let slow = self.flows.iter().filter_map(|(key, flow)| match &flow.step {
            Step::Connecting(_, since, others, _)
                if !others.is_empty() && now.since(*since) > ADDRESS_PATIENCE =>
            {
                Some(key)
            }
            _ => None,
        });
        for key in slow.collect::<Vec<_>>() {
            if let Step::Connecting(_, _, others, wish) =
                std::mem::replace(&mut self.flows[key].step, Step::Gone)
            {
                self.connect(key, others, wish);
            }
        }
    }

    pub(super) fn on_connecting(&mut self, key: usize) {
        let Some(flow) = self.flows.get_mut(key) else { return };
        let Step::Connecting(tcp, since, others, wish) =
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
            Some(_) => self.connect(key, others, wish),
            // Not yet.
            None if tcp.peer_addr().is_err() => {
                flow.step = Step::Connecting(tcp, since, others, wish);
            }
            None => {
                let Some((link, _)) = self.links.get_mut(&flow.link) else { return };
                let answer = [Reply::Connected as u8];
                match link.connection.send_stream(flow.stream).write(&answer) {
                    Ok(_) => {
                        let (read, now) = ([Bytes::new(), wish.rest], self.driver.clock.now());
                        flow.step = Step::Open(Pipe::new(tcp, flow.stream, read, now));
                        self.driver.ready.push_back(key);
                    }
                    // Windows are full of others' bytes; this is tried again with the next event.
                    // It has answered, so no other address is needed.
                    Err(noq_proto::WriteError::Blocked) => {
                        flow.step = Step::Connecting(tcp, since, Vec::new(), wish);
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
