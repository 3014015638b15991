//! An operator's commands, over the connection that the robot has opened. The robot ignores commands older than 200 ms,
//! and stops when there is no younger one.

use std::time::Duration;

use freshline::{Monitor, Source};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let base = Monitor::builder("udp://127.0.0.1:0").name("base").topic("speed").spawn()?;
    let robot = Source::builder(&base.url()).name("robot-7").topic("pose").receive();
    let robot = robot.max_age("base/speed", Duration::from_millis(200)).spawn()?;
    robot.put("x=0")?;

    let (speed, speeds) = (base.topic("speed")?, robot.subscribe("base/speed"));
    for step in 0..5 {
        speed.put(format!("{step} m/s"))?;
        match speeds.next_within(Duration::from_millis(200)) {
            Some(state) => println!("drives at {}", state.text().unwrap_or("?")),
            None => println!("stops: no command is young enough"),
        }
    }
    std::thread::sleep(Duration::from_millis(300));
    println!("after 300 ms without one: {:?}", robot.latest("base/speed"));
    Ok(())
}
