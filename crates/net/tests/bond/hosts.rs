//! A hosts file for one test, in a mount namespace of its own.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// The file that names are looked up in.
pub(crate) struct HostsFile(PathBuf);

impl HostsFile {
    /// From now on `name` has these addresses, and no other name has any.
    pub(crate) fn set(&self, name: &str, addresses: &[IpAddr]) {
        let lines = addresses.iter().map(|address| format!("{address} {name}\n"));
        // The file that is mounted stays, and gets other contents.
        fs::write(&self.0, lines.collect::<String>()).unwrap();
    }
}

/// Runs a test on a thread that looks names up in a separate hosts file, as do all threads that it
/// starts. Without the necessary rights, it prints that and does nothing.
pub(crate) fn with_hosts(test: impl FnOnce(&HostsFile) + Send) {
    let dir = tempfile::tempdir().unwrap();
    let hosts = HostsFile(dir.path().join("hosts"));
    fs::write(&hosts.0, "").unwrap();
    let is_done = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if unshare(CloneFlags::CLONE_NEWNS).is_err() {
                return false;
            }
            bind(&hosts.0, Path::new("/etc/hosts"));
            test(&hosts);
            true
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if !is_done {
        println!("skipped: needs root");
    }
}

/// Mounts a file over another one, in this thread's namespace only.
fn bind(from: &Path, to: &Path) {
    const NONE: Option<&str> = None;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(NONE, "/", NONE, private, NONE).unwrap();
    mount(Some(from), to, NONE, MsFlags::MS_BIND, NONE).unwrap();
}
