//! The training of the estimators of frames and of the locator: what it writes makes Rust say what Python
//! says, and trained twice it is the same to the byte.

use std::fs;
use std::path::Path;
use std::process::Command;

use freshline_core::unit::Time;
use freshline_core::wlan::estimator::{FrameEstimator, FrameWeights, LevelWeights, SlotSeen};
use freshline_core::wlan::{FrameSeen, Weights};
use tempfile::TempDir;

/// A small training of `what` into `folder`; `false` if Python or scikit-learn is not there.
fn train(what: &str, folder: &Path) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("target/python/bin/python");
    let has_sklearn = Command::new(&python).args(["-c", "import sklearn"]).status();
    if !has_sklearn.is_ok_and(|status| status.success()) {
        return false;
    }
    let out = Command::new(python)
        .arg(root.join("tools/wlan").join(what))
        .args(["small", env!("CARGO_BIN_EXE_freshline")])
        .arg(folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("OMP_NUM_THREADS", "1")
        .env("OPENBLAS_NUM_THREADS", "1")
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    true
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

/// Where two small trainings of `what` wrote the same `files`; `None` if they cannot be.
fn trained_twice(what: &str, files: &[&str]) -> Option<[TempDir; 2]> {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    if !folders.iter().all(|folder| train(what, folder.path())) {
        println!("skipped: needs scikit-learn in target/python (scripts/setup train)");
        return None;
    }
    let [first, again] = folders.each_ref().map(TempDir::path);
    for name in files {
        assert_eq!(read(first, name), read(again, name), "{name}");
    }
    Some(folders)
}

#[test]
fn rust_says_what_python_says_and_training_twice_gives_the_same_bytes() {
    let files = ["frames.toml", "levels.toml", "packets.csv", "slots.csv"];
    let Some([first, _]) = trained_twice("frames.py", &files) else { return };
    logistic_agrees(first.path());
    svm_agrees(first.path());
}

#[test]
fn so_it_is_with_the_locator() {
    let files = ["bottleneck.toml", "bottleneck.csv"];
    let Some([first, _]) = trained_twice("locator.py", &files) else { return };
    let weights: Weights = toml::from_str(&read(first.path(), "bottleneck.toml")).unwrap();
    assert!(weights.training.f1 > 0.9, "{weights:?}");
    let mut locator = weights.build().unwrap();
    let mut answers = [0, 0];
    for line in read(first.path(), "bottleneck.csv").lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [level, others, lost] = [0, 1, 2].map(|at| fields[at].parse().unwrap());
        locator.on_frame(FrameSeen { level, others, lost });
        let told = locator.backhaul_probability();
        let Ok(expected) = fields[3].parse::<f64>() else {
            assert_eq!(told, None);
            continue;
        };
        let told = told.unwrap();
        assert!((told - expected).abs() < 1e-9, "{told}, not {expected}");
        answers[usize::from(told >= 0.5)] += 1;
    }
    assert!(answers.iter().all(|count| *count > 10), "{answers:?}");
}

fn logistic_agrees(folder: &Path) {
    let weights: FrameWeights = toml::from_str(&read(folder, "frames.toml")).unwrap();
    let mut estimators: Vec<_> = Vec::new();
    let (mut compared, mut firsts) = (0, 0);
    for line in read(folder, "packets.csv").lines() {
        let (stamp, expected) = line.split_once(',').unwrap();
        let Ok(nanos) = stamp.parse() else {
            estimators.push(weights.logistic().unwrap());
            continue;
        };
        let logistic = estimators.last_mut().unwrap();
        let is_first = logistic.on_packet(Time::from_nanos(nanos));
        let Ok(expected) = expected.parse::<f64>() else {
            assert_eq!(is_first, None);
            continue;
        };
        let probability = logistic.probability().unwrap();
        assert!((probability - expected).abs() < 1e-9, "{probability}, not {expected}");
        assert_eq!(is_first, Some(expected >= 0.5));
        compared += 1;
        firsts += u32::from(expected >= 0.5);
    }
    assert!(compared > 20_000 && firsts > 1_000, "{compared} packets, {firsts} first ones");
}

fn svm_agrees(folder: &Path) {
    let weights: LevelWeights = toml::from_str(&read(folder, "levels.toml")).unwrap();
    let mut svm = weights.build().unwrap();
    let mut compared = 0;
    for line in read(folder, "slots.csv").lines() {
        let mut fields = line.split(',');
        let mut number = || fields.next().unwrap().parse::<f64>();
        let (level, variance, frames) = (number().unwrap(), number().unwrap(), number().unwrap());
        let told = svm.level(SlotSeen { level, variance, frames });
        let Ok(expected) = number() else {
            assert_eq!(told, None);
            continue;
        };
        let told = told.unwrap();
        assert!((told - expected).abs() < 1e-9, "{told}, not {expected}");
        compared += 1;
    }
    assert!(compared >= 10, "{compared} slots");
}
