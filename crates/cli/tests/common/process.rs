//! A child that ends with its test.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

/// Kills its child when dropped, also when a test fails.
pub(crate) struct Process(pub(crate) Child);

#[allow(dead_code, reason = "not every test needs all of it")]
impl Process {
    /// Starts a command, and waits until it has written a line with `word` to standard error;
    /// returns that line, too.
    pub(crate) fn start(command: &mut Command, word: &str) -> (Self, String) {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let process = Self(child);
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "{command:?} did not print `{word}`");
        }
        // The rest of its output is read, so that it never blocks on a full pipe.
        thread::spawn(move || {
            let mut rest = String::new();
            let _ = said.read_to_string(&mut rest);
            eprint!("{rest}");
        });
        (process, line)
    }

    /// The CPU time of the threads that it has now.
    pub(crate) fn ran(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap().flatten();
        let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
        let ran = stats.filter_map(|stat| stat.split(' ').next()?.parse::<u64>().ok());
        Duration::from_nanos(ran.sum())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
