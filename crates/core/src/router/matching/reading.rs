//! Parses match expressions.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use core::ops::RangeInclusive;
use core::str::FromStr;

use super::{ADDRESS_FIELDS, DscpSet, Ends, Match, PORT_FIELDS, Prefix, Test};
use crate::dscp::Dscp;
use crate::router::FlowKey;

/// How deep parentheses and `not` may be nested.
const MAX_DEPTH: usize = 32;

/// Why a text is not a match expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseMatchError {
    /// A word that is not a test, where a test has to be.
    #[error(
        "`{0}` is not a test; write `any`, `udp`, `tcp`, `update`, `dscp=EF`, `proto=132`, \
         `port=53,5000-5010` (also `sport`, `dport`) or `src=10.0.0.0/8` (also `dst`, `host`)"
    )]
    UnknownTest(String),
    /// The text ended, or something else came, where a test has to be.
    #[error("a test such as `udp` or `dscp=EF` is missing {0}")]
    MissingTest(String),
    /// A value that the field does not have.
    #[error("`{value}` is not a value of `{field}`; write {expected}")]
    BadValue {
        /// The field.
        field: String,
        /// The value found.
        value: String,
        /// The allowed values.
        expected: &'static str,
    },
    /// A parenthesis that is not closed.
    #[error("a `)` is missing")]
    Unclosed,
    /// Something behind a complete expression.
    #[error("`{0}` does not belong here; write `and`, `or`, or `;` between rules")]
    Trailing(String),
    /// It is nested too deep.
    #[error("the expression is nested more than {MAX_DEPTH} deep; write it with fewer parentheses")]
    TooDeep,
}

use ParseMatchError as Error;

/// A part of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Equal,
    Unequal,
    Open,
    Close,
}

impl Token<'_> {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Equal => "=",
            Self::Unequal => "!=",
            Self::Open => "(",
            Self::Close => ")",
        }
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '=' => (Token::Equal, 1),
            '!' if rest.starts_with("!=") => (Token::Unequal, 2),
            _ => {
                let ends = |c: char| c.is_whitespace() || "()=!".contains(c);
                let from = first.len_utf8();
                let length = rest[from..].find(ends).map_or(rest.len(), |at| at + from);
                (Token::Word(&rest[..length]), length)
            }
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    tokens
}

/// Parses an expression from the front of `text`. Also returns the words that follow it.
pub(in crate::router) fn expression_and_rest(text: &str) -> Result<(Match, Vec<String>), Error> {
    let tokens = tokens(text);
    let mut reader = Reader { tokens: &tokens, depth: 0 };
    let expression = reader.any()?;
    Ok((expression, reader.tokens.iter().map(|token| token.text().to_string()).collect()))
}

impl FromStr for Match {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (expression, rest) = expression_and_rest(text)?;
        match rest.into_iter().next() {
            None => Ok(expression),
            Some(word) => Err(Error::Trailing(word)),
        }
    }
}

struct Reader<'t> {
    tokens: &'t [Token<'t>],
    depth: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<Token<'t>> {
        self.tokens.first().copied()
    }

    fn next(&mut self) -> Option<Token<'t>> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(*first)
    }

    fn takes(&mut self, token: Token<'_>) -> bool {
        let is_next = self.peek() == Some(token);
        if is_next {
            self.next();
        }
        is_next
    }

    fn any(&mut self) -> Result<Match, Error> {
        let mut parts = vec![self.all()?];
        while self.takes(Token::Word("or")) {
            parts.push(self.all()?);
        }
        Ok(joined(parts, Match::Any))
    }

    fn all(&mut self) -> Result<Match, Error> {
        let mut parts = vec![self.factor()?];
        while self.takes(Token::Word("and")) {
            parts.push(self.factor()?);
        }
        Ok(joined(parts, Match::All))
    }

    fn factor(&mut self) -> Result<Match, Error> {
        if self.depth == MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        self.depth += 1;
        let factor = if self.takes(Token::Word("not")) {
            Match::Not(Box::new(self.factor()?))
        } else if self.takes(Token::Open) {
            let inner = self.any()?;
            if !self.takes(Token::Close) {
                return Err(Error::Unclosed);
            }
            inner
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(factor)
    }

    fn test(&mut self) -> Result<Match, Error> {
        let word = match self.next() {
            Some(Token::Word(word)) if !matches!(word, "and" | "or" | "as" | "force") => word,
            Some(other) => {
                return Err(Error::MissingTest(alloc::format!("before `{}`", other.text())));
            }
            None => return Err(Error::MissingTest("at the end".to_string())),
        };
        let holds = match self.peek() {
            Some(Token::Equal) => true,
            Some(Token::Unequal) => false,
            _ => return named(word),
        };
        self.next();
        let values = match self.next() {
            Some(Token::Word(values)) => values,
            _ => "",
        };
        let test = with_values(word, values)?;
        Ok(if holds { test } else { Match::Not(Box::new(test)) })
    }
}

