//! Kernel TCP between A and B: uploads and downloads, and questions with answers.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt::TcpCongestion};

use super::net::Net;
use super::streams::Streams;

/// A connection from A to B, by cubic: its ends there.
fn connection(net: &Net) -> [TcpStream; 2] {
    let listener = net.within("b", || TcpListener::bind("10.78.0.2:0").unwrap());
    let address = listener.local_addr().unwrap();
    let near = net.within("a", || TcpStream::connect(address).unwrap());
    let far = listener.accept().unwrap().0;
    for end in [&near, &far] {
        setsockopt(end, TcpCongestion, &"cubic".into()).unwrap();
        end.set_nodelay(true).unwrap();
    }
    [near, far]
}

/// Uploads from A to B.
pub(crate) fn uploads(net: &Net, how_many: usize) -> Streams {
    Streams::start((0..how_many).map(|_| connection(net)))
}

/// The port at B of the first of them.
pub(crate) fn port_of(uploads: &Streams) -> u16 {
    uploads.ends[0].peer_addr().unwrap().port()
}

/// The goodput of a download of 2 MB from B to A, in Mbit/s.
pub(crate) fn downloaded(net: &Net) -> f64 {
    const LENGTH: usize = 2_000_000;
    let begin = Instant::now();
    let [mut near, mut far] = connection(net);
    let sending = thread::spawn(move || far.write_all(&[0; LENGTH]));
    let mut received = vec![0; LENGTH];
    near.read_exact(&mut received).unwrap();
    let goodput = LENGTH as f64 * 8.0 / begin.elapsed().as_micros() as f64;
    sending.join().unwrap().unwrap();
    goodput
}

/// A connection on which A asks and B answers at once.
pub(crate) struct Questions {
    asking: TcpStream,
    answering: Option<JoinHandle<io::Result<()>>>,
}

impl Questions {
    /// As long as a key pressed, or a move in a game.
    const LENGTH: usize = 100;
    const EVERY: Duration = Duration::from_millis(20);

    pub(crate) fn start(net: &Net) -> Self {
        let [asking, mut far] = connection(net);
        let answering = thread::spawn(move || {
            let mut question = [0; Self::LENGTH];
            loop {
                far.read_exact(&mut question)?;
                far.write_all(&question)?;
            }
        });
        Self { asking, answering: Some(answering) }
    }

    /// How long one takes in the median while `for_so_long` passes, in ms.
    pub(crate) fn median_ms(&mut self, for_so_long: Duration) -> f64 {
        let begin = Instant::now();
        let mut times = Vec::new();
        while begin.elapsed() < for_so_long {
            let asked = Instant::now();
            let mut question = [0; Self::LENGTH];
            self.asking.write_all(&question).unwrap();
            self.asking.read_exact(&mut question).unwrap();
            times.push(asked.elapsed().as_secs_f64() * 1e3);
            thread::sleep(Self::EVERY);
        }
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }
}

impl Drop for Questions {
    fn drop(&mut self) {
        let _ = self.asking.shutdown(Shutdown::Both);
        let _ = self.answering.take().map(JoinHandle::join);
    }
}
