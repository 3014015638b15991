//! `freshline router attach` and `detach` without a change of the kernel: their refusals and error
//! texts. Their work in a kernel is tested in `router_kernel`.

use std::fs;
use std::process::{Command, Output};

fn router(words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freshline"));
    command.arg("router").args(words.split_whitespace()).output().expect("freshline starts")
}

/// The error text of a failure with this exit code.
fn refused(words: &str, code: i32) -> String {
    let output = router(words);
    // miette wraps lines.
    let text = String::from_utf8(output.stderr).unwrap();
    let text = text.replace('│', "").split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(code), "{words}: {text}");
    text
}

#[test]
fn what_only_user_space_has_is_refused_in_the_kernel_with_a_remedy() {
    let in_kernel = |flags: &str| refused(&format!("attach --dev lo --rate 20mbit {flags}"), 2);
    for (flags, named) in [
        ("--queue codel", "`codel`"),
        ("--queue 100p", "`100p`"),
        ("--queue codel --isolate flow", "--isolate is for `ifil`"),
        ("--scheduler tdm --frame 1us", "give at least 1ms"),
    ] {
        let said = in_kernel(flags);
        assert!(said.contains(named), "{flags}: {said}");
    }
    assert!(in_kernel("--queue codel").contains("`freshline router run`"));
    let slow = refused("attach --dev lo --rate 1bit", 2);
    assert!(slow.contains("give at least 1kbit"), "{slow}");
    assert!(refused("attach --tun x --rate 1mbit", 2).contains("--or-run"));
    assert!(refused("attach --dev lo --overhead 38", 2).contains("need a rate"));
    assert!(refused("attach --dev lo --queue codel --or-run", 2).contains("no rate: give --rate"));
}

#[test]
fn a_kernel_without_such_disciplines_is_named_with_what_to_do() {
    let types = fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let wanted = b"bpf_struct_ops_Qdisc_ops\0";
    if types.is_empty() || types.windows(wanted.len()).any(|bytes| bytes == wanted) {
        println!("skipped: needs a kernel with BTF and without queueing disciplines in eBPF");
        return;
    }
    let said = refused("attach --dev lo --rate 20mbit", 1);
    assert!(
        said.contains("CONFIG_NET_SCH_BPF") && said.contains("`freshline router run`"),
        "{said}"
    );
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let said = refused("detach --dev nosuchdevice", 2);
    assert!(said.contains("nosuchdevice"), "{said}");
}
