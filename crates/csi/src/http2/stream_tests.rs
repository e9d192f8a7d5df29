use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: &[u8] = b"\0\0\x12\x01\x05\0\0\0\x01\x82\x86\x84\x41\x0d/run/csi.sock";

fn pair() -> (DuplexStream, Lenient<DuplexStream>) {
    let (peer, ours) = duplex(1 << 20);
    (peer, Lenient::new(ours, Some(7)))
}

#[tokio::test]
async fn slow_reader_gets_all_data() {
    let (mut peer, mut stream) = pair();
    for part in PREFACE.chunks(5).chain(HEADERS.chunks(5)) {
        peer.write_all(part).await.unwrap();
    }
    drop(peer);
    let mut read = Vec::new();
    let mut piece = [0; 3];
    loop {
        match stream.read(&mut piece).await.unwrap() {
            0 => break,
            length => read.extend_from_slice(&piece[..length]),
        }
    }
    assert!(read.starts_with(PREFACE));
    assert!(read.ends_with(b"\x0a:authority\x09localhost"), "{}", read.escape_ascii());
}

#[tokio::test]
async fn incomplete_header_block_ends_with_the_connection() {
    let (mut peer, mut stream) = pair();
    peer.write_all(&[PREFACE, &HEADERS[..20]].concat()).await.unwrap();
    drop(peer);
    let mut read = Vec::new();
    stream.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, PREFACE);
}

#[tokio::test]
async fn undecodable_input_closes_the_connection() {
    let (mut peer, mut stream) = pair();
    let malformed = b"\0\0\x01\x01\x05\0\0\0\x03\xfe";
    peer.write_all(&[PREFACE, HEADERS, malformed].concat()).await.unwrap();
    let mut read = Vec::new();
    let error = stream.read_to_end(&mut read).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(stream.has_warned);
}

#[tokio::test]
async fn refusals_are_logged_once() {
    let (_peer, mut stream) = pair();
    stream.write_all(&[0, 0, 0, 4, 1, 0, 0, 0, 0]).await.unwrap();
    assert!(!stream.has_warned);
    stream.write_all(&[0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 1]).await.unwrap();
    assert!(stream.has_warned);
}
