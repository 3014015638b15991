//! Kernel TCP streams without end.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Streams that send without end in one direction; they end with this.
pub(crate) struct Streams {
    /// Of each the one that sends, then the other.
    pub(crate) ends: Vec<TcpStream>,
    /// Bytes that each stream has carried.
    carried: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<()>>,
}

impl Streams {
    /// From the first end of each connection to the second.
    pub(crate) fn start(connections: impl IntoIterator<Item = [TcpStream; 2]>) -> Self {
        let mut streams = Self { ends: Vec::new(), carried: Vec::new(), threads: Vec::new() };
        for [mut from, mut to] in connections {
            let carried = Arc::new(AtomicU64::new(0));
            streams.ends.extend([from.try_clone().unwrap(), to.try_clone().unwrap()]);
            streams.carried.push(Arc::clone(&carried));
            streams.threads.push(thread::spawn(move || {
                let chunk = vec![0; 1 << 16];
                while from.write_all(&chunk).is_ok() {}
            }));
            streams.threads.push(thread::spawn(move || {
                let mut chunk = vec![0; 1 << 16];
                while let Ok(length @ 1..) = to.read(&mut chunk) {
                    carried.fetch_add(length as u64, Ordering::Relaxed);
                }
            }));
        }
        streams
    }

    /// Goodput of each stream while `what` runs, in Mbit/s.
    pub(crate) fn goodputs(&self, what: impl FnOnce()) -> Vec<f64> {
        let carried = || self.carried.iter().map(|one| one.load(Ordering::Relaxed));
        let (start, before): (_, Vec<_>) = (Instant::now(), carried().collect());
        what();
        let micros = start.elapsed().as_micros() as f64;
        carried()
            .zip(before)
            .map(|(after, before)| (after - before) as f64 * 8.0 / micros)
            .collect()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        for end in &self.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
