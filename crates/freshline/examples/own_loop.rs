//! A source and a subscription in the application's own event loop, with one `poll` and no thread for the source.

use std::os::fd::AsFd;

use freshline::{Monitor, Source};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let monitor = Monitor::builder("udp://127.0.0.1:0").spawn()?;
    let mut source = Source::builder(&monitor.url()).name("own").topic("pose").polled()?;
    let (pose, received) = (source.topic("pose")?, monitor.subscribe("own/pose"));
    let mut count = 0;
    while count < 10 {
        pose.put(format!("x={count}"))?;
        let (source_fd, states_fd) = (source.as_fd(), received.descriptor()?);
        let watched = [source_fd, states_fd].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        poll(&mut { watched }, PollTimeout::NONE)?;
        source.turn()?;
        while let Some(state) = received.try_next() {
            count += 1;
            println!("{}, {:?} old", state.text().unwrap_or("?"), state.age());
        }
    }
    println!("{} updates were acknowledged", source.close().acked);
    Ok(())
}
