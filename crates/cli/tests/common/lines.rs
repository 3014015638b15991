//! Lines that a child prints, as they arrive.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, channel};

pub(crate) fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
