use super::*;
use crate::http2::hex::bytes;

fn fields(lines: &[&str]) -> Vec<Field> {
    let field = |line: &&str| {
        let (name, value) = line.split_once(": ").unwrap();
        Field::new(name, value)
    };
    lines.iter().map(field).collect()
}

fn malformed(hex: &str) -> &'static str {
    Decoder::default().decode(&bytes(hex)).unwrap_err().0
}

/// RFC 7541, appendix C.2.
#[test]
fn every_header_representation_is_decoded() {
    for (block, header, remembered) in [
        (
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            "custom-key: custom-header",
            55,
        ),
        ("040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path", 0),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret", 0),
        ("82", ":method: GET", 0),
    ] {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(&bytes(block)).unwrap(), fields(&[header]));
        assert_eq!(decoder.bytes, remembered, "{header}");
    }
}

/// RFC 7541, appendices C.3 and C.4: the same requests, plain and in Huffman's code.
#[test]
fn later_requests_use_the_dynamic_table() {
    let first = [":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"];
    let second = [&first[..], &["cache-control: no-cache"]].concat();
    let third = [
        ":method: GET",
        ":scheme: https",
        ":path: /index.html",
        ":authority: www.example.com",
        "custom-key: custom-value",
    ];
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let huffman = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, huffman] {
        let mut decoder = Decoder::default();
        for (block, (expected, remembered)) in
            blocks.iter().zip([(&first[..], 57), (&second, 110), (&third, 164)])
        {
            assert_eq!(decoder.decode(&bytes(block)).unwrap(), fields(expected));
            assert_eq!(decoder.bytes, remembered);
        }
    }
}

/// RFC 7541, appendix C.6, with a table of 256 bytes: the oldest entries go.
#[test]
fn small_table_evicts_the_oldest_entry() {
    let mut decoder = Decoder { most_bytes: 256, ..Decoder::default() };
    let first = [
        ":status: 302",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:21 GMT",
        "location: https://www.example.com",
    ];
    let block = "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 \
                 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3";
    assert_eq!(decoder.decode(&bytes(block)).unwrap(), fields(&first));
    assert_eq!(decoder.bytes, 222);
    let second = [&[":status: 307"], &first[1..]].concat();
    assert_eq!(decoder.decode(&bytes("4883 640e ffc1 c0bf")).unwrap(), fields(&second));
    assert_eq!((decoder.bytes, decoder.entries.len()), (222, 4));
    let third = [
        ":status: 200",
        "cache-control: private",
        "date: Mon, 21 Oct 2013 20:13:22 GMT",
        "location: https://www.example.com",
        "content-encoding: gzip",
        "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    ];
    let block = "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab \
                 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f \
                 9587 3160 65c0 03ed 4ee5 b106 3d50 07";
    assert_eq!(decoder.decode(&bytes(block)).unwrap(), fields(&third));
    assert_eq!((decoder.bytes, decoder.entries.len()), (215, 3));
}

#[test]
fn the_peer_may_resize_its_table_before_headers() {
    let mut decoder = Decoder::default();
    decoder.decode(&bytes("4001 6101 62")).unwrap();
    assert_eq!(decoder.decode(&bytes("be")).unwrap(), fields(&["a: b"]));
    // To nothing, and to 4096 again: all is forgotten.
    decoder.decode(&bytes("203f e11f")).unwrap();
    assert!(decoder.decode(&bytes("be")).is_err());
    assert_eq!(malformed("3fe2 1f"), "a table size beyond the announced one");
    assert_eq!(malformed("8220"), "a table size update between headers");
}

#[test]
fn an_entry_larger_than_the_table_empties_it() {
    let mut decoder = Decoder { most_bytes: 40, ..Decoder::default() };
    decoder.decode(&bytes("4001 6101 62")).unwrap();
    decoder.decode(&bytes("4001 6108 6262 6262 6262 6262")).unwrap();
    assert_eq!((decoder.bytes, decoder.entries.len()), (0, 0));
}

#[test]
fn malformed_blocks_are_errors() {
    assert_eq!(malformed("80"), "a reference to a header that is not in the table");
    assert_eq!(malformed("be"), "a reference to a header that is not in the table");
    assert_eq!(malformed("7e01 61"), "a reference to a header that is not in the table");
    for cut_off in ["00", "0001", "0001 61", "0001 6102 62", "ff", "ff80"] {
        assert_eq!(malformed(cut_off), "a truncated block of headers", "{cut_off}");
    }
    assert_eq!(malformed("ffff ffff ff01"), "a number that is too long");
}

/// Some bytes that stand for 4,000 each.
#[test]
fn decoded_headers_are_bounded() {
    let mut decoder = Decoder::default();
    let mut block = vec![0x40, 1, b'a', 0x7f];
    block.extend_from_slice(&bytes("a11e"));
    block.extend_from_slice(&[b'b'; 4000]);
    assert_eq!(decoder.decode(&block).unwrap().len(), 1);
    assert_eq!(decoder.decode(&[0xbe; 16]).unwrap().len(), 16);
    let much = decoder.decode(&[0xbe; 30_000]).unwrap_err();
    assert_eq!(much, Malformed("more than 64 KiB of headers"));
}

#[test]
fn encoded_headers_decode_without_a_table() {
    for length in [0, 1, 126, 127, 128, 254, 255, 256, 16_000] {
        let fields = [Field::new("a".repeat(length), ""), Field::new("b", "c".repeat(length))];
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(&encode(&fields)).unwrap(), fields);
        assert_eq!(decoder.bytes, 0);
    }
}
