//! A canary in every field that may hold a secret, of every request that has one. Which those are
//! is read from the descriptors, so that a new one is not forgotten.

use std::path::PathBuf;

use orlop_tests::*;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, MethodDescriptor};

use crate::hostile::requests::{Known, call, descriptors, map, methods};

const CANARY: &str = "canary-51f3a9-sings";

fn is_secret(descriptors: &DescriptorPool, field: &FieldDescriptor) -> bool {
    let option = descriptors.get_extension_by_name("csi.v1.csi_secret").unwrap();
    field.options().get_extension(&option).as_bool() == Some(true)
        || field.name().ends_with("secrets")
}

/// With what takes away at the end.
fn methods_with_secrets(descriptors: &DescriptorPool) -> Vec<MethodDescriptor> {
    let mut found: Vec<MethodDescriptor> = methods(descriptors)
        .filter(|method| method.input().fields().any(|field| is_secret(descriptors, &field)))
        .collect();
    let rank = |name: &str| match name {
        _ if name.starts_with("Delete") => 3,
        _ if name.contains("Unpublish") || name.contains("Unstage") => 2,
        _ if name.contains("NodePublish") || name.contains("NodeExpand") => 1,
        _ => 0,
    };
    found.sort_by_key(|method| rank(method.name()));
    found
}

fn request(
    descriptors: &DescriptorPool,
    method: &MethodDescriptor,
    known: &Known,
    secrets: &[(&str, &str)],
) -> Vec<u8> {
    let mut request = DynamicMessage::new(method.input());
    for field in method.input().fields() {
        if is_secret(descriptors, &field) {
            let value = match field.is_map() {
                true => map(secrets),
                false => prost_reflect::Value::String(secrets[0].1.to_owned()),
            };
            request.set_field(&field, value);
        } else if let Some(value) = known.value(method, &field) {
            request.set_field(&field, value);
        }
    }
    request.encode_to_vec()
}

fn contains_canary(bytes: &[u8]) -> bool {
    bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_any_request_leaks() {
    needs_root!();
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Launch::on(&pool).env("ORLOP_LOG", "trace").start().await;
    let client = daemon.client();
    let descriptors = descriptors();
    let (known, node) = Known::make(&client, "v", 64 * MIB, mount("ext4")).await;
    let watcher = ChildWatcher::on(daemon.pid());
    let methods = methods_with_secrets(&descriptors);
    let (mut done, mut refused) = (0, Vec::new());
    for method in &methods {
        // As meant, and with the value where the key should be.
        let meant = request(&descriptors, method, &known, &[("token", CANARY)]);
        match call(&client, method, meant).await {
            Ok(reply) => {
                assert!(!contains_canary(&reply), "{}", method.full_name());
                done += 1;
            }
            Err(status) => {
                assert!(!contains_canary(status.message().as_bytes()), "{status}");
                refused.push(format!("{}: {status}", method.full_name()));
            }
        }
        let misplaced = format!("{CANARY} is no key");
        let misplaced = request(&descriptors, method, &known, &[(&misplaced, "x")]);
        let status = expect_code(call(&client, method, misplaced).await, Code::InvalidArgument);
        assert!(!contains_canary(status.message().as_bytes()), "{status}");
    }
    report(&format!("{} requests have secrets; {done} of them were done", methods.len()));
    assert!(done * 3 > methods.len() * 2, "most are done: {refused:#?}");

    let run_dir = pool.scratch().join("run");
    let found = files_that_hold(&[pool.path.as_path(), run_dir.as_path()], CANARY);
    assert_eq!(found, [] as [PathBuf; 0]);
    for line in watcher.seen() {
        assert!(!line.contains(CANARY), "{line}");
    }
    node.unpublish().await.unwrap();
    node.unstage().await.unwrap();
    daemon.terminate();
    let log = daemon.log();
    assert!(log.contains("TRACE"), "the most talkative log");
    let telling: Vec<_> = log.lines().filter(|line| line.contains(CANARY)).collect();
    assert_eq!(telling, [""; 0]);
}
