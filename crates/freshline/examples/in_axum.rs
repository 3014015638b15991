//! Inside a web server on tokio: `GET /pose` returns the newest pose with its age, and `GET /next` waits for the next
//! one, without blocking the server or the network thread.
//!
//! ```text
//! cargo run --example in_axum -- 127.0.0.1:8080
//! ```

use std::sync::Arc;

use axum::Router;
use axum::extract::State as Shared;
use axum::routing::get;
use freshline::{Monitor, Source, State};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let monitor = Arc::new(Monitor::builder("udp://127.0.0.1:0").spawn()?);
    // In a real deployment the robot is another host.
    let robot = Source::builder(&monitor.url()).name("robot-7").topic("pose").spawn()?;
    robot.put("x=1")?;
    let pages = Router::new().route("/pose", get(newest)).route("/next", get(next));
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("http://{}/pose", listener.local_addr()?);
    if std::env::var_os("ONCE").is_some() {
        println!("{}", next(Shared(Arc::clone(&monitor))).await);
        return Ok(());
    }
    Ok(axum::serve(listener, pages.with_state(monitor)).await?)
}

async fn newest(Shared(monitor): Shared<Arc<Monitor>>) -> String {
    monitor.latest("robot-7/pose").map_or("no pose yet".into(), |pose| said(&pose))
}

async fn next(Shared(monitor): Shared<Arc<Monitor>>) -> String {
    let poses = monitor.subscribe("robot-7/pose");
    poses.recv().await.map_or("the monitor has ended".into(), |pose| said(&pose))
}

fn said(pose: &State) -> String {
    format!("{}, {:?} old", pose.text().unwrap_or("?"), pose.age())
}
