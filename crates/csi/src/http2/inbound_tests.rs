use super::*;

/// RFC 7541, C.3: `:authority` with a value, remembered, and a reference to it.
const GOOD: &[u8] = b"\x82\x86\x84\x41\x0fwww.example.com";
const AGAIN: &[u8] = &[0x82, 0x86, 0x84, 0xbe];
const PATH: &[u8] = b"\x82\x86\x84\x41\x0d/run/csi.sock";

fn head(length: usize, kind: u8, flags: u8) -> Vec<u8> {
    let length = u32::try_from(length).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, 1]].concat()
}

fn headers(flags: u8, payload: &[u8]) -> Vec<u8> {
    [head(payload.len(), frame::HEADERS, flags), payload.to_vec()].concat()
}

fn continuation(flags: u8, payload: &[u8]) -> Vec<u8> {
    [head(payload.len(), frame::CONTINUATION, flags), payload.to_vec()].concat()
}

fn data(payload: &[u8]) -> Vec<u8> {
    [head(payload.len(), 0, 1), payload.to_vec()].concat()
}

fn greeting() -> Vec<u8> {
    [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat()
}

fn pass(frames: &[Vec<u8>]) -> Result<Vec<u8>, Malformed> {
    let mut passed = Vec::new();
    Inbound::default().take(&[greeting(), frames.concat()].concat(), &mut passed)?;
    assert!(passed.starts_with(&greeting()));
    Ok(passed.split_off(greeting().len()))
}

fn plain(authority: &str) -> Vec<u8> {
    let fields = Decoder::default().decode(b"\x82\x86\x84\x01\0").unwrap();
    let mut fields = fields;
    fields[3].value = authority.into();
    hpack::encode(&fields)
}

#[test]
fn valid_frames_pass_unchanged() {
    let frames = [headers(4, GOOD), data(b"abc"), headers(5, AGAIN), data(b"")];
    assert_eq!(pass(&frames).unwrap(), frames.concat());
    // None at all is fine, too.
    let frames = [headers(4, &GOOD[..3])];
    assert_eq!(pass(&frames).unwrap(), frames.concat());
}

#[test]
fn path_as_authority_is_replaced_everywhere() {
    let frames = [headers(4, PATH), data(b"abc"), headers(5, AGAIN)];
    let expected = [headers(4, &plain("localhost")), data(b"abc"), headers(5, &plain("localhost"))];
    assert_eq!(pass(&frames).unwrap(), expected.concat());
}

#[test]
fn an_empty_authority_is_replaced() {
    let expected = headers(5, &plain("localhost"));
    assert_eq!(pass(&[headers(5, &[0x82, 0x86, 0x84, 0x81])]).unwrap(), expected);
    assert_eq!(pass(&[headers(5, &[0x82, 0x86, 0x84, 0x41, 0])]).unwrap(), expected);
}

/// As a proxy may do that speaks for several.
#[test]
fn path_header_after_authority_is_found() {
    let frames = [headers(5, GOOD), headers(5, PATH), headers(5, &[0x82, 0x86, 0x84, 0xbf])];
    let expected =
        [headers(5, GOOD), headers(5, &plain("localhost")), headers(5, &plain("www.example.com"))];
    assert_eq!(pass(&frames).unwrap(), expected.concat());
}

#[test]
fn padding_priority_and_continuation_are_parsed() {
    let expected = headers(5, &plain("localhost"));
    let padded = [&[3][..], PATH, &[0; 3]].concat();
    assert_eq!(pass(&[headers(0x0d, &padded)]).unwrap(), expected);
    let with_priority = [&[2, 0, 0, 0, 0, 9][..], PATH, &[0; 2]].concat();
    assert_eq!(pass(&[headers(0x2d, &with_priority)]).unwrap(), expected);
    for cut in 0..=PATH.len() {
        let (first, second) = PATH.split_at(cut);
        let frames = [headers(1, first), continuation(0, &[]), continuation(4, second)];
        assert_eq!(pass(&frames).unwrap(), expected, "cut at {cut}");
    }
}

#[test]
fn any_read_size_gives_the_same_result() {
    let trailers = b"\x40\x01a\x01b";
    let sent = [
        greeting(),
        headers(0, &PATH[..5]),
        continuation(4, &PATH[5..]),
        data(&[7; 300]),
        headers(5, trailers),
        headers(5, &[0x82, 0x86, 0x84, 0xbf]),
    ]
    .concat();
    let mut whole = Vec::new();
    Inbound::default().take(&sent, &mut whole).unwrap();
    for size in 1..sent.len() {
        let (mut inbound, mut passed) = (Inbound::default(), Vec::new());
        for piece in sent.chunks(size) {
            inbound.take(piece, &mut passed).unwrap();
        }
        assert_eq!(passed, whole, "{size} bytes at once");
    }
}

/// Ten references to a header of 4,000 bytes.
#[test]
fn grown_header_block_is_split() {
    let long = [PATH, b"\x40\x01a\x7f\xa1\x1e", &[b'b'; 4000]].concat();
    let many = [&[0x82, 0x86, 0x84, 0xbf][..], &[0xbe; 10]].concat();
    let passed = pass(&[headers(5, &long), headers(5, &many)]).unwrap();
    let mut rest = passed.as_slice();
    let mut kinds = Vec::new();
    while let Some(head) = rest.get(..HEAD_BYTES).and_then(Head::parse) {
        assert!(head.length <= MAX_PAYLOAD);
        kinds.push((head.kind, head.flags, head.stream));
        rest = &rest[HEAD_BYTES + head.length..];
    }
    assert_eq!(kinds, [(1, 5, 1), (1, 1, 1), (9, 0, 1), (9, 4, 1)]);
}

#[test]
fn malformed_frames_are_left_to_the_library() {
    let long = vec![0; MAX_PAYLOAD + 1];
    let many: Vec<_> = (0..5).map(|_| continuation(0, &[0; MAX_PAYLOAD])).collect();
    for frames in [
        vec![headers(5, &[0xbe])],
        vec![headers(0x0d, &[9, 0x82])],
        vec![headers(0x0d, &[])],
        vec![headers(0x25, &[0; 4])],
        vec![headers(1, GOOD), data(b"abc")],
        vec![headers(5, &long)],
        [vec![headers(1, GOOD)], many].concat(),
    ] {
        let frames = [frames, vec![headers(5, PATH)]].concat();
        let mut inbound = Inbound::default();
        let (sent, mut passed) = ([greeting(), frames.concat()].concat(), Vec::new());
        inbound.take(&sent, &mut passed).unwrap();
        assert_eq!(passed, sent);
        assert!(inbound.passes_through() && inbound.notice().is_some());
    }
    let mut passed = Vec::new();
    let mut inbound = Inbound::default();
    inbound.take(b"GET / HTTP/1.1\r\n\r\n", &mut passed).unwrap();
    assert_eq!(passed, b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(inbound.notice(), Some(Malformed("something other than HTTP/2")));
}

/// The library's table is no longer the peer's: passed on, a reference would mean something else.
#[test]
fn malformed_frame_after_a_path_closes_the_connection() {
    assert!(pass(&[headers(5, PATH), headers(5, &[0xfe])]).is_err());
    assert!(pass(&[headers(5, PATH), headers(1, AGAIN), data(b"abc")]).is_err());
    assert!(pass(&[headers(5, PATH), headers(5, &vec![0; MAX_PAYLOAD + 1])]).is_err());
}

#[test]
fn too_many_headers_are_detected() {
    let long = [GOOD, b"\x00\x01a\x7f\x81\x7f", &[b'b'; 16_384]].concat();
    let (first, second) = long.split_at(MAX_PAYLOAD);
    let mut inbound = Inbound::default();
    let sent = [greeting(), headers(1, first), continuation(4, second)].concat();
    let mut passed = Vec::new();
    inbound.take(&sent, &mut passed).unwrap();
    assert_eq!(passed, sent);
    assert_eq!(inbound.notice(), Some(Malformed("more than 16 KiB of headers")));
    assert!(!inbound.passes_through());
}