fn joined(mut parts: Vec<Match>, join: impl FnOnce(Vec<Match>) -> Match) -> Match {
    match parts.len() {
        1 => parts.remove(0),
        _ => join(parts),
    }
}

fn named(word: &str) -> Result<Match, Error> {
    let test = match word {
        "any" => Test::Always,
        "update" => Test::Update,
        "udp" => Test::Protocol(FlowKey::UDP),
        "tcp" => Test::Protocol(FlowKey::TCP),
        _ => return Err(Error::UnknownTest(word.to_string())),
    };
    Ok(Match::Test(test))
}

fn with_values(field: &str, values: &str) -> Result<Match, Error> {
    const ENDS: [Ends; 3] = [Ends::Either, Ends::Source, Ends::Destination];
    let end_of = |names: [&str; 3]| names.iter().position(|name| *name == field).map(|at| ENDS[at]);
    let test = if field == "dscp" {
        let with = |set: DscpSet, value: &str| {
            let dscp = value.parse::<Dscp>().ok();
            dscp.and_then(|dscp| set.with(dscp.get())).ok_or_else(|| {
                bad(field, value, "a number from 0 to 63, or a name such as EF, AF41 or CS5")
            })
        };
        Test::Dscp(values.split(',').try_fold(DscpSet::default(), with)?)
    } else if field == "proto" {
        let one = |value| {
            let refused = || bad(field, value, "a number from 0 to 255, or a name such as sctp");
            protocol(value).ok_or_else(refused).map(|number| Match::Test(Test::Protocol(number)))
        };
        let parts = values.split(',').map(one).collect::<Result<_, _>>()?;
        return Ok(joined(parts, Match::Any));
    } else if let Some(ends) = end_of(PORT_FIELDS) {
        let one = |value| {
            let expected = "a number from 0 to 65535, or two with `-` between, the lower first";
            ports(value).ok_or_else(|| bad(field, value, expected))
        };
        Test::Port(ends, values.split(',').map(one).collect::<Result<_, _>>()?)
    } else if let Some(ends) = end_of(ADDRESS_FIELDS) {
        let one = |value| {
            let expected = "an address, or a prefix such as 10.0.0.0/8 or fd00::/8";
            prefix(value).ok_or_else(|| bad(field, value, expected))
        };
        Test::Address(ends, values.split(',').map(one).collect::<Result<_, _>>()?)
    } else {
        return Err(Error::UnknownTest(field.to_string()));
    };
    Ok(Match::Test(test))
}

fn bad(field: &str, value: &str, expected: &'static str) -> Error {
    Error::BadValue { field: field.to_string(), value: value.to_string(), expected }
}

fn protocol(text: &str) -> Option<u8> {
    Some(match text {
        "icmp" => 1,
        "tcp" => FlowKey::TCP,
        "udp" => FlowKey::UDP,
        "dccp" => 33,
        "icmp6" => 58,
        "sctp" => 132,
        "udplite" => 136,
        _ => return text.parse().ok(),
    })
}

fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to): (u16, u16) = (from.parse().ok()?, to.parse().ok()?);
    (from <= to).then_some(from..=to)
}

fn prefix(text: &str) -> Option<Prefix> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse::<u8>().ok()?)),
        None => (text, None),
    };
    match address.parse().ok()? {
        IpAddr::V4(address) => {
            let length = length.unwrap_or(32);
            let address: Ipv6Addr = address.to_ipv6_mapped();
            Prefix::new(address, length.checked_add(96)?)
        }
        IpAddr::V6(address) => Prefix::new(address, length.unwrap_or(128)),
    }
}
