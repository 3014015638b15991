//! Looks up one name on its own thread: the system's resolver blocks, for half a minute if no name
//! server answers.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use freshline_system::privileges::keep_only;

use super::Remote;
use crate::waker::Waker;

/// The addresses of a peer, or why they are unknown.
pub(crate) type Answer = Result<Vec<SocketAddr>, String>;

/// At most one pending query for the addresses of one peer.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    asked: Option<Receiver<Answer>>,
}

impl Lookup {
    /// Queries the addresses of `remote`, unless a query is pending; `waker` is woken with the
    /// answer. A literal address needs no resolver: its answer is available at once.
    pub(crate) fn ask(&mut self, remote: &Remote, waker: &Arc<Waker>) {
        if self.asked.is_some() {
            return;
        }
        let (answer, asked) = channel();
        self.asked = Some(asked);
        if let Some(literal) = remote.literal() {
            let _ = answer.send(Ok(vec![literal]));
            return;
        }
        let (remote, waker, no_thread) = (remote.clone(), Arc::clone(waker), answer.clone());
        let resolver = std::thread::Builder::new().name("resolver".into()).spawn(move || {
            // It reads answers that other hosts have written.
            let _ = keep_only(&[]);
            // Both fail only if the endpoint has ended meanwhile.
            let _ = answer.send(resolve(&remote));
            let _ = waker.wake();
        });
        if let Err(error) = resolver {
            // A limit on threads was reached; it may have passed by the next query.
            let _ = no_thread.send(Err(format!("cannot start a thread for the resolver: {error}")));
        }
    }

    /// The answer, returned once.
    pub(crate) fn poll(&mut self) -> Option<Answer> {
        let answer = match self.asked.as_ref()?.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err("the resolver's thread has died".into()),
        };
        self.asked = None;
        Some(answer)
    }

    /// Whether a query is pending.
    pub(crate) fn is_asking(&self) -> bool {
        self.asked.is_some()
    }
}

fn resolve(remote: &Remote) -> Answer {
    let found = (remote.host(), remote.port()).to_socket_addrs();
    let found =
        found.map_err(|error| format!("cannot find the address of {}: {error}", remote.host()))?;
    // DNS filters answer with an unspecified address (0.0.0.0 or ::), which no host has.
    let found: Vec<_> =
        found.filter(|address| !address.ip().to_canonical().is_unspecified()).collect();
    match found.is_empty() {
        true => Err(format!("{} has no address", remote.host())),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_answered_at_once_and_names_by_a_thread() {
        let mut poll = mio::Poll::new().unwrap();
        let waker = Arc::new(Waker::of_poll(poll.registry(), mio::Token(0)).unwrap());
        let mut lookup = Lookup::default();
        let literal: SocketAddr = "[::1]:9".parse().unwrap();
        lookup.ask(&literal.into(), &waker);
        assert_eq!(lookup.poll(), Some(Ok(vec![literal])));
        assert!(!lookup.is_asking());

        lookup.ask(&Remote::new("localhost", 9), &waker);
        assert!(lookup.is_asking());
        poll.poll(&mut mio::Events::with_capacity(1), None).unwrap();
        let found = lookup.poll().unwrap().unwrap();
        assert!(!found.is_empty() && found.iter().all(|found| found.ip().is_loopback()));
    }

    #[test]
    fn an_unspecified_address_of_a_name_is_left_out() {
        // The resolver reads `0` as 0.0.0.0.
        let answer = resolve(&Remote::new("0", 9));
        assert_eq!(answer, Err("0 has no address".into()));
    }
}
