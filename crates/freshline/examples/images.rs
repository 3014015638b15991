//! Large states: frames of 200 kB, of which only the newest counts. Each is sent in several datagrams, and arrives
//! complete or not at all.

use std::time::Duration;

use freshline::{Monitor, Source};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let monitor = Monitor::builder("udp://127.0.0.1:0").spawn()?;
    let camera = Source::builder(&monitor.url()).name("camera").topic("frame").spawn()?;
    let (frame, frames) = (camera.topic("frame")?, monitor.subscribe("camera/frame"));
    for number in 0..20_u8 {
        frame.put(vec![number; 200_000])?;
        if let Some(frame) = frames.next_within(Duration::from_secs(1)) {
            let (len, age) = (frame.payload().len(), frame.age());
            println!("frame {} of {len} bytes, {age:?} old", frame.payload()[0]);
        }
    }
    println!("{} frames were replaced before they left", frame.replaced());
    Ok(())
}
