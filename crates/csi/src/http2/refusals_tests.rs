use super::*;

const SETTINGS: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 7];
const DATA: &[u8] = &[0, 0, 12, 0, 0, 0, 0, 0, 1, 0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0];

fn reset(code: u8) -> Vec<u8> {
    vec![0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, code]
}

fn goaway(code: u8) -> Vec<u8> {
    let head = [0, 0, 11, 7, 0, 0, 0, 0, 0];
    [&head[..], &[0, 0, 0, 1, 0, 0, 0, code], b"why"].concat()
}

#[test]
fn refusals_are_found_in_split_writes() {
    let sent =
        [SETTINGS, DATA, &reset(8), &reset(1), DATA, &goaway(0), &goaway(9), SETTINGS].concat();
    for size in 1..=sent.len() {
        let mut refusals = Refusals::default();
        let found: Vec<_> = sent.chunks(size).filter_map(|piece| refusals.find(piece)).collect();
        assert_eq!(found[0], Refusal::Call(Code(1)), "{size} bytes at once");
        assert_eq!(
            found.get(1).copied().unwrap_or(Refusal::Connection(Code(9))),
            Refusal::Connection(Code(9))
        );
        assert!(refusals.seen.is_empty());
    }
}

#[test]
fn normal_stream_end_is_no_refusal() {
    let mut refusals = Refusals::default();
    for code in [0, 5, 8] {
        assert_eq!(refusals.find(&reset(code)), None);
    }
    assert_eq!(refusals.find(&goaway(0)), None);
    assert_eq!(refusals.find(&[0, 0, 0, 7, 0, 0, 0, 0, 0]), None);
    assert_eq!(refusals.find(&reset(7)), Some(Refusal::Call(Code(7))));
}

#[test]
fn codes_have_names() {
    assert_eq!(Code(1).name(), "PROTOCOL_ERROR");
    assert_eq!(Code(13).name(), "HTTP_1_1_REQUIRED");
    assert_eq!(Code(14).name(), "an unknown code");
}
