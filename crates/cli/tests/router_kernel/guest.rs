//! A guest with a new kernel, in which a script of a test runs (`bash -eu`), or the test itself:
//!
//! ```text
//!     let Some(done) = guest::run("freshline router status --dev lo") else { return };
//!
//!     if !guest::entered() { return }        // what follows runs in the guest, as root
//! ```
//!
//! Both boot a packaged kernel (`kernel.rs`) under `qemu-system-x86_64`, without hardware
//! acceleration, with an initramfs: `freshline` and this test program, at the same paths as here,
//! `ip`, `tc`, `ss`, `bpftool`, `nsenter`, `bash`, and busybox for all other commands. `freshline`
//! is in the script's PATH. The test program's `GUEST` names the kernel, the additional tools, and
//! the modules to load. There are no disks and no network except the guest's own.
//!
//! If a requirement is missing, the test prints it (`skipped: needs …`), and `run` returns `None`.
//!
//! **Time** in a guest is the number of instructions that its processor has executed: each takes 1
//! ns, and when the processor is idle the clock advances at once to the next timer ([`CLOCK`]). A
//! guest is therefore never late, although emulation is slow: its first command runs some 10 s
//! after the start. As its date and its random numbers are always the same ([`DATE`], [`SEED`]), a
//! build measures the same values to the ns, whatever else this machine does. For the same reason
//! guests do not disturb each other: the harness runs as many of them as it has threads.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use super::GUEST;
use super::initramfs::Initramfs;
use super::kernel::Kernel;

const FRESHLINE: &str = env!("CARGO_BIN_EXE_freshline");
const QEMU: &str = "qemu-system-x86_64";
/// In addition to busybox's commands; all of them are programs of this machine.
const TOOLS: &[&str] = &["ip", "tc", "ss", "bpftool", "nsenter", "bash"];
/// The contents of a test program's guests, in its constant `GUEST`.
pub(crate) struct Guest {
    /// The kernel package's flavour, such as `cloud-amd64`.
    pub(crate) flavour: &'static str,
    /// Programs of this machine, in addition to [`TOOLS`].
    pub(crate) tools: &'static [&'static str],
    /// Modules that are not built into the kernel; their dependencies are added.
    pub(crate) modules: &'static [&'static str],
}

/// Set where the test runs in the guest.
const HERE: &str = "FRESHLINE_IN_GUEST";
/// Limit of real time, after which a guest counts as hung: several times the duration of the
/// longest test on a machine with other work.
const LIMIT: Duration = Duration::from_secs(900);
/// Its clock counts instructions, 2^0 ns each, and does not wait for the host's clock while the
/// guest sleeps. That limits the emulator to a single processor.
const CLOCK: &str = "shift=0,sleep=off";
/// When it starts.
const DATE: &str = "base=2026-01-01,clock=vm";
const SEED: &str = "1";
/// Warnings and worse to the first serial port; a kernel that panics ends.
const COMMAND_LINE: &str = "console=ttyS0 loglevel=5 panic=-1 mitigations=off audit=0";

/// The result of a script.
pub(crate) struct Done {
    /// The script's exit code.
    pub(crate) status: i32,
    /// Its output, standard error included.
    pub(crate) said: String,
    /// The kernel's log meanwhile, at level warning and above.
    pub(crate) kernel: String,
}

impl Done {
    /// The kernel complained of nothing: of no bug of its own, or of a program's.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        let complaints = ["BUG", "WARNING", "Call Trace", "Oops", "refcount", "leak"];
        assert!(!complaints.iter().any(|word| self.kernel.contains(word)), "{}", self.kernel);
    }
}

/// Runs a script (`bash -eu`) in a new guest; `None` if that is impossible, with the reason
/// printed.
pub(crate) fn run(script: &str) -> Option<Done> {
    run_with(&[], script)
}

/// The same, in a guest with devices: arguments of QEMU.
fn run_with(devices: &[&str], script: &str) -> Option<Done> {
    static READY: OnceLock<Result<(PathBuf, Vec<u8>), String>> = OnceLock::new();
    match READY.get_or_init(prepared) {
        Ok((image, files)) => Some(boot(image, files, script, devices)),
        Err(missing) => {
            println!("skipped: needs {missing}");
            None
        }
    }
}

/// Whether the rest of this test is to run here, which is in a guest. Outside it boots one, in which
/// the same test runs, and asserts that it passes there.
pub(crate) fn entered() -> bool {
    entered_with(&[])
}

