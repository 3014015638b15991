//! The guest's files: an archive in the format `newc` of cpio, as the kernel reads it. Archives may
//! follow each other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::kernel::{Kernel, said};

/// Regular files, folders and devices by their bits in `mode`.
const FILE: u32 = 0o100_755;
const FOLDER: u32 = 0o040_755;
const CONSOLE: u32 = 0o020_600;

/// An archive under construction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Initramfs {
    bytes: Vec<u8>,
    /// The paths in the archive, from the root.
    paths: BTreeSet<String>,
    modules: Vec<String>,
}

impl Initramfs {
    /// A folder, and those above it.
    pub(crate) fn folder(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if let Some((above, _)) = path.rsplit_once('/') {
            self.folder(above);
        }
        self.entry(path, FOLDER, 0, &[]);
    }

    /// An executable file with these contents, and the folders above it.
    pub(crate) fn file(&mut self, path: &str, contents: &[u8]) {
        if let Some((above, _)) = path.trim_matches('/').rsplit_once('/') {
            self.folder(above);
        }
        self.entry(path, FILE, 0, contents);
    }

    /// The device that the kernel passes to `/init` before it mounts any.
    pub(crate) fn console(&mut self) {
        self.folder("dev");
        self.entry("dev/console", CONSOLE, 1, &[]);
    }

    /// A program of this machine at this path, without debug information, and the libraries that it
    /// is linked with.
    pub(crate) fn program(&mut self, place: &str, path: &Path) -> Result<(), String> {
        let contents = read(path)?;
        self.file(place, &stripped(path).unwrap_or(contents));
        // ldd fails for a statically linked program.
        let libraries = said(Command::new("ldd").arg(path)).unwrap_or_default();
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            self.file(library, &read(Path::new(library))?);
        }
        Ok(())
    }

    /// A module, after its dependencies; nothing if it is built in.
    pub(crate) fn module(&mut self, kernel: &Kernel, name: &str) -> Result<(), String> {
        let Some(path) =
            kernel.module(name).filter(|_| !self.modules.iter().any(|one| one == name))
        else {
            return Ok(());
        };
        self.modules.push(name.to_owned());
        let contents = match path.extension().is_some_and(|extension| extension == "xz") {
            true => output("xz", &["-dc", path.to_str().ok_or("a path in UTF-8")?])?,
            false => read(&path)?,
        };
        for needed in needed_by(&contents) {
            self.module(kernel, &needed)?;
        }
        // The guest loads them in the order of their names.
        let number = self.paths.iter().filter(|path| path.starts_with("modules/")).count();
        self.file(&format!("modules/{number:03}-{name}.ko"), &contents);
        Ok(())
    }

    /// The finished archive.
    pub(crate) fn archive(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, 0, &[]);
        // A following archive starts at a multiple of four.
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, minor: u32, contents: &[u8]) {
        let path = path.trim_matches('/');
        if path.is_empty() || !self.paths.insert(path.to_owned()) {
            return;
        }
        let number = self.paths.len();
        let major = if mode == CONSOLE { 5 } else { 0 };
        let (length, name) = (contents.len(), path.len() + 1);
        // inode, mode, user, group, links, time, size, device (two), device it stands for, name, sum
        self.bytes.extend(
            format!(
                "070701{number:08x}{mode:08x}{0:08x}{0:08x}{1:08x}{0:08x}{length:08x}{0:08x}{0:08x}\
                 {major:08x}{minor:08x}{name:08x}{0:08x}{path}\0",
                0, 1
            )
            .into_bytes(),
        );
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The modules that a module declares as its dependencies.
fn needed_by(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = module.windows(KEY.len()).position(|bytes| bytes == KEY) else {
        return Vec::new();
    };
    let list = module[start + KEY.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let list = String::from_utf8_lossy(list).replace('-', "_");
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn stripped(program: &Path) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().ok()?;
    let to = folder.path().join("stripped");
    said(Command::new("strip").arg("-o").args([&to, program])).ok()?;
    fs::read(to).ok()
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn output(program: &str, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let done = Command::new(program).args(arguments).output().map_err(|_| program.to_owned())?;
    if done.status.success() { Ok(done.stdout) } else { Err(format!("{program} that works")) }
}
