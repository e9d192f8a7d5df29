use super::*;
use crate::http2::hex::bytes;

/// RFC 7541, appendix C.4 and C.6.
#[test]
fn rfc_strings_are_decoded() {
    for (encoded, text) in [
        ("f1e3 c2e5 f23a 6ba0 ab90 f4ff", "www.example.com"),
        ("a8eb 1064 9cbf", "no-cache"),
        ("25a8 49e9 5ba9 7d7f", "custom-key"),
        ("25a8 49e9 5bb8 e8b4 bf", "custom-value"),
        ("6402", "302"),
        ("640e ff", "307"),
        ("aec3 771a 4b", "private"),
        ("d07a be94 1054 d444 a820 0595 040b 8166 e082 a62d 1bff", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("9d29 ad17 1863 c78f 0b97 c8e9 ae82 ae43 d3", "https://www.example.com"),
        ("9bd9 ab", "gzip"),
        ("", ""),
    ] {
        assert_eq!(decode(&bytes(encoded)).unwrap(), text.as_bytes(), "{encoded}");
    }
}

/// By the codes that appendix B lists for them.
#[test]
fn rare_bytes_have_long_codes() {
    assert_eq!(decode(&bytes("ffc7")).unwrap(), [0]);
    // 10 is 30 bits, 249 is 28.
    assert_eq!(decode(&bytes("ffff fff3")).unwrap(), [10]);
    assert_eq!(decode(&bytes("ffff ffef")).unwrap(), [249]);
    assert_eq!(CODES.symbols.len(), 256);
    assert_eq!(CODES.symbols.last(), Some(&22));
}

#[test]
fn eos_is_no_byte_and_padding_is_short() {
    let malformed = |hex| decode(&bytes(hex)).unwrap_err();
    // The code of the end itself, a whole byte of padding, padding of zeros.
    assert_eq!(malformed("ffff ffff"), Malformed("an invalid Huffman code"));
    assert_eq!(malformed("1fff"), Malformed("a truncated Huffman code"));
    assert_eq!(malformed("ff"), Malformed("a truncated Huffman code"));
    assert_eq!(malformed("18"), Malformed("a truncated Huffman code"));
}
