//! HTTP as a proxy implements it: CONNECT (RFC 9110, section 9.3.6), and requests for `http://` in
//! absolute form (RFC 9112, section 3.2.2).
//!
//! ```text
//!   program: CONNECT example.org:443 HTTP/1.1 … ─► us: HTTP/1.1 200 Connection established, or why not
//!   program: GET http://example.org/a HTTP/1.1 … ─► destination: GET /a HTTP/1.1, Host, Connection: close
//! ```
//!
//! One connection carries one request in absolute form: it is rewritten to origin form, the fields
//! of the hop to the proxy are removed (RFC 9110, section 7.6.1), and `Via` and `Connection: close`
//! are added, so that the destination answers no other request and both sides know it. The request
//! keeps its version, because the answer passes unchanged and an HTTP/1.0 program does not know
//! chunks. Bytes beyond the request's body are dropped: a pipelined request may be for another
//! host. A chunked body is not parsed; all bytes after it pass.

use httparse::{EMPTY_HEADER, Error, Request, Status};

use super::Target;
use super::head::Reply;

/// The maximum length of a head, in bytes.
pub(super) const LONGEST: usize = 8 * 1024;

/// The maximum number of fields of a head.
const FIELDS: usize = 64;

const MAX_FORWARDS: &str = "Max-Forwards";

/// Fields for the proxy alone, and `Host`, which is rewritten.
const OF_HOP: &[&str] = &[
    "connection",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];

/// The length of the body that follows the head of a program's request; `None`: a chunked body,
/// whose length is unknown.
pub(super) type Body = Option<u64>;

/// The result of parsing a program's request so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The head is incomplete.
    More,
    /// A CONNECT request: the length of its head, and its target.
    Connect(usize, Target),
    /// A request in absolute form: the length of its head, the target, the head to pass on, and the
    /// body.
    Forward(usize, Target, Vec<u8>, Body),
    /// Another request: the answer.
    Refuse(Vec<u8>),
}

/// Reads a head.
pub(super) fn request(bytes: &[u8]) -> Step {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut request = Request::new(&mut fields);
    let parsed = request.parse(bytes);
    match parsed {
        Ok(Status::Partial) if bytes.len() < LONGEST => Step::More,
        Ok(Status::Partial) | Err(Error::TooManyHeaders) => Step::Refuse(words(
            "431 Request Header Fields Too Large",
            "The head of a request is at most 8 KiB and 64 fields here.",
        )),
        Ok(Status::Complete(len)) if request.method != Some("CONNECT") => forward(&request, len),
        Ok(Status::Complete(len)) => match request.path.unwrap_or_default().parse() {
            Ok(target) => Step::Connect(len, target),
            Err(error) => Step::Refuse(bad(&format!("{error}."))),
        },
        Err(error) => Step::Refuse(bad(&format!("Malformed request: {error}."))),
    }
}

