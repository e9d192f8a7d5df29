use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn good_headers_are_read() {
    let parsed = TraceParent::parse(GOOD).unwrap();
    assert_eq!(parsed.trace_id, TRACE);
    assert_eq!(parsed.parent_id, "00f067aa0ba902b7");
    assert_eq!(parsed.flags, 1);
    assert_eq!(TraceParent::parse(&GOOD.replace("-01", "-00")).unwrap().flags, 0);
    // A later version, which says more.
    assert_eq!(TraceParent::parse(&format!("01{}-more", &GOOD[2..])).unwrap().trace_id, TRACE);
}

#[test]
fn malformed_headers_are_ignored() {
    let bad = [
        "",
        "00",
        "nonsense",
        &format!("{GOOD}-more"),
        &GOOD.replace("00-", "ff-"),
        &GOOD.replace("00-", "0-"),
        &GOOD.to_ascii_uppercase(),
        &GOOD.replace(TRACE, &"0".repeat(32)),
        &GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
        &GOOD.replace('b', "g"),
        &GOOD[..GOOD.len() - 1],
        "00-4bf92f3577b34da6a3ce929d0e0e473\u{e9}-00f067aa0ba902b7-01",
    ];
    for text in bad {
        assert_eq!(TraceParent::parse(text), None, "{text}");
    }
    let mut headers = HeaderMap::new();
    headers.append(TRACE_PARENT, HeaderValue::from_static(GOOD));
    assert!(TraceParent::of(&headers).is_some());
    headers.append(TRACE_PARENT, HeaderValue::from_static(GOOD));
    assert_eq!(TraceParent::of(&headers), None, "which of two is meant is not known");
}

/// What is not understood is not passed on as if it were.
#[test]
fn headers_go_on_only_if_they_could_be_read() {
    let span = Span::none();
    let mut headers = HeaderMap::new();
    headers.insert(TRACE_PARENT, HeaderValue::from_static(GOOD));
    headers.insert(TRACE_STATE, HeaderValue::from_static("vendor=1"));
    continue_trace(&mut headers, &span, true);
    assert_eq!(headers.get(TRACE_PARENT).unwrap(), GOOD);
    assert_eq!(headers.get(TRACE_STATE).unwrap(), "vendor=1");
    headers.insert(TRACE_PARENT, HeaderValue::from_static("nonsense"));
    continue_trace(&mut headers, &span, true);
    assert!(headers.is_empty(), "{headers:?}");
}
