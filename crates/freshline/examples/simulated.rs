//! One application, run twice: over sockets of this host, and over LTE in virtual time.
//!
//! ```text
//! cargo run --release -p freshline --features sim --example simulated
//! ```

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use freshline::sim::Sim;
use freshline::{Monitor, MonitorBuilder, PutError, Source, SourceBuilder, Topic};

/// The interval between the robot's poses.
const PERIOD: Duration = Duration::from_millis(10);

/// The operator's monitor, the same in both runs.
fn operator(url: &str) -> MonitorBuilder {
    Monitor::builder(url).max_age("robot-7/*", Duration::from_secs(1))
}

/// The robot's source, the same in both runs.
fn robot(url: &str) -> SourceBuilder {
    Source::builder(url).name("robot-7").topic("pose")
}

/// One step of the robot: it drives in a circle.
fn drive(pose: &Topic, now: Duration) -> Result<(), PutError> {
    let (y, x) = now.as_secs_f64().sin_cos();
    pose.put(format!("x={x:.3} y={y:.3}")).map(drop)
}

/// Two seconds over sockets.
fn over_sockets() -> Result<(), Box<dyn Error>> {
    let monitor = operator("udp://127.0.0.1:0").spawn()?;
    let source = robot(&monitor.url()).spawn()?;
    let pose = source.topic("pose")?;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        drive(&pose, began.elapsed())?;
        thread::sleep(PERIOD);
    }
    let state = monitor.latest("robot-7/pose").ok_or("nothing has come")?;
    println!("over loopback: {:?} is {:?} old", state.text(), state.age());
    Ok(())
}

/// A minute over LTE.
fn in_virtual_time() -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let mut sim = Sim::lte()?;
    let monitor = operator("udp://127.0.0.1:3774").simulate(&mut sim)?;
    let source = robot(&monitor.url()).simulate(&mut sim, "source")?;
    let pose = source.topic("pose")?;
    sim.every(PERIOD, move |now| drive(&pose, now).expect("the source runs"));
    sim.run_for(Duration::from_secs(60));
    let state = monitor.latest("robot-7/pose").ok_or("nothing has come")?;
    println!("over LTE: {:?} is {:?} old", state.text(), state.age());
    println!("a minute of LTE took {:?}; {}", began.elapsed(), sim.report());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    over_sockets()?;
    in_virtual_time()
}
