//! Control where the BPF file system, or the controlled cgroup, is not visible.

use std::fs;
use std::process::Command;

use crate::cgroup::TestCgroup;
use crate::common::{FRESHLINE, assert_fails, assert_succeeded, cgroups};
use crate::killed::holder;
use crate::kit::{alone, can_run};

#[test]
fn pins_need_the_bpf_file_system_and_what_a_process_holds_does_not() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let cgroup = TestCgroup::new();
    let mount = cgroups().unwrap();
    // A file, over which no file system can be mounted, and a first process with these mounts.
    let hidden = |what: &str| {
        let script = format!(
            "umount /sys/fs/bpf; mount -t tmpfs none /sys/fs && touch /sys/fs/bpf && \
             mkdir -p {mount} && mount -t cgroup2 none {mount} && {FRESHLINE} receiver {what}",
            mount = mount.display()
        );
        let own = ["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", &script];
        Command::new("unshare").args(own).output().unwrap()
    };
    let attached = hidden(&format!("attach --cgroup {}", cgroup.path.display()));
    assert_fails(&attached, 1, "cannot mount the BPF file system at /sys/fs/bpf");
    assert!(cgroup.status().is_none());
    assert_succeeded(&hidden("run -- true"));
}

#[test]
fn the_record_of_a_holder_stays_if_its_cgroup_is_out_of_sight() {
    if !can_run() {
        return;
    }
    let _alone = alone();
    let cgroup = TestCgroup::new();
    let mut holder = holder(&cgroup);
    // A container that sees only its own cgroups, and shares the BPF file system.
    let below = cgroup.path.join("container");
    fs::create_dir(&below).unwrap();
    let mount = cgroups().unwrap();
    let (below, mount) = (below.display(), mount.display());
    let script = format!(
        "echo 0 >{below}/cgroup.procs && exec unshare --cgroup --mount sh -c \
         'umount {mount} && mount -t cgroup2 none {mount} && {FRESHLINE} receiver detach --cgroup {mount}'"
    );
    let done = Command::new("sh").args(["-c", &script]).output().unwrap();
    let is_pinned = cgroup.is_pinned();
    holder.kill().unwrap();
    holder.wait().unwrap();
    fs::remove_dir(below.to_string()).unwrap();
    assert_fails(&done, 1, "nothing is attached to");
    assert!(is_pinned);
    assert_succeeded(&cgroup.freshline(&["detach"]).output().unwrap());
    assert!(!cgroup.is_pinned());
}
