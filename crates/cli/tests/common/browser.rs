//! HTML pages, checked by a validator and a browser without network.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where `scripts/setup test` puts the validator.
const VALIDATOR: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/node_modules/.bin/html-validate");

/// Rules of HTML and of accessibility; titles of papers are longer than a search engine would show.
const RULES: &str =
    r#"{ "root": true, "extends": ["html-validate:standard"], "rules": { "long-title": "off" } }"#;

/// Fails unless the page is valid HTML. Without html-validate it prints that the check is skipped.
#[track_caller]
pub(crate) fn is_valid(page: &Path) {
    if !Path::new(VALIDATOR).exists() {
        println!("skipped: needs html-validate");
        return;
    }
    let rules = page.with_extension("rules.json");
    std::fs::write(&rules, RULES).unwrap();
    let done = Command::new(VALIDATOR).arg("--config").arg(&rules).arg(page).output();
    let Ok(done) = done else {
        println!("skipped: needs node");
        return;
    };
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{}: {said}", page.display());
}

/// Opens the page in headless Chromium, without network, and leaves a picture of it in the same
/// folder. Fails on any message on the console; returns the page's elements after loading. `None`,
/// with a message, without Chromium.
#[track_caller]
pub(crate) fn opened(page: &Path) -> Option<String> {
    let profile = tempfile::tempdir().unwrap();
    let chromium = |flags: &[String]| {
        Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9"])
            .args(["--enable-logging=stderr", "--window-size=1000,3000"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(flags)
            .arg(format!("file://{}", page.display()))
            .output()
    };
    let Ok(done) = chromium(&["--dump-dom".to_owned()]) else {
        println!("skipped: needs chromium");
        return None;
    };
    let said = String::from_utf8_lossy(&done.stderr);
    let console: Vec<_> = said.lines().filter(|line| line.contains(":CONSOLE")).collect();
    assert!(done.status.success() && console.is_empty(), "{}: {console:?}", page.display());
    let picture = page.with_extension("png");
    let pictured = chromium(&[format!("--screenshot={}", picture.display())]).unwrap();
    assert!(pictured.status.success() && picture.exists(), "no picture of {}", page.display());
    Some(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// A folder for pages and their pictures that stays: target/tmp/reports.
pub(crate) fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reports");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
