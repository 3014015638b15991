//! A house with a relay: its sensors reach one hub through it, and the hub measures ages from the sensors' times.

use freshline::{Monitor, Relay, Source};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hub = Monitor::builder("udp://127.0.0.1:0").spawn()?;
    let house = Relay::builder(Monitor::builder("udp://127.0.0.1:0")).to(&hub.url()).spawn()?;
    let sensor = Source::builder(&house.url()).name("door-3").spawn()?;
    sensor.put("shut")?;
    if let Some(state) = hub.subscribe("door-*").next() {
        println!("{} is {}", state.source(), state.text().unwrap_or("?"));
    }
    let report = house.report(10)?;
    println!("{} destination", report.destinations.len());
    Ok(())
}
