//! A source and a subscription in one loop of the application's own, with one `poll` and no thread for the source.

use std::os::fd::AsFd;

use freshline::driver::Polled;
use freshline::driver::source::States;
use freshline::driver::source::sampler::Synthetic;
use freshline::{Monitor, Source};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let monitor = Monitor::builder("udp://127.0.0.1:0").spawn()?;
    let states = States::Of(Box::new(Synthetic::new(64)));
    let mut source = Polled::new(Source::builder(&monitor.url()).name("own").build(states)?)?;
    let (received, mut count) = (monitor.subscribe("own"), 0);
    while count < 10 {
        let (source_fd, states_fd) = (source.as_fd(), received.descriptor()?);
        let watched = [source_fd, states_fd].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        poll(&mut { watched }, PollTimeout::NONE)?;
        source.turn(&mut ())?;
        while let Some(state) = received.try_next() {
            count += 1;
            println!("{} bytes, {:?} old", state.payload().len(), state.age());
        }
    }
    println!("{} updates were acknowledged", source.close().acked);
    Ok(())
}
