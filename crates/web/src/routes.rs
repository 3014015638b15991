//! HTTP: the page, the endpoint description, and the WebSocket.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_ORIGIN, AUTHORIZATION,
};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;

use crate::files;
use crate::pump::{Incoming, Link, pump};
use crate::session::Carrier;
use crate::shared::{MAX_CONTROL, Place, Shared, WEBTRANSPORT};

/// The path of WebSockets.
const WEBSOCKET: &str = "/ws";

/// The WebSocket's subprotocol.
const SUBPROTOCOL: &str = "freshline.2";

/// The longest message over a WebSocket that has one update: as over WebTransport.
const MAX_DATAGRAM: usize = 1200;

/// A browser that takes no message for so long is gone.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/api/endpoint", get(endpoint).options(preflight))
        .route(WEBSOCKET, get(websocket))
        .fallback(|uri: Uri| async move { files::file(uri.path()) })
        .with_state(shared)
}

/// Pages of other origins may ask with a token.
const CORS: [(axum::http::HeaderName, &str); 2] =
    [(ACCESS_CONTROL_ALLOW_ORIGIN, "*"), (ACCESS_CONTROL_ALLOW_HEADERS, "authorization")];

async fn preflight() -> impl IntoResponse {
    (StatusCode::NO_CONTENT, CORS)
}

/// How to connect.
async fn endpoint(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = shown.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if !shared.token.is(token) {
        return refusal(StatusCode::UNAUTHORIZED, "this token is not the gateway's");
    }
    let body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "webtransport": {
            "port": shared.address.port(),
            "path": WEBTRANSPORT,
            "hashes": [shared.certificate.hash()],
        },
        "websocket": WEBSOCKET,
        "commands": shared.hub.commands(),
    });
    (CORS, Json(body)).into_response()
}

fn refusal(status: StatusCode, why: &str) -> Response {
    (status, CORS, Json(json!({ "error": why }))).into_response()
}

#[derive(Debug, Deserialize)]
struct Shown {
    #[serde(default)]
    token: String,
}

async fn websocket(
    State(shared): State<Arc<Shared>>,
    Query(shown): Query<Shown>,
    upgrade: WebSocketUpgrade,
) -> Response {
    if !shared.token.is(&shown.token) {
        return refusal(StatusCode::FORBIDDEN, "this token is not the gateway's");
    }
    let Some(place) = shared.place() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "too many browsers; close a page");
    };
    upgrade
        .protocols([SUBPROTOCOL])
        .max_message_size(MAX_CONTROL)
        .max_frame_size(MAX_CONTROL)
        // Each message leaves by itself.
        .write_buffer_size(0)
        .on_upgrade(move |socket| run(socket, shared, place))
}

async fn run(socket: WebSocket, shared: Arc<Shared>, place: Place) {
    let carrier = Carrier { name: "websocket", max_datagram: MAX_DATAGRAM };
    pump(Messages(socket), carrier, &shared).await;
    drop(place);
}

/// A WebSocket: binary messages are datagrams, text is control.
struct Messages(WebSocket);

impl Link for Messages {
    async fn recv(&mut self) -> Option<Incoming> {
        loop {
            match self.0.recv().await?.ok()? {
                Message::Binary(bytes) => return Some(Incoming::Datagram(bytes)),
                Message::Text(text) => return Some(Incoming::Control(text.as_str().to_owned())),
                Message::Close(_) => return None,
                // Pings are answered by the library.
                Message::Ping(_) | Message::Pong(_) => {}
            }
        }
    }

    async fn send(&mut self, datagram: &[u8]) -> bool {
        let message = Message::Binary(Bytes::copy_from_slice(datagram));
        matches!(timeout(PATIENCE, self.0.send(message)).await, Ok(Ok(())))
    }

    async fn reply(&mut self, text: String) -> bool {
        matches!(timeout(PATIENCE, self.0.send(Message::Text(text.into()))).await, Ok(Ok(())))
    }
}