/// The same, in a guest with devices: arguments of QEMU.
pub(crate) fn entered_with(devices: &[&str]) -> bool {
    if env::var_os(HERE).is_some() {
        return true;
    }
    let me = thread::current();
    let test = me.name().expect("tests run in threads that are named after them");
    let program = this_program();
    // With a single thread, which is one for each processor, the harness begins lines that we end.
    let every_step = env::var_os("FRESHLINE_EVERY_STEP").map_or("", |_| "FRESHLINE_EVERY_STEP=1");
    let script = format!(
        "{every_step} {HERE}=1 exec {} --exact {test} --include-ignored --nocapture --test-threads 2",
        program.display()
    );
    if let Some(done) = run_with(devices, &script) {
        // These lines are left out: a program that counts test results must not count this one
        // twice.
        let of_harness = ["running ", "test ", "test result: "];
        let told =
            done.said.lines().filter(|line| !of_harness.iter().any(|it| line.starts_with(it)));
        println!("{}", told.collect::<Vec<_>>().join("\n"));
        assert!(done.status == 0 && done.said.contains("1 passed"), "{}", done.kernel);
        done.assert_clean();
    }
    false
}

fn this_program() -> PathBuf {
    env::current_exe().expect("a test knows its program")
}

/// The kernel's image and the files of all guests; or the missing requirement.
fn prepared() -> Result<(PathBuf, Vec<u8>), String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("an x86-64 machine, whose programs the guest runs".to_owned());
    }
    let busybox = found("busybox")?;
    let tools = || TOOLS.iter().chain(GUEST.tools);
    let places = tools().map(|tool| found(tool)).collect::<Result<Vec<_>, _>>()?;
    found(QEMU)?;
    let kernel = Kernel::newest(GUEST.flavour)?;
    let mut files = Initramfs::default();
    files.console();
    files.file("init", include_bytes!("init.sh"));
    files.program("bin/busybox", &busybox)?;
    for (tool, path) in tools().zip(&places) {
        files.program(&format!("usr/bin/{tool}"), path)?;
    }
    let this_program = this_program();
    files.program(FRESHLINE, Path::new(FRESHLINE))?;
    files.program(this_program.to_str().ok_or("a path in UTF-8")?, &this_program)?;
    let shortcut = format!("#!/bin/busybox sh\nexec {FRESHLINE} \"$@\"\n");
    files.file("usr/bin/freshline", shortcut.as_bytes());
    for module in GUEST.modules {
        files.module(&kernel, module)?;
    }
    Ok((kernel.image(), files.archive()))
}

/// Where a program is.
fn found(program: &str) -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let mut places = folders.map(|folder| folder.join(program));
    places.find(|place| place.is_file()).ok_or_else(|| program.to_owned())
}

fn boot(image: &Path, files: &[u8], script: &str, devices: &[&str]) -> Done {
    let mut initramfs = NamedTempFile::new().unwrap();
    initramfs.write_all(files).unwrap();
    let mut more = Initramfs::default();
    more.file("script", script.as_bytes());
    initramfs.write_all(&more.archive()).unwrap();

    let [console, output] = [(); 2].map(|()| NamedTempFile::new().unwrap());
    let to = |file: &NamedTempFile| format!("file:{}", file.path().display());
    let mut qemu = Command::new(QEMU);
    qemu.args(["-accel", "tcg", "-machine", "q35", "-cpu", "max,la57=off"])
        .args(["-icount", CLOCK, "-rtc", DATE, "-seed", SEED, "-smp", "1", "-m", "1G"])
        .args(["-nodefaults", "-display", "none", "-no-reboot"])
        .args(["-serial", &to(&console), "-serial", &to(&output)])
        .args(["-append", COMMAND_LINE])
        .args(devices)
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(initramfs.path());
    let started = Instant::now();
    let mut guest = qemu.stdin(Stdio::null()).spawn().unwrap();
    let ended = loop {
        if let Some(ended) = guest.try_wait().unwrap() {
            break Some(ended);
        }
        if started.elapsed() > LIMIT {
            guest.kill().and_then(|()| guest.wait()).unwrap();
            break None;
        }
        thread::sleep(Duration::from_millis(50));
    };
    let [kernel, said] = [&console, &output].map(|file| {
        let bytes = fs::read(file.path()).unwrap();
        String::from_utf8_lossy(&bytes).replace('\r', "")
    });
    let (all, code) = said.trim_end().rsplit_once("exit ").unwrap_or((&said, ""));
    let Ok(status) = code.parse() else {
        panic!("the guest did not end as it should ({ended:?}):\n{kernel}\n{said}");
    };
    Done { status, said: all.to_owned(), kernel }
}
