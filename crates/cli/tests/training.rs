//! The training of the estimators of frames: what it writes makes Rust say what scikit-learn says, and
//! trained twice it is the same to the byte.

use std::fs;
use std::path::Path;
use std::process::Command;

use freshline_core::unit::Time;
use freshline_core::wlan::estimator::{FrameEstimator, FrameWeights, LevelWeights, SlotSeen};

/// A small training into `folder`; `false` if Python or scikit-learn is not there.
fn train(folder: &Path) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("target/python/bin/python");
    let has_sklearn = Command::new(&python).args(["-c", "import sklearn"]).status();
    if !has_sklearn.is_ok_and(|status| status.success()) {
        return false;
    }
    let out = Command::new(python)
        .arg(root.join("tools/wlan/frames.py"))
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

#[test]
fn rust_says_what_python_says_and_training_twice_gives_the_same_bytes() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for folder in &folders {
        if !train(folder.path()) {
            println!("skipped: needs scikit-learn in target/python (scripts/setup train)");
            return;
        }
    }
    let [first, again] = folders.each_ref().map(tempfile::TempDir::path);
    for name in ["frames.toml", "levels.toml", "packets.csv", "slots.csv"] {
        assert_eq!(read(first, name), read(again, name), "{name}");
    }
    logistic_agrees(first);
    svm_agrees(first);
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
