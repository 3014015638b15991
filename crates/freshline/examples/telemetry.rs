//! A robot's telemetry: three topics of different weight over one session, of which the pose matters most.
//!
//! ```text
//! freshline monitor udp://127.0.0.1:3774 --out -
//! cargo run --example telemetry -- udp://127.0.0.1:3774
//! ```

use std::time::Duration;

use freshline::{Source, TopicParams};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "udp://127.0.0.1:3774".into());
    let steps = std::env::args().nth(2).map_or(Ok(500), |steps| steps.parse::<u32>())?;
    let source = Source::builder(&url)
        .name("robot-7")
        .topic(TopicParams { weight: 100.0, ..TopicParams::new("pose") })
        .topic("battery")
        .topic(TopicParams { max_rate: Some("1/s".parse()?), ..TopicParams::new("load") })
        .spawn()?;
    // Read at the moment of sending: no state is fresher.
    source.topic("load")?.sample_with(|state| {
        state.extend(std::fs::read("/proc/loadavg").unwrap_or_default());
    })?;
    let (pose, battery) = (source.topic("pose")?, source.topic("battery")?);
    for step in 0..steps {
        pose.put(format!("x={:.2}", f64::from(step) / 100.0))?;
        if step % 100 == 0 {
            battery.put(format!("{} %", 100 - step / 100))?;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    println!(
        "rate {:.1}/s, {} poses were replaced before they left",
        source.rate(),
        pose.replaced()
    );
    println!("{} updates were acknowledged", source.close()?.acked);
    Ok(())
}
