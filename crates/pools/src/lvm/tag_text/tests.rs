use proptest::prelude::*;
use serde_json::json;

use super::*;

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[test]
fn every_kind_of_value_has_its_form() {
    let fields = object(json!({
        "name": "db 1", "bytes": 1024, "small": -1, "on": true, "none": null,
        "flags": ["ro", "a=b&c"], "empty": {}, "list": [], "in": {"a.b": {"c/d": [[], {"x": "é"}]}}
    }));
    let text = write(&fields);
    assert_eq!(
        text,
        "bytes:1024&empty!&flags/0=ro&flags/1=a=b#26c&in.a#2Eb.c#2Fd/0!!&in.a#2Eb.c#2Fd/1.x=#C3#A9&list!!&\
         name=db#201&none:null&on:true&small:-1"
    );
    assert_eq!(read(&text).unwrap(), fields);
    assert_eq!(read("").unwrap(), Map::new());
}

#[test]
fn what_is_no_such_text_is_refused() {
    let deep = format!("a{}:1", ".a".repeat(DEEPEST));
    for text in [
        "&",
        "a",
        "a:",
        "a:x",
        "a:\"x\"",
        "a:{}",
        "a!!!",
        "a=#",
        "a=#2",
        "a=#zz",
        "a=#FF",
        "a=#é1",
        "a:1&a:2",
        "a:1&a.b:1",
        "a.b:1&a/0:1",
        "a/0:1&a.b:1",
        "a/1:1",
        "a/0:1&a/0:2",
        "a/x:1",
        &deep,
    ] {
        assert!(read(text).is_err(), "{text}: {:?}", read(text));
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            fields_of(inner).prop_map(Value::from),
        ]
    })
}

fn fields_of(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map(any::<String>(), value, 0..6)
        .prop_map(|map| map.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_object_survives_the_way_through_tags(fields in fields_of(values())) {
        let text = write(&fields);
        prop_assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_+.-/=!:&#".contains(&b)), "{}", text);
        prop_assert_eq!(read(&text), Ok(fields));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[a-c01=:!&#./]{0,24}") {
        if let Ok(fields) = read(&text) {
            prop_assert_eq!(read(&write(&fields)), Ok(fields));
        }
    }
}
