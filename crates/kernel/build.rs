//! Compiles each program's `main.bpf.c` with clang, and writes the code that opens it.

use std::env;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// The folders below `src` that hold a program each.
const PROGRAMS: &[&str] = &["receiver/cgroup", "receiver/device", "sorpc", "dtpa"];

/// The one that needs a newer clang: with older ones it compiles, and the kernel refuses it. Without
/// such a clang everything else is built, and says so when this one is asked for.
const QDISC: &str = "ifc_qdisc";
const QDISC_CLANG: u32 = 16;
/// Names under which distributions have newer ones beside their own.
const NEWEST_CLANG: u32 = 29;

fn main() {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rustc-check-cfg=cfg({QDISC})");
    if Command::new(&clang).arg("--version").output().is_err() {
        println!(
            "cargo::error=`{clang}` does not start; freshline-kernel needs clang 14 or later to \
             compile its eBPF programs: `scripts/setup build` installs it, or \
             `sudo apt-get install clang libelf-dev zlib1g-dev pkg-config`"
        );
        return;
    }
    for program in PROGRAMS {
        compile(program, &clang);
    }
    let newer = (QDISC_CLANG..=NEWEST_CLANG).map(|version| format!("clang-{version}"));
    match iter::once(clang).chain(newer).find(|clang| version(clang) >= Some(QDISC_CLANG)) {
        Some(clang) => {
            println!("cargo::rustc-cfg={QDISC}");
            compile(QDISC, &clang);
        }
        None => println!(
            "cargo::warning=no clang {QDISC_CLANG} or later: `freshline router attach` will have no \
             discipline for the kernel; `scripts/setup build` installs one"
        ),
    }
}

fn compile(program: &str, clang: &str) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let built = SkeletonBuilder::new()
        .source(Path::new("src").join(program).join("main.bpf.c"))
        .clang(clang)
        .clang_args(uapi_headers())
        .build_and_generate(out.join(format!("{}.skel.rs", program.replace('/', "-"))));
    if let Err(error) = built {
        println!("cargo::error={program}: {}", format!("{error:#}").replace('\n', " "));
    }
}

/// The major version of a clang, if it starts.
fn version(clang: &str) -> Option<u32> {
    let said = Command::new(clang).arg("-dumpversion").output().ok()?;
    String::from_utf8(said.stdout).ok()?.split('.').next()?.trim().parse().ok()
}

/// Debian keeps the part of Linux's headers that differs by architecture in a folder of its own.
fn uapi_headers() -> Vec<String> {
    let machine = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let folder = format!("/usr/include/{machine}-linux-gnu");
    if Path::new(&folder).is_dir() { vec![format!("-I{folder}")] } else { Vec::new() }
}
