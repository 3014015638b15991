//! HTTP's CONNECT (RFC 9110, section 9.3.6), as proxies of other programs take it; nothing else of
//! HTTP.
//!
//! ```text
//!   program: CONNECT example.org:443 HTTP/1.1 … ─► us: HTTP/1.1 200 Connection established, or why not
//! ```

use httparse::{EMPTY_HEADER, Error, Request, Status};

use super::Target;
use super::head::Reply;

/// The longest head.
pub(super) const LONGEST: usize = 8 * 1024;

/// The most fields of a head.
const FIELDS: usize = 64;

/// What a program has said so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The beginning of a head.
    More,
    /// So many bytes were a head that asks for this.
    Connect(usize, Target),
    /// Something else: the answer.
    Refuse(Vec<u8>),
}

/// Reads a head.
pub(super) fn request(bytes: &[u8]) -> Step {
    let mut fields = [EMPTY_HEADER; FIELDS];
    let mut request = Request::new(&mut fields);
    let parsed = request.parse(bytes);
    if request.method.is_some_and(|method| method != "CONNECT") {
        return Step::Refuse(words(
            "405 Method Not Allowed",
            "This relay carries connections: have the program ask by CONNECT, or by SOCKS5.",
        ));
    }
    match parsed {
        Ok(Status::Partial) if bytes.len() < LONGEST => Step::More,
        Ok(Status::Partial) | Err(Error::TooManyHeaders) => Step::Refuse(words(
            "431 Request Header Fields Too Large",
            "The head of a request is at most 8 KiB and 64 fields here.",
        )),
        Ok(Status::Complete(len)) => match request.path.unwrap_or_default().parse() {
            Ok(target) => Step::Connect(len, target),
            Err(error) => Step::Refuse(bad(&format!("{error}."))),
        },
        Err(error) => Step::Refuse(bad(&format!("That is no request: {error}."))),
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
        Reply::NetworkUnreachable => ("502 Bad Gateway", "There is no way to that network."),
        Reply::HostUnreachable => ("502 Bad Gateway", "There is no such host, or no way to it."),
        Reply::Refused => ("502 Bad Gateway", "The destination has refused the connection."),
        Reply::Failed => ("502 Bad Gateway", "The server could not connect."),
        Reply::TimedOut => ("504 Gateway Timeout", "Nobody has answered in time."),
    };
    words(status, why)
}

fn words(status: &str, why: &str) -> Vec<u8> {
    // With the line's end.
    let len = why.len() + 1;
    let allow = if status.starts_with("405") { "Allow: CONNECT\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status}\r\n{allow}Content-Type: text/plain; charset=utf-8\r\n\
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
    fn anything_else_is_answered_as_http_does() {
        assert_eq!(status(b"GET http://example.org/ HTTP/1.1\r\n\r\n"), "405");
        assert_eq!(status(b"CONNECT example.org HTTP/1.1\r\n\r\n"), "400");
        assert_eq!(status(b"CONNECT example.org:443 HTTP/3.0\r\n\r\n"), "400");
        assert_eq!(status(b"CONNECT a:1 HTTP/1.1\r\nno field\r\n\r\n"), "400");
        let many = "a: b\r\n".repeat(FIELDS + 1);
        assert_eq!(status(format!("CONNECT a:1 HTTP/1.1\r\n{many}\r\n").as_bytes()), "431");
        let long = "b".repeat(LONGEST);
        assert_eq!(status(format!("CONNECT a:1 HTTP/1.1\r\na: {long}").as_bytes()), "431");
    }
}
