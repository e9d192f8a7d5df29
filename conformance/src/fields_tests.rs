use super::{Field, GARBAGE, Value, contents, delimited_field, fields, varint_field};

#[test]
fn written_fields_are_read_back() {
    let message = [varint_field(3, 300), delimited_field(2, b"text")].concat();
    let expected = vec![
        Field { number: 3, value: Value::Varint(300) },
        Field { number: 2, value: Value::Bytes(b"text".to_vec()) },
    ];
    assert_eq!(fields(&message), Some(expected));
    assert_eq!(contents(&message, 2), Some(vec![b"text".to_vec()]));
    assert_eq!(contents(&message, 3), None, "a number has no content");
}

#[test]
fn malformed_message_is_rejected() {
    assert_eq!(fields(&GARBAGE), None);
    assert_eq!(fields(&[0x0a, 5, b'x']), None, "shorter than it says");
    assert_eq!(fields(&[]), Some(Vec::new()));
}
