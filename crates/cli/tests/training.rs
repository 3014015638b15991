//! The training of the estimators of frames and of the locator: with its output Rust computes the
//! same as Python, and two trainings give the same bytes.

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
#[ignore = "long: trains in Python"]
fn rust_says_what_python_says_and_training_twice_gives_the_same_bytes() {
    let files = ["frames.toml", "levels.toml", "packets.csv", "slots.csv"];
    let Some([first, _]) = trained_twice("frames.py", &files) else { return };
    logistic_agrees(first.path());
    svm_agrees(first.path());
}

#[test]
#[ignore = "long: trains in Python"]
fn so_it_is_with_the_locator() {
    let files = ["bottleneck.toml", "bottleneck.csv"];
    let Some([first, _]) = trained_twice("locator.py", &files) else { return };
    let weights: Weights = toml::from_str(&read(first.path(), "bottleneck.toml")).unwrap();
    assert!(weights.training.f1 > 0.9, "{weights:?}");
    let mut locator = weights.build().unwrap();
    let mut answers = [0, 0];
    for line in read(first.path(), "bottleneck.csv").lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [level, others, lost, retried] = [0, 1, 2, 3].map(|at| fields[at].parse().unwrap());
        locator.on_frame(FrameSeen { level, others, lost, retried });
        let told = locator.backhaul_probability();
        let Ok(expected) = fields[4].parse::<f64>() else {
            assert_eq!(told, None);
            continue;
        };
        let told = told.unwrap();
        assert!((told - expected).abs() < 1e-9, "{told}, not {expected}");
        answers[usize::from(told >= 0.5)] += 1;
    }
    assert!(answers.iter().all(|count| *count > 10), "{answers:?}");
}

/// A recording as `wlan receive --capture … --packet-log` writes it: frames of about `level` packets, one in
/// a hundred packets without a frame.
fn recording(file: &Path, level: u64, frames: u64) {
    let mut text = String::from("seq,sent_ns,kernel_ns,received_ns,bytes,delay_ns,frame\n");
    let (mut seq, mut kernel, mut random) = (0_u64, 1_700_000_000_000_000_000_u64, level);
    for frame in 0..frames {
        for _ in 0..level / 2 + random % (level + 1) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let frame = if seq % 100 == 7 { String::new() } else { (1 << 63 | frame).to_string() };
            text += &format!("{seq},0,{kernel},0,1500,,{frame}\n");
            kernel += 2_000 + (random >> 33) % 30_000;
            seq += 1;
        }
        kernel += 150_000 + (random >> 40) % 100_000;
    }
    fs::write(file, text).unwrap();
}

/// Trains from recordings into a folder; returns its output, or its error.
fn train_from(files: &[&Path], to: &Path) -> Option<Result<String, String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut python = Command::new(root.join("target/python/bin/python"));
    python.arg(root.join("tools/wlan/train.py")).arg("--from").args(files).arg("--to").arg(to);
    let out = python.env("PYTHONDONTWRITEBYTECODE", "1").output().ok()?;
    let [said, error] =
        [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    if error.contains("ModuleNotFoundError") {
        return None;
    }
    Some(if out.status.success() { Ok(said) } else { Err(error) })
}

#[test]
#[ignore = "long: trains in Python"]
fn weights_come_from_recordings_and_what_is_missing_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (low, high, short) = (file("low.csv"), file("high.csv"), file("short.csv"));
    recording(&low, 3, 1200);
    recording(&high, 12, 500);
    recording(&short, 5, 20);
    let own = file("own");
    let Some(trained) = train_from(&[&low, &high], &own) else {
        println!("skipped: needs scikit-learn in target/python (scripts/setup train)");
        return;
    };
    let said = trained.unwrap();
    assert!(said.contains("levels.toml is not made: support vectors need 5 recordings"), "{said}");
    let weights: FrameWeights = toml::from_str(&read(&own, "frames.toml")).unwrap();
    // Gaps in frames are below 32 µs, and between them above 150.
    assert!((32.0..182.0).contains(&weights.threshold.gap), "{weights:?}");
    assert!(weights.logistic.training.f1 > 0.99, "{weights:?}");
    assert_eq!(weights.logistic.training.data, "low.csv, high.csv");

    let error = |files: &[&Path]| train_from(files, &own).unwrap().unwrap_err();
    let plain = file("plain.csv");
    fs::write(&plain, "seq,sent_ns,kernel_ns,received_ns,bytes,delay_ns\n1,0,1,0,9,\n").unwrap();
    let missing = error(&[&plain]);
    assert!(missing.contains("has no column `frame`: record with"), "{missing}");
    let missing = error(&[&short]);
    assert!(missing.contains("and 2000 are needed: record for longer"), "{missing}");
    let cut = file("cut.csv");
    fs::write(&cut, read(folder.path(), "low.csv") + "77,0,17000").unwrap();
    let damaged = error(&[&cut]);
    assert!(damaged.contains("line ") && damaged.contains("cut or damaged"), "{damaged}");
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
