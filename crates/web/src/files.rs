//! The files of the page, which are part of the program.

use axum::http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    REFERRER_POLICY,
};
use axum::http::header::{HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use include_dir::{Dir, include_dir};

static PAGE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/monitor");
static CLIENT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/client");

/// No script, style or image but our own and those of states, in no frame of others.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' blob: data:; connect-src 'self' https: wss: ws:; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

/// A file of `web/monitor`, or of `web/client`, by its path in the URL.
pub(crate) fn file(path: &str) -> Response {
    let path = path.trim_start_matches('/');
    let path = if path.is_empty() { "monitor/index.html" } else { path };
    let found = match path.split_once('/') {
        Some(("monitor", rest)) => PAGE.get_file(rest),
        Some(("client", rest)) => CLIENT.get_file(rest),
        _ => None,
    };
    let Some((file, kind)) = found.and_then(|file| Some((file, content_type(path)?))) else {
        return (StatusCode::NOT_FOUND, headers("text/plain; charset=utf-8"), "no such page\n")
            .into_response();
    };
    (headers(kind), file.contents()).into_response()
}

fn content_type(path: &str) -> Option<&'static str> {
    Some(match path.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    })
}

fn headers(kind: &'static str) -> HeaderMap {
    let opener = HeaderName::from_static("cross-origin-opener-policy");
    // With both, clocks of the page have steps of some µs.
    let embedder = HeaderName::from_static("cross-origin-embedder-policy");
    let resource = HeaderName::from_static("cross-origin-resource-policy");
    [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
        (opener, "same-origin"),
        (embedder, "require-corp"),
        // Pages of other origins may use the library.
        (resource, "cross-origin"),
        (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    ]
    .map(|(name, value)| (name, HeaderValue::from_static(value)))
    .into_iter()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_their_types_and_a_policy() {
        let page = file("/");
        assert_eq!(page.status(), StatusCode::OK);
        assert_eq!(page.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        assert!(page.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap().contains("'none'"));
        assert_eq!(
            file("/client/freshline.js").headers()[CONTENT_TYPE],
            "text/javascript; charset=utf-8"
        );
    }

    #[test]
    fn nothing_else_is_served() {
        for path in
            ["/client/package.json", "/client/../Cargo.toml", "/monitor/", "/etc/passwd", "/client"]
        {
            let answer = file(path);
            assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
            assert!(answer.headers().contains_key(CONTENT_SECURITY_POLICY), "{path}");
        }
    }
}
