//! The status of a source, on its law and its paths, in a topic of its own.

mod common;

use common::{Outcome, URL, ms, robot, secs};
use freshline::sim::Sim;
use freshline::{Monitor, Source};

/// Its status neither keeps a source from its end nor the world from going on.
#[test]
fn a_source_with_a_status_drains() -> Outcome {
    let mut sim = Sim::lte()?;
    let monitor = Monitor::builder(URL).simulate(&mut sim)?;
    let robot = robot(URL).status(ms(200)).simulate(&mut sim, "source")?;
    let pose = robot.topic("pose")?;
    sim.every(ms(20), move |_| drop(pose.put("x")));
    sim.run_for(secs(3));
    let told = monitor.latest("robot-7/freshline.status").ok_or("there is a status")?;
    let told: serde_json::Value = serde_json::from_slice(told.payload())?;
    assert!(told["rate"].as_f64() > Some(1.0), "{told}");
    robot.drain();
    sim.run_for(secs(30));
    let last = monitor.latest("robot-7/freshline.status").ok_or("it stays")?;
    assert!(last.age() > Some(secs(20)), "none is sent after the end: {:?}", last.age());
    Ok(())
}

#[test]
fn a_status_that_cannot_be_is_refused() -> Outcome {
    let mut sim = Sim::lte()?;
    for (builder, reason) in [
        (Source::builder(URL).status(secs(1)), "by `topic`"),
        (robot(URL).status(ms(99)), "at least 100 ms"),
        (robot(URL).topic("freshline.status").status(secs(1)), "no other topic"),
        (robot(URL).max_state(2000).status(secs(1)), "8 kB"),
    ] {
        let refused = builder.simulate(&mut sim, "source").err().ok_or(reason)?;
        assert!(refused.to_string().contains(reason), "{refused}");
    }
    Ok(())
}
