//! The inside: a network namespace without a name, and the command in it.
//!
//! A thread enters the namespace and stays there; the namespace disappears with the last process
//! and thread in it. It is not visible outside, and needs no clean-up.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use freshline_system::User;
use freshline_system::netlink::Route;
use freshline_system::privileges::keep_only;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::Pid;

use super::address::{Ends, INSIDE};
use super::{RunError, init, system};
use crate::tun::{Device, IPV6_MIN_MTU};
use crate::waker::Waker;

/// A namespace with its device, still without a command.
pub(super) struct Inside {
    thread: JoinHandle<io::Result<ExitStatus>>,
    commands: Sender<(Command, Arc<Waker>)>,
    started: Receiver<Pid>,
}

/// A command that runs inside.
pub(super) struct Running {
    thread: JoinHandle<io::Result<ExitStatus>>,
    /// The process that represents the command; see [`init`].
    pub(super) init: Pid,
    /// Keeps the namespace when the command has ended.
    namespace: Sender<(Command, Arc<Waker>)>,
    /// Must live as long as this: dropping a waker cancels even its pending wake-ups.
    _ended: Arc<Waker>,
}

impl Inside {
    /// Creates the namespace, and its end of the path.
    pub(super) fn open(
        ends: Ends,
        mtu: u16,
        user: Option<User>,
    ) -> Result<(Self, Device), RunError> {
        let (device_out, device_in) = channel();
        let (commands, command_in) = channel::<(Command, Arc<Waker>)>();
        let (pid_out, started) = channel();
        let life = move || {
            let device = set_up(ends, mtu);
            // If the receiver is gone, no command arrives either.
            let _ = device_out.send(device);
            match command_in.recv() {
                Ok((command, waker)) => {
                    let ended = live(command, user.as_ref(), &waker, pid_out)?;
                    // The last packets of the command need the namespace until they have arrived.
                    let _ = command_in.recv();
                    Ok(ended)
                }
                Err(_) => Ok(ExitStatus::default()),
            }
        };
        let thread = thread::Builder::new()
            .name("inside".to_owned())
            .spawn(life)
            .map_err(system("start a thread"))?;
        let device = device_in.recv().unwrap_or_else(|_| Err(gone()))?;
        Ok((Self { thread, commands, started }, device))
    }

    /// Starts the command; `ended` wakes its poll when the command has ended.
    pub(super) fn start(self, command: Command, ended: Waker) -> Result<Running, RunError> {
        let ended = Arc::new(ended);
        let program = command.get_program().to_string_lossy().into_owned();
        // If the thread has ended, joining it returns the reason.
        let _ = self.commands.send((command, Arc::clone(&ended)));
        match self.started.recv() {
            Ok(init) => {
                Ok(Running { thread: self.thread, init, namespace: self.commands, _ended: ended })
            }
            Err(_) => Err(match join(self.thread) {
                Err(source) => RunError::Command { program, source },
                Ok(_) => gone(),
            }),
        }
    }
}

impl Running {
    /// Leaves the namespace when the command has ended; returns its exit code as in a shell, which
    /// is 128 plus the signal's number if one ended it.
    pub(super) fn exit_code(self) -> Result<u8, RunError> {
        drop(self.namespace);
        let status = join(self.thread).map_err(system("wait for the command"))?;
        let code = status.code().or_else(|| Some(128 + status.signal()?));
        Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
    }
}

fn join(thread: JoinHandle<io::Result<ExitStatus>>) -> io::Result<ExitStatus> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
}

fn gone() -> RunError {
    system("keep a namespace")(io::Error::other("its thread ended"))
}

/// Moves the calling thread into a new namespace and prepares that.
fn set_up(ends: Ends, mtu: u16) -> Result<Device, RunError> {
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(io::Error::from)
        .map_err(system("make a network namespace"))?;
    let mut route = Route::open().map_err(system("configure the namespace"))?;
    route.bring_up("lo").map_err(system("bring the loopback up in the namespace"))?;
    // A run within this one is reached through it.
    for switch in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        // If this is not allowed, a run within this one reaches only this one.
        let _ = fs::write(format!("/proc/sys/net/{switch}"), "1");
    }
    let device = Device::create(INSIDE).map_err(system("make a TUN device in the namespace"))?;
    device
        .set_up(&mut route, &ends.addresses(), mtu)
        .map_err(system("configure the inner TUN device"))?;
    let mut routes = vec![IpAddr::V4(ends.v4)];
    if mtu >= IPV6_MIN_MTU {
        routes.push(IpAddr::V6(ends.v6));
    }
    for address in routes {
        route.add_default_route(INSIDE, address).map_err(system("add a route in the namespace"))?;
    }
    Ok(device)
}

/// Runs the command to its end.
fn live(
    command: Command,
    user: Option<&User>,
    waker: &Waker,
    started: Sender<Pid>,
) -> io::Result<ExitStatus> {
    let mut child = init::spawn(command, user)?;
    // This thread only waits from now on.
    if let Err(error) = keep_only(&[]) {
        tracing::warn!("{error}");
    }
    // Process ids are positive `i32`s.
    let _ = started.send(Pid::from_raw(child.id() as i32));
    let status = child.wait();
    // If the waker fails, there is no poll left to wake.
    let _ = waker.wake();
    status
}
