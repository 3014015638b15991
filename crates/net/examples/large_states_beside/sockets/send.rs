//! The sending process, behind the path.

use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path as File;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use freshline_core::session::SourceParams;
use freshline_core::unit::{Span, Time};
use freshline_lab::scenario::Emulated;
use freshline_net::Waker;
use freshline_net::clock::Clock;
use freshline_net::source::sampler::{Need, Sampler, Take};
use freshline_net::source::{Source, SourceConfig, SourcePaths, States, Transport};
use freshline_net::stop::Stop;
use nix::poll::PollFlags;
use socket2::SockRef;

use super::receive::{BUFFER, STAMP, wait};
use super::{Contender, Failure, PATHS, emulated, now};
use crate::ends;
use crate::quic::Control;
use crate::streams::{Resets, Writer};

/// Files in the folder that both processes share: the receiver's certificate, and when QUIC's states were
/// sampled.
pub(super) const CERTIFICATE: &str = "certificate";
const SAMPLED: &str = "sampled";

/// Sends until the end of the run.
pub(crate) fn main(arguments: &[&str]) -> ExitCode {
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot send: {error}");
            ExitCode::FAILURE
        }
    }
}

pub(super) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let [contender, index, to, until, folder] = *arguments else {
        return Err("usage: large_states_beside send CONTENDER PATH ADDRESS UNTIL FOLDER, as `sockets` does".into());
    };
    let contender = Contender::find(contender).ok_or("an unknown contender")?;
    let index: usize = index.parse()?;
    let path = PATHS.get(index).ok_or("an unknown path")?;
    let (to, until) = (to.parse()?, Time::ZERO + Span::from_nanos(until.parse()?));
    match contender {
        Contender::Tenth => ours(emulated(path), to, until),
        Contender::Tcp => {
            // The send buffer must not limit the window. The namespace is this process's own.
            let _ = fs::write("/proc/sys/net/ipv4/tcp_wmem", "4096 16384 67108864");
            Ok(tcp(path.size as usize, to, until)?)
        }
        Contender::Quic(resets) => quic(resets, path.size as usize, to, until, File::new(folder)),
    }
}

/// A state that begins with its sampling time.
struct Stamped {
    size: usize,
}

impl Sampler for Stamped {
    fn start(&mut self, _clock: Clock, _waker: Arc<Waker>) -> io::Result<()> {
        Ok(())
    }

    fn take(&mut self, at: Time, _need: Need, into: &mut Vec<u8>) -> Take {
        into.extend(stamp());
        into.resize(self.size, 0);
        Take::Sample { generated_at: at }
    }
}

/// The current time, encoded as in a state.
fn stamp() -> [u8; STAMP] {
    now().since(Time::ZERO).as_nanos().to_be_bytes()
}

/// Our source, whose settings are those of `freshline source`.
fn ours(run: Emulated, to: SocketAddr, until: Time) -> Result<(), Failure> {
    let Emulated { payload, limits, sources, .. } = run;
    let source = sources.into_iter().next().ok_or("the scenario has no source")?;
    let params = SourceParams { name: "source".to_owned(), limits, ..SourceParams::default() };
    let mut source = Source::new(SourceConfig {
        monitor: to.into(),
        transport: Transport::Udp,
        paths: SourcePaths::default(),
        params,
        law: source.law,
        states: States::Of(Box::new(Stamped { size: payload.get() as usize })),
    })?;
    let until = Clock::new().now() + until.since(now());
    source.run(&Stop::new(), Some(until), &mut ())?;
    Ok(())
}

const GONE: [io::ErrorKind; 2] = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];

/// One stream; the next state is written when all of the previous one has been sent for the first time.
fn tcp(size: usize, to: SocketAddr, until: Time) -> io::Result<()> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    SockRef::from(&stream).set_tcp_congestion(b"cubic")?;
    let mut state = vec![0; size];
    loop {
        // Writable when no byte is unsent.
        SockRef::from(&stream).set_tcp_notsent_lowat(1)?;
        if !wait(&stream, PollFlags::POLLOUT, until)? {
            return Ok(());
        }
        SockRef::from(&stream).set_tcp_notsent_lowat(u32::MAX)?;
        state[..STAMP].copy_from_slice(&stamp());
        let mut left = &state[..];
        while !left.is_empty() {
            match stream.write(left) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !wait(&stream, PollFlags::POLLOUT, until)? {
                        return Ok(());
                    }
                }
                // The receiver ends at the same time.
                Err(error) if GONE.contains(&error.kind()) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// A stream per state, as [`crate::quic`] sends them in virtual time.
fn quic(
    resets: Resets,
    size: usize,
    to: SocketAddr,
    until: Time,
    folder: &File,
) -> Result<(), Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    let certificate = fs::read(folder.join(CERTIFICATE))?;
    let (mut end, seen) = ends::sender(Control::Cubic.factory(), &certificate, Instant::now());
    let mut writer = Writer::new(resets, vec![0; size]);
    let mut buffer = vec![0; BUFFER];
    while now() < until {
        // A datagram that the kernel refuses is lost.
        writer.fill(&mut end, &seen, Instant::now(), now, |end| {
            let _ = socket.send(&end.datagram);
        });
        wait(&socket, PollFlags::POLLIN, due(end.poll_timeout(), until))?;
        while let Ok(len) = socket.recv(&mut buffer) {
            end.handle(Instant::now(), &buffer[..len]);
        }
        end.handle_timeout(Instant::now());
    }
    let nanos = |at: &Time| at.since(Time::ZERO).as_nanos().to_be_bytes();
    let sampled: Vec<u8> = writer.sampled_at().iter().flat_map(nanos).collect();
    fs::write(folder.join(SAMPLED), sampled)?;
    Ok(())
}

/// The time of a connection's next timer, at the latest `until`.
pub(super) fn due(timeout: Option<Instant>, until: Time) -> Time {
    let left = timeout.map(|at| at.saturating_duration_since(Instant::now()));
    left.map_or(until, |left: Duration| until.min(now() + left.into()))
}

/// The sampling times of the states of [`quic`], by number.
pub(super) fn sampled(folder: &File) -> Result<Vec<Time>, Failure> {
    let bytes = fs::read(folder.join(SAMPLED))?;
    let (words, _) = bytes.as_chunks::<STAMP>();
    Ok(words.iter().map(|word| super::receive::time(*word)).collect())
}
