//! A lock on a folder, which one process at a time holds (`flock`).
//!
//! Its holder may be stopped (SIGSTOP, a debugger, the freezer of a cgroup). So a wait for the lock has an
//! end: after [`REPORT_AFTER`] a warning names the holder, and after [`GIVE_UP_AFTER`] the wait fails with
//! an error that names it. The kernel frees the lock of a process that is killed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::{major, minor};

/// How long a command waits before it says what it waits for. Commands hold these locks for some ms.
pub const REPORT_AFTER: Duration = Duration::from_secs(2);
/// How long it waits at all.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(30);
/// A holder that cannot be named, such as one of another process namespace.
const OTHER: &str = "another process";

/// A lock, held until it is dropped.
#[derive(Debug)]
pub struct FolderLock {
    folder: Flock<File>,
}

impl FolderLock {
    /// Takes the lock on a folder, and waits for it if need be.
    ///
    /// # Errors
    /// If the folder cannot be opened or locked, and [`io::ErrorKind::TimedOut`], with the holder, after
    /// [`GIVE_UP_AFTER`].
    pub fn take(folder: &Path) -> io::Result<Self> {
        let report = |holder: &str| {
            tracing::warn!(
                "waiting for the lock on {}, which {holder} holds; giving up {} s from now",
                folder.display(),
                (GIVE_UP_AFTER - REPORT_AFTER).as_secs()
            );
        };
        Self::take_within(folder, REPORT_AFTER, GIVE_UP_AFTER, report)
    }

    /// The folder, as it was when it was opened.
    pub fn folder(&self) -> &File {
        &self.folder
    }

    fn take_within(
        folder: &Path,
        report_after: Duration,
        give_up_after: Duration,
        report: impl Fn(&str),
    ) -> io::Result<Self> {
        let file = File::open(folder)?;
        let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(folder) => return Ok(Self { folder }),
            Err((file, Errno::EWOULDBLOCK | Errno::EINTR)) => file,
            Err((_, error)) => return Err(error.into()),
        };
        // Processes get the lock in the order in which they wait in the kernel, which has no time limit: a
        // thread waits there. If it gets the lock when this has given up, it drops it.
        let seen = file.try_clone()?;
        let (sender, result) = channel();
        thread::Builder::new().name("lock".to_owned()).spawn(move || {
            let _ = sender.send(waited_for(file));
        })?;
        let gone = || io::Error::other("the thread that waits for the lock has ended");
        match result.recv_timeout(report_after) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            Ok(taken) => return taken.map(|folder| Self { folder }),
        }
        let holder = holder(&seen)?;
        report(&holder.as_ref().map_or_else(|| OTHER.to_owned(), ToString::to_string));
        match result.recv_timeout(give_up_after.saturating_sub(report_after)) {
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            Ok(taken) => return taken.map(|folder| Self { folder }),
        }
        let (holder, remedy) = match self::holder(&seen)? {
            Some(holder) => (holder.to_string(), holder.remedy()),
            None => (OTHER.to_owned(), "end it, then try again".to_owned()),
        };
        let seconds = give_up_after.as_secs();
        let error = format!("{holder} has held the lock for more than {seconds} s; {remedy}");
        Err(io::Error::new(io::ErrorKind::TimedOut, error))
    }
}

/// Waits for the lock without a limit.
fn waited_for(mut file: File) -> io::Result<Flock<File>> {
    loop {
        match Flock::lock(file, FlockArg::LockExclusive) {
            Ok(folder) => return Ok(folder),
            Err((back, Errno::EINTR)) => file = back,
            Err((_, error)) => return Err(error.into()),
        }
    }
}

/// A process that holds a lock.
#[derive(Debug, PartialEq, Eq)]
struct Holder {
    process: u32,
    /// The name of its program.
    name: String,
    is_stopped: bool,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { process, name, is_stopped } = self;
        write!(f, "process {process} ({name}{})", if *is_stopped { ", stopped" } else { "" })
    }
}

impl Holder {
    fn remedy(&self) -> String {
        let Self { process, is_stopped, .. } = self;
        let resume = if *is_stopped {
            format!("let it go on (`kill -CONT {process}`) or ")
        } else {
            String::new()
        };
        format!("{resume}end it (`kill -KILL {process}`), then try again")
    }
}

