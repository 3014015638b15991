//! Compiles each program's `main.bpf.c` with clang, and writes the code that opens it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// The folders below `src` that hold a program each.
const PROGRAMS: &[&str] = &["receiver/cgroup", "receiver/device", "sorpc", "dtpa"];

fn main() {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-changed=src");
    if Command::new(&clang).arg("--version").output().is_err() {
        println!(
            "cargo::error=`{clang}` does not start; freshline-kernel needs clang 14 or later to \
             compile its eBPF programs: `scripts/setup build` installs it, or \
             `sudo apt-get install clang libelf-dev zlib1g-dev pkg-config`"
        );
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for program in PROGRAMS {
        let built = SkeletonBuilder::new()
            .source(Path::new("src").join(program).join("main.bpf.c"))
            .clang(&clang)
            .clang_args(uapi_headers())
            .build_and_generate(out.join(format!("{}.skel.rs", program.replace('/', "-"))));
        if let Err(error) = built {
            println!("cargo::error={program}: {}", format!("{error:#}").replace('\n', " "));
        }
    }
}

/// Debian keeps the part of Linux's headers that differs by architecture in a folder of its own.
fn uapi_headers() -> Vec<String> {
    let machine = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let folder = format!("/usr/include/{machine}-linux-gnu");
    if Path::new(&folder).is_dir() { vec![format!("-I{folder}")] } else { Vec::new() }
}