/// Rewrites a head in absolute form.
fn forward(request: &Request<'_, '_>, len: usize) -> Step {
    let path = request.path.unwrap_or_default();
    let Some(rest) =
        path.get(7..).filter(|_| path.as_bytes()[..7].eq_ignore_ascii_case(b"http://"))
    else {
        return Step::Refuse(bad(
            "This is a proxy: ask it for http://HOST/PATH, or by CONNECT or SOCKS5.",
        ));
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // Credentials do not belong in a request's target (section 4.2.4).
    let host = if authority.contains('@') { "" } else { authority };
    // The default port is 80; the bracket of an IPv6 address is no port.
    let target = host.parse().or_else(|_| format!("{}:80", host.trim_end_matches(':')).parse());
    let target = match target {
        Ok(target) => target,
        Err(error) => return Step::Refuse(bad(&format!("{error}."))),
    };
    let body = match body(request) {
        Ok(body) => body,
        Err(why) => return Step::Refuse(bad(why)),
    };
    let method = request.method.unwrap_or_default();
    let hops = match hops(request, method) {
        Ok(hops) => hops,
        Err(answer) => return Step::Refuse(answer),
    };
    let fields = || request.headers.iter();
    let listed: Vec<&str> = fields()
        .filter(|field| field.name.eq_ignore_ascii_case("connection"))
        .filter_map(|field| std::str::from_utf8(field.value).ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .collect();
    let is_of_hop = |name: &str| {
        OF_HOP.iter().chain(&listed).any(|it| it.eq_ignore_ascii_case(name))
            // The body passes unchanged, so the fields that give its length must stay.
            && !name.eq_ignore_ascii_case("content-length")
            && !name.eq_ignore_ascii_case("transfer-encoding")
    };
    let path = path.split('#').next().unwrap_or_default();
    let path = match path.as_bytes().first() {
        // A question to the destination as a whole (section 3.2.4).
        None if method == "OPTIONS" => "*".to_owned(),
        Some(b'/') => path.to_owned(),
        _ => format!("/{path}"),
    };
    let version = request.version.unwrap_or(1);
    let mut head = format!("{method} {path} HTTP/1.{version}\r\nHost: {host}\r\n").into_bytes();
    let is_hops = |name: &str| hops.is_some() && name.eq_ignore_ascii_case(MAX_FORWARDS);
    for field in fields().filter(|field| !is_of_hop(field.name) && !is_hops(field.name)) {
        head.extend_from_slice(field.name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(field.value);
        head.extend_from_slice(b"\r\n");
    }
    if let Some(hops) = hops {
        head.extend_from_slice(format!("{MAX_FORWARDS}: {hops}\r\n").as_bytes());
    }
    // After the ones of the proxies before this one (section 7.6.3).
    head.extend_from_slice(format!("Via: 1.{version} freshline\r\n").as_bytes());
    head.extend_from_slice(b"Connection: close\r\n\r\n");
    Step::Forward(len, target, head, body)
}

/// The values of a field, in the order of the request.
fn values<'a>(request: &'a Request<'_, '_>, name: &'a str) -> impl Iterator<Item = &'a str> {
    let named = request.headers.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
    // A value that is not text is not a valid one of any field that is read here.
    named
        .flat_map(|field| std::str::from_utf8(field.value).unwrap_or("?").split(','))
        .map(str::trim)
}

/// The length of the body (RFC 9112, section 6.3). A request whose length is ambiguous is refused, as
/// the destination may read it differently.
fn body(request: &Request<'_, '_>) -> Result<Body, &'static str> {
    let coding = values(request, "transfer-encoding").last();
    let mut lengths = values(request, "content-length");
    let Some(coding) = coding else {
        let Some(length) = lengths.next() else { return Ok(Some(0)) };
        let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        return match length.parse() {
            Ok(parsed) if is_number && lengths.all(|other| other == length) => Ok(Some(parsed)),
            _ => Err("The Content-Length is not a number, or there are several."),
        };
    };
    if lengths.next().is_some() {
        return Err("The request has both Content-Length and Transfer-Encoding.");
    }
    if request.version == Some(0) || !coding.eq_ignore_ascii_case("chunked") {
        return Err("The Transfer-Encoding of a request must end with chunked, in HTTP/1.1.");
    }
    Ok(None)
}

/// The `Max-Forwards` to pass on with an OPTIONS or TRACE request (RFC 9110, section 7.6.2); or the
/// answer, if the request must not go further.
fn hops(request: &Request<'_, '_>, method: &str) -> Result<Option<u64>, Vec<u8>> {
    if !matches!(method, "OPTIONS" | "TRACE") {
        return Ok(None);
    }
    let Some(hops) = values(request, MAX_FORWARDS).next() else { return Ok(None) };
    match (hops.parse::<u64>(), method) {
        (Ok(0), "OPTIONS") => Err(words("200 OK", "This is the proxy of freshline bond.")),
        (Ok(0), _) => Err(words("501 Not Implemented", "This proxy does not answer TRACE.")),
        (Ok(hops), _) => Ok(Some(hops - 1)),
        (Err(_), _) => Err(bad("The Max-Forwards is not a number.")),
    }
}

fn bad(why: &str) -> Vec<u8> {
    words("400 Bad Request", why)
}

/// The answer to a request.
pub(super) fn answer(reply: Reply) -> Vec<u8> {
    let (status, why) = match reply {
        Reply::Connected => return b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec(),
        Reply::Forbidden => ("403 Forbidden", "The server's rules forbid this destination."),
        Reply::NetworkUnreachable => ("502 Bad Gateway", "There is no route to that network."),
        Reply::HostUnreachable => ("502 Bad Gateway", "There is no such host, or no route to it."),
        Reply::Refused => ("502 Bad Gateway", "The destination has refused the connection."),
        Reply::Failed => ("502 Bad Gateway", "The server could not connect."),
        Reply::TimedOut => ("504 Gateway Timeout", "The destination did not answer in time."),
    };
    words(status, why)
}

fn words(status: &str, why: &str) -> Vec<u8> {
    // With the line break.
    let len = why.len() + 1;
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {len}\r\nConnection: close\r\n\r\n{why}\n"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &[u8]) -> String {
        let Step::Refuse(answer) = request(head) else { panic!("{:?}", request(head)) };
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{answer}");
        head.split(' ').nth(1).unwrap().to_owned()
    }

    #[test]
    fn a_request_is_read_whole_and_only_then() {
        for target in ["example.org:443", "10.0.0.1:80", "[2001:db8::1]:443"] {
            let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
            let head = head.as_bytes();
            assert_eq!(request(head), Step::Connect(head.len(), target.parse().unwrap()));
            for len in 0..head.len() {
                assert_eq!(request(&head[..len]), Step::More, "{len}");
            }
        }
    }

    #[test]
    fn a_request_in_absolute_form_is_rewritten_without_the_fields_of_its_hop() {
        let forwarded = |line: &str, fields: &str| {
            let head = format!("{line} HTTP/1.1\r\n{fields}\r\n");
            match request(head.as_bytes()) {
                Step::Forward(len, target, rewritten, _) => {
                    assert_eq!(len, head.len());
                    (target.to_string(), String::from_utf8(rewritten).unwrap())
                }
                other => panic!("{other:?}"),
            }
        };
        let fields = "Host: wrong\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: x\r\nTE: x\r\n\
            Connection: keep-alive, X-Hop, Content-Length\r\nX-Hop: 1\r\nContent-Length: 3\r\nAccept: */*\r\n";
        let (target, head) = forwarded("POST HTTP://example.org:8080/a?b", fields);
        assert_eq!(target, "example.org:8080");
        assert_eq!(
            head,
            "POST /a?b HTTP/1.1\r\nHost: example.org:8080\r\nContent-Length: 3\r\nAccept: */*\r\n\
             Via: 1.1 freshline\r\nConnection: close\r\n\r\n"
        );
        for (line, target, first) in [
            ("GET http://example.org", "example.org:80", "GET / "),
            ("GET http://example.org?q", "example.org:80", "GET /?q "),
            ("GET http://[2001:db8::1]/x#y", "[2001:db8::1]:80", "GET /x "),
            ("GET http://10.0.0.1:81/", "10.0.0.1:81", "GET / "),
            ("OPTIONS http://example.org", "example.org:80", "OPTIONS * "),
        ] {
            let (to, head) = forwarded(line, "");
            assert!(to == target && head.starts_with(first), "{to} {head}");
        }
        let head = b"GET http://example.org/ HTTP/1.1\r\n\r\n";
        for len in 0..head.len() {
            assert_eq!(request(&head[..len]), Step::More, "{len}");
        }
    }

    /// The head passed on for a request for `http://a/` with these fields, and the length of its
    /// body.
    fn passed(method: &str, version: u8, fields: &str) -> (String, Body) {
        let head = format!("{method} http://a/ HTTP/1.{version}\r\n{fields}\r\n");
        match request(head.as_bytes()) {
            Step::Forward(_, _, rewritten, body) => (String::from_utf8(rewritten).unwrap(), body),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_keeps_its_version_and_names_the_proxies_in_order() {
        let (head, _) = passed("GET", 0, "Via: 1.1 first\r\n");
        assert_eq!(
            head,
            "GET / HTTP/1.0\r\nHost: a\r\nVia: 1.1 first\r\nVia: 1.0 freshline\r\n\
             Connection: close\r\n\r\n"
        );
    }

    #[test]
    fn the_length_of_a_body_is_known_or_the_request_is_refused() {
        for (fields, body) in [
            ("", Some(0)),
            ("Content-Length: 12\r\n", Some(12)),
            ("Content-Length: 12, 12\r\ncontent-length: 12\r\n", Some(12)),
            ("Transfer-Encoding: gzip, Chunked\r\n", None),
        ] {
            assert_eq!(passed("POST", 1, fields).1, body, "{fields}");
        }
        for fields in [
            "Content-Length: +1\r\n",
            "Content-Length:\r\n",
            "Content-Length: 1\r\nContent-Length: 2\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked, gzip\r\n",
        ] {
            let head = format!("POST http://a/ HTTP/1.1\r\n{fields}\r\n");
            assert_eq!(status(head.as_bytes()), "400", "{fields}");
        }
        assert_eq!(status(b"POST http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), "400");
    }

    #[test]
    fn max_forwards_counts_down_and_ends_here_at_0() {
        let (head, _) = passed("TRACE", 1, "max-forwards: 3\r\n");
        assert!(head.contains("\r\nMax-Forwards: 2\r\n") && !head.contains('3'), "{head}");
        // It means nothing to other methods.
        assert!(passed("GET", 1, "Max-Forwards: 0\r\n").0.contains("\r\nMax-Forwards: 0\r\n"));
        for (method, value, answer) in
            [("OPTIONS", "0", "200"), ("TRACE", "0", "501"), ("OPTIONS", "x", "400")]
        {
            let head = format!("{method} http://a/ HTTP/1.1\r\nMax-Forwards: {value}\r\n\r\n");
            assert_eq!(status(head.as_bytes()), answer, "{method} {value}");
        }
    }

    #[test]
    fn anything_else_is_answered_as_http_does() {
        for path in
            ["/", "*", "https://example.org/", "http://", "http:// /", "http://a:b@c/", "ftp:/"]
        {
            let head = format!("GET {path} HTTP/1.1\r\n\r\n");
            assert_eq!(status(head.as_bytes()), "400", "{path}");
        }
        assert_eq!(status(b"CONNECT example.org HTTP/1.1\r\n\r\n"), "400");
        assert_eq!(status(b"CONNECT example.org:443 HTTP/3.0\r\n\r\n"), "400");
        assert_eq!(status(b"CONNECT a:1 HTTP/1.1\r\nno field\r\n\r\n"), "400");
        let many = "a: b\r\n".repeat(FIELDS + 1);
        assert_eq!(status(format!("CONNECT a:1 HTTP/1.1\r\n{many}\r\n").as_bytes()), "431");
        let long = "b".repeat(LONGEST);
        assert_eq!(status(format!("CONNECT a:1 HTTP/1.1\r\na: {long}").as_bytes()), "431");
    }
}
