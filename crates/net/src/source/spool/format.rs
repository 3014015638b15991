//! The bytes of a spool.

use std::io::{self, Read};
use std::time::Duration;

use freshline_core::wire::{RecordChunk, StreamId};

use crate::sha256::Sha256;

const MAGIC: &[u8; 16] = b"freshline-spool1";

/// The offset of the number below which all chunks are done.
pub(super) const DONE_AT: u64 = 32;

/// The header without the topic's name.
pub(super) const HEADER: usize = 41;

/// The overhead per record besides its bytes. It is less than [`RecordChunk::COST`].
pub(super) const ENTRY: usize = 20;

/// The header, before the records.
pub(super) struct Header {
    pub(super) stream: StreamId,
    pub(super) first: u64,
    pub(super) done: u64,
    pub(super) topic: String,
}

impl Header {
    /// `None` if the file has another format.
    pub(super) fn read(file: &mut impl Read) -> io::Result<Option<Self>> {
        let Some(fixed) = read_array::<HEADER>(file)? else { return Ok(None) };
        let mut name = vec![0; fixed[HEADER - 1].into()];
        if &fixed[..16] != MAGIC || !read_whole(file, &mut name)? {
            return Ok(None);
        }
        let Ok(topic) = String::from_utf8(name) else { return Ok(None) };
        let number = |at| number_at(&fixed, at);
        Ok(Some(Self { stream: StreamId(number(16)), first: number(24), done: number(32), topic }))
    }
}

/// The header of a file in which no record is done.
pub(super) fn header(topic: &str, stream: StreamId, first: u64) -> Vec<u8> {
    // Names of topics are shorter.
    let length = topic.len().min(u8::MAX.into());
    let mut header = MAGIC.to_vec();
    [stream.0, first, first].iter().for_each(|it| header.extend_from_slice(&it.to_be_bytes()));
    header.push(length as u8);
    header.extend_from_slice(&topic.as_bytes()[..length]);
    header
}

/// A record, generated at this time since 1970, of at most [`RecordChunk::MAX_RECORD`] bytes.
pub(super) fn entry(generated_at: Duration, record: &[u8]) -> Vec<u8> {
    let nanos = u64::try_from(generated_at.as_nanos()).unwrap_or(u64::MAX).to_be_bytes();
    let mut entry = Vec::with_capacity(ENTRY + record.len());
    entry.extend_from_slice(&(record.len() as u32).to_be_bytes());
    entry.extend_from_slice(&[0; 8]);
    entry.extend_from_slice(&nanos);
    entry.extend_from_slice(record);
    let checksum = checksum(&entry[12..]);
    entry[4..12].copy_from_slice(&checksum);
    entry
}

/// The next record with its time; `None` if there is no complete one.
pub(super) fn read_entry(file: &mut impl Read) -> io::Result<Option<(Duration, Vec<u8>)>> {
    let Some(fixed) = read_array::<ENTRY>(file)? else { return Ok(None) };
    let length = u32::from_be_bytes([fixed[0], fixed[1], fixed[2], fixed[3]]) as usize;
    if length > RecordChunk::MAX_RECORD {
        return Ok(None);
    }
    let mut entry = fixed[12..].to_vec();
    entry.resize(8 + length, 0);
    if !read_whole(file, &mut entry[8..])? || checksum(&entry) != fixed[4..12] {
        return Ok(None);
    }
    let bytes = entry.split_off(8);
    Ok(Some((Duration::from_nanos(number_at(&entry, 0)), bytes)))
}

/// The first bytes of SHA-256 of a record's time and bytes, whose length is part of the input.
fn checksum(entry: &[u8]) -> [u8; 8] {
    number_at(&Sha256::of(entry).0, 0).to_be_bytes()
}

fn number_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn read_array<const N: usize>(file: &mut impl Read) -> io::Result<Option<[u8; N]>> {
    let mut bytes = [0; N];
    Ok(read_whole(file, &mut bytes)?.then_some(bytes))
}

/// Whether enough bytes could be read.
fn read_whole(file: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(into) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
