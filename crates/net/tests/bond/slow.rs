//! Slow readers: one transfer in competition with many programs that read slowly.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use freshline_net::bond::Sending;

use crate::ends::{Bond, LOCALHOST, serve};
use crate::{babble, lazy};

/// The size of the fast transfer, in bytes.
const SIZE: usize = 16_000_000;

/// The number of slow readers, whose stream windows are three times the memory.
const SLOW: usize = 48;

/// Reads 4 kB from each socket, 10 times a second, until `stop`.
fn read_slowly(mut programs: Vec<TcpStream>, stop: &AtomicBool) {
    for program in &programs {
        program.set_nonblocking(true).unwrap();
    }
    let mut piece = [0; 4 * 1024];
    while !stop.load(Ordering::Relaxed) {
        for program in &mut programs {
            match program.read(&mut piece) {
                Ok(len) => assert!(len > 0, "a slow reader was reset"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn slow_readers_do_not_hold_a_fast_one_up() {
    let (babbler, source) = (
        serve(LOCALHOST, babble),
        serve(LOCALHOST, |mut stream: TcpStream| {
            let _ = stream.write_all(&vec![7; SIZE]);
        }),
    );
    let sending =
        Sending { stream_window: 256 * 1024, memory: 1 << 22, streams: 64, ..Sending::default() };
    let allow = [babbler, source].map(|to| to.to_string());
    let bond = Bond::new(sending, &allow.each_ref().map(String::as_str), &[babbler, source]);
    let slow = (0..SLOW).map(|_| lazy(bond.client.at[1])).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let reader = thread::spawn({
        let stop = Arc::clone(&stop);
        move || read_slowly(slow, &stop)
    });
    bond.client.wait(|report| report.streams_open == SLOW);
    // Until the sockets' buffers are full, and the readers set the pace.
    let mut given = 0;
    let is_full = (0..60).any(|_| {
        thread::sleep(Duration::from_millis(500));
        let before =
            std::mem::replace(&mut given, bond.client.watcher.report().streams_received_bytes);
        given > 0 && given - before < 4_000_000
    });
    assert!(is_full, "{given} bytes");
    let began_at = Instant::now();
    let (tell, told) = mpsc::channel();
    let mut fast = bond.forwarded(1);
    let transfer = thread::spawn(move || {
        let got = fast.read_to_end(&mut Vec::new());
        let _ = tell.send(got.map_err(|error| error.kind()));
    });
    // All slow readers together read 2 MB/s: at their pace it takes several minutes.
    let got = told.recv_timeout(Duration::from_secs(20));
    println!("{got:?} in {:?}", began_at.elapsed());
    stop.store(true, Ordering::Relaxed);
    reader.join().unwrap();
    drop(bond);
    transfer.join().unwrap();
    assert_eq!(got, Ok(Ok(SIZE)));
}
