//! Requests that were damaged after they were made: each gets an answer, the daemon lives, and what
//! they do not name stays as it is.
//!
//! `ORLOP_TEST_MUTATIONS` says how many there are (1500), `ORLOP_TEST_MUTATION_SEED` repeats them.

use std::time::Duration;

use orlop_tests::*;
use prost::Message;
use prost_reflect::{DynamicMessage, MethodDescriptor};

use crate::hostile::mutation::mutate;
use crate::hostile::requests::{Known, call, descriptors, methods};

const MUTATIONS: u64 = 1500;
/// Reached only by a call that is never answered.
const TIMEOUT: Duration = Duration::from_secs(120);
const REFUSALS: [Code; 7] = [
    Code::InvalidArgument,
    Code::NotFound,
    Code::AlreadyExists,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::OutOfRange,
    Code::Unimplemented,
];
const DATA: u64 = 4 * MIB;

/// Volumes that no request names: one is written to all the time, one is not.
struct Kept {
    client: Client,
    mounted: OnNode,
    raw: OnNode,
    workload: Workload,
    listed: (Vec<v1::list_volumes_response::Entry>, Vec<v1::Snapshot>),
}

impl Kept {
    async fn make(client: &Client) -> Self {
        let volume = client.create("mounted").size(64 * MIB).fs("ext4").done().await;
        let mounted = client.on_node(&volume, mount("ext4"));
        let volume = client.create("raw").size(16 * MIB).block().done().await;
        let raw = client.on_node(&volume, block());
        mounted.up().await;
        raw.up().await;
        Pattern::new(1).write(&raw.target, DATA);
        client.snapshot("kept", &raw.id).await.unwrap();
        let workload = Workload::writing(&mounted.data_path());
        let listed = list(client).await;
        Self { client: client.clone(), mounted, raw, workload, listed }
    }

    /// The requests may have made others.
    async fn check(&self) {
        let now = list(&self.client).await;
        for volume in &self.listed.0 {
            assert!(now.0.contains(volume), "{volume:?} is not among {:?}", now.0);
        }
        for snapshot in &self.listed.1 {
            assert!(now.1.contains(snapshot), "{snapshot:?} is not among {:?}", now.1);
        }
        self.workload.goes_on().await;
        Pattern::new(1).check(&self.raw.target, DATA);
    }

    async fn take_down(self) {
        self.workload.finish();
        self.mounted.down().await;
        self.raw.down().await;
    }
}

async fn list(client: &Client) -> (Vec<v1::list_volumes_response::Entry>, Vec<v1::Snapshot>) {
    (client.list_volumes().await.unwrap(), client.list_snapshots().await.unwrap())
}

fn request(method: &MethodDescriptor, known: &Known) -> Vec<u8> {
    let mut request = DynamicMessage::new(method.input());
    for field in method.input().fields() {
        if let Some(value) = known.value(method, &field) {
            request.set_field(&field, value);
        }
    }
    request.encode_to_vec()
}

/// If not, the daemon says whose fault it is, in a few words.
fn is_done(method: &MethodDescriptor, answer: Answer<Vec<u8>>) -> bool {
    let Err(status) = answer else { return true };
    let (name, text) = (method.full_name(), status.message());
    assert!(!is_connection_lost(&status), "{name}: {status}");
    // Said of what is no message, before anyone looks into it.
    let is_no_message = status.code() == Code::Internal && text.starts_with("failed to decode");
    assert!(is_no_message || REFUSALS.contains(&status.code()), "{name}: {status}");
    assert!(!text.is_empty() && text.len() <= 1024, "{name}: {} bytes of text", text.len());
    assert!(!text.contains(char::is_control), "{name}: {text:?}");
    false
}

/// What a damaged request of a node made, at a path that was damaged perhaps.
struct Made {
    id: String,
    staging: Option<String>,
    target: Option<String>,
}

fn made_by(method: &MethodDescriptor, request: &[u8]) -> Option<Made> {
    if !["NodeStageVolume", "NodePublishVolume"].contains(&method.name()) {
        return None;
    }
    let request = DynamicMessage::decode(method.input(), request).unwrap();
    let text = |name: &str| {
        let value = request.get_field_by_name(name)?;
        value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let target = text("target_path");
    Some(Made { id: text("volume_id")?, staging: text("staging_target_path"), target })
}

/// A volume and all that belongs to it, for the requests of one method to name; in use for those of
/// nodes.
struct Decoy {
    known: Known,
    node: OnNode,
    made: Vec<Made>,
}

impl Decoy {
    async fn make(client: &Client, method: &MethodDescriptor) -> Self {
        let (known, node) = Known::make(client, method.full_name(), MIB, block()).await;
        if method.parent_service().name().contains("Node") {
            node.up().await;
        }
        Self { known, node, made: Vec::new() }
    }

    async fn take_down(self, client: &Client) {
        for made in &self.made {
            if let Some(target) = &made.target {
                client.node_unpublish(&made.id, target.as_ref()).await.unwrap();
            }
        }
        self.node.unpublish().await.unwrap();
        for made in &self.made {
            if let Some(staging) = &made.staging {
                client.node_unstage(&made.id, staging.as_ref()).await.unwrap();
            }
        }
        self.node.unstage().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_request_affects_only_what_it_names() {
    needs_root!();
    let wanted = variable("ORLOP_TEST_MUTATIONS").unwrap_or(MUTATIONS);
    let seed = variable("ORLOP_TEST_MUTATION_SEED").unwrap_or_else(random_seed);
    let pool = TestPool::new(PoolFs::Directory, 0);
    let mut daemon = Launch::on(&pool).env("ORLOP_LOG", "info").start().await;
    let (client, pid) = (daemon.client(), daemon.pid());
    let kept = Kept::make(&client).await;
    let descriptors = descriptors();
    let methods: Vec<_> = methods(&descriptors).collect();
    let each = wanted.div_ceil(u64::try_from(methods.len()).unwrap());
    report(&format!("damaged requests: {each} of each of {} calls, seed {seed}", methods.len()));
    let mut rng = Rng::with_seed(seed);
    let (mut done, mut refused) = (0, 0);
    for method in &methods {
        let mut decoy = Decoy::make(&client, method).await;
        let right = request(method, &decoy.known);
        for _ in 0..each {
            let damaged = mutate(&right, &mut rng);
            let answer = tokio::time::timeout(TIMEOUT, call(&client, method, damaged.clone()));
            let answer = answer.await.unwrap_or_else(|_| {
                panic!("{} is not answered: {damaged:02x?}", method.full_name())
            });
            if is_done(method, answer) {
                done += 1;
                decoy.made.extend(made_by(method, &damaged));
            } else {
                refused += 1;
            }
        }
        decoy.take_down(&client).await;
    }
    report(&format!("damaged requests: {done} done, {refused} refused"));
    assert!(done > 0 && refused > done, "{done} done, {refused} refused");
    kept.check().await;
    assert_eq!(daemon.pid(), pid);
    kept.take_down().await;
    daemon.terminate();
    let log = daemon.log();
    assert!(!log.contains("panic"), "{log}");
}
