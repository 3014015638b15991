//! The programs of `web/test`, which open pages in browsers.

use std::path::{Path, PathBuf};
use std::process::Command;

/// `web` in the repository.
pub(crate) fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web")
}

/// Whether node, its packages and the required files are present; prints the missing ones.
pub(crate) fn has(wanted: &[(&str, bool)]) -> bool {
    let node = Command::new("node").arg("--version").output().is_ok();
    let packages = web().join("node_modules/playwright-core").exists();
    let all = [("node", node), ("the packages of web/package.json (scripts/setup web)", packages)];
    match all.iter().chain(wanted).find(|(_, is_there)| !is_there) {
        None => true,
        Some((missing, _)) => {
            println!("skipped: needs {missing}");
            false
        }
    }
}

/// Chromium, where `web/test/kit.mjs` looks for it.
pub(crate) fn chromium() -> (&'static str, bool) {
    let own = std::env::var("CHROMIUM").unwrap_or_default();
    let known = [&*own, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    ("Chromium (scripts/setup web)", known.iter().any(|path| Path::new(path).is_file()))
}

/// A program of `web/test` with these arguments, run in [`web`].
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new("node");
    command.args(arguments).env("FRESHLINE", env!("CARGO_BIN_EXE_freshline")).current_dir(web());
    command
}
