//! A child that ends with its test.

use std::process::Child;

/// Kills its child when dropped, also when a test fails.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