/// The process that holds the lock on an open file; `None` if it is in another process namespace, or has
/// just released the lock.
fn holder(file: &File) -> io::Result<Option<Holder>> {
    let about = file.metadata()?;
    let (device, inode) = (about.dev(), about.ino());
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let id = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let Some(process) = locks.lines().find_map(|line| holder_in(line, &id)) else {
        return Ok(None);
    };
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let Some((name, state)) = named(&stat) else { return Ok(None) };
    Ok(Some(Holder { process, name, is_stopped: matches!(state, 'T' | 't') }))
}

/// The holder that a line of `/proc/locks` names, if the line is of the lock on the file with this
/// `MAJOR:MINOR:INODE`: `1: FLOCK  ADVISORY  WRITE 123 00:1b:1 0 EOF`. Lines of waiting processes have an
/// arrow behind the number.
fn holder_in(line: &str, id: &str) -> Option<u32> {
    let mut fields = line.split_whitespace().skip(1);
    let kind = fields.next()?;
    let mut rest = fields.skip(2);
    let process = rest.next()?;
    let is_of_file = kind == "FLOCK" && rest.next()? == id;
    process.parse().ok().filter(|process| is_of_file && *process != 0)
}

/// The name, made printable, and the state in a process's `stat`: `123 (name) S ...`.
fn named(stat: &str) -> Option<(String, char)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    Some((name.escape_debug().to_string(), after.trim_start().chars().next()?))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use nix::sys::signal::{Signal, killpg};
    use nix::sys::wait::{WaitPidFlag, waitpid};
    use nix::unistd::Pid;

    use super::*;

    /// Waits that a test takes.
    const SOON: Duration = Duration::from_millis(50);
    const LATER: Duration = Duration::from_millis(100);

    #[test]
    fn a_wait_for_a_stopped_process_names_it_and_has_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut holder = Command::new("flock")
            .arg(folder.path())
            .args(["-c", "kill -STOP $PPID; exec sleep 60"])
            .process_group(0)
            .spawn()
            .unwrap();
        let process = Pid::from_raw(holder.id().cast_signed());
        waitpid(process, Some(WaitPidFlag::WUNTRACED)).unwrap();
        let reported = RefCell::new(Vec::new());
        let report = |holder: &str| reported.borrow_mut().push(holder.to_owned());
        let failed = FolderLock::take_within(folder.path(), SOON, LATER, report);
        let name = format!("process {process} (flock, stopped)");
        let error = failed.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().starts_with(&name), "{error}");
        assert!(error.to_string().contains(&format!("kill -CONT {process}")), "{error}");
        assert_eq!(*reported.borrow(), [name]);
        killpg(process, Signal::SIGKILL).unwrap();
        holder.wait().unwrap();
    }

    #[test]
    fn a_free_lock_is_taken_at_once_and_released_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let report = |_: &str| panic!("nothing holds it");
        for _ in 0..2 {
            let lock =
                FolderLock::take_within(folder.path(), Duration::ZERO, LATER, report).unwrap();
            assert!(lock.folder().metadata().unwrap().is_dir());
        }
        let missing = folder.path().join("missing");
        let error = FolderLock::take(&missing).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn lines_of_other_locks_name_no_holder() {
        let id = "00:1b:7";
        let holder = |line| holder_in(line, id);
        assert_eq!(holder("1: FLOCK  ADVISORY  WRITE 123 00:1b:7 0 EOF"), Some(123));
        assert_eq!(holder("1: -> FLOCK  ADVISORY  WRITE 124 00:1b:7 0 EOF"), None);
        assert_eq!(holder("2: POSIX  ADVISORY  WRITE 123 00:1b:7 0 EOF"), None);
        assert_eq!(holder("3: FLOCK  ADVISORY  WRITE 123 00:1b:77 0 EOF"), None);
        assert_eq!(holder("4: FLOCK  ADVISORY  WRITE 0 00:1b:7 0 EOF"), None);
        assert_eq!(holder("FLOCK"), None);
        assert_eq!(named("12 (a) b\u{1b}) T 1"), Some(("a) b\\u{1b}".to_owned(), 'T')));
        assert_eq!(named("12"), None);
    }
}
