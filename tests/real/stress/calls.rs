//! Random valid calls, each with the answers that it may get.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_tests::*;
use tonic::Status;

use crate::stress::history::{History, Switch};
use crate::stress::objects::{Origin, Subject, Subjects};
use crate::stress::tally::Tally;

const NODE: &str = "test-node";
/// Far more than any call takes; reached only by one that hangs.
const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) struct Caller {
    pub(crate) client: Client,
    pub(crate) subjects: Arc<Subjects>,
    pub(crate) history: Arc<History>,
    pub(crate) rng: Rng,
    pub(crate) tally: Tally,
}

/// A kind of call, how often it is chosen, and what it may be answered besides OK and ABORTED.
/// Every state of a volume is possible at any time, but no other reason to refuse is.
struct Kind {
    name: &'static str,
    weight: u64,
    refusals: &'static [Code],
}

const fn kind(name: &'static str, weight: u64, refusals: &'static [Code]) -> Kind {
    Kind { name, weight, refusals }
}

const GONE: &[Code] = &[Code::NotFound];
const IN_USE: &[Code] = &[Code::FailedPrecondition];
const NEVER: &[Code] = &[];

const KINDS: [Kind; 21] = [
    // CV-28: the source of a copy may be gone.
    kind("CreateVolume", 14, GONE),
    // DV-08
    kind("DeleteVolume", 12, IN_USE),
    // CP-12, CP-14: `readonly` may differ.
    kind("ControllerPublish", 4, &[Code::NotFound, Code::AlreadyExists]),
    kind("ControllerUnpublish", 8, NEVER),
    kind("Validate", 2, GONE),
    kind("ListVolumes", 2, NEVER),
    kind("GetVolume", 3, GONE),
    kind("GetCapacity", 1, NEVER),
    kind("ModifyVolume", 3, GONE),
    // The volume was deleted and created again since the snapshot was taken.
    kind("CreateSnapshot", 6, &[Code::NotFound, Code::AlreadyExists]),
    kind("DeleteSnapshot", 4, NEVER),
    kind("ListSnapshots", 2, NEVER),
    kind("GetSnapshot", 2, GONE),
    kind("ExpandVolume", 3, GONE),
    kind("NodeStage", 12, GONE),
    // Still published.
    kind("NodeUnstage", 10, IN_USE),
    // Not staged, or another target in a mode that has one (NP-33, NP-38); other `readonly`
    // at the same one (NP-16).
    kind("NodePublish", 12, &[Code::NotFound, Code::FailedPrecondition, Code::AlreadyExists]),
    kind("NodeUnpublish", 14, NEVER),
    // ST-05: not there.
    kind("NodeStats", 4, GONE),
    // NE-04, and NE-15 for a mounted ext4.
    kind("NodeExpand", 3, &[Code::NotFound, Code::FailedPrecondition]),
    kind("Probe", 1, NEVER),
];

impl Caller {
    /// Ends early with the first answer that is not allowed.
    pub(crate) async fn call_until(mut self, deadline: Instant) -> (Tally, Option<String>) {
        while Instant::now() < deadline {
            let kind = self.choose();
            let Ok(answer) = tokio::time::timeout(TIMEOUT, self.call(kind.name)).await else {
                return (self.tally, Some(format!("{} was not answered", kind.name)));
            };
            let code = answer.as_ref().map_or_else(Status::code, |()| Code::Ok);
            self.tally.count(kind.name, code);
            let Err(status) = answer else { continue };
            let allowed = code == Code::Aborted || kind.refusals.contains(&code);
            if !allowed || status.message().is_empty() {
                return (self.tally, Some(format!("{} answered {status}", kind.name)));
            }
        }
        (self.tally, None)
    }

    fn choose(&mut self) -> &'static Kind {
        let total: u64 = KINDS.iter().map(|kind| kind.weight).sum();
        let mut chosen = self.rng.u64(..total);
        for kind in &KINDS {
            match chosen.checked_sub(kind.weight) {
                Some(rest) => chosen = rest,
                None => return kind,
            }
        }
        unreachable!("the weights add up")
    }

    async fn call(&mut self, name: &str) -> Answer<()> {
        let subjects = Arc::clone(&self.subjects);
        let number = self.volume_number();
        let subject = &subjects.volumes[number];
        let begun = self.history.now();
        match name {
            "CreateVolume" => self.create(&subjects, number, begun).await,
            "DeleteVolume" => {
                self.client.delete(&subject.id).await?;
                self.turned(Switch::Volume(number), false, begun)
            }
            "ControllerPublish" => {
                let (capability, readonly) = (subject.capability.clone(), self.rng.u64(..4) == 0);
                self.client.controller_publish(&subject.id, NODE, capability, readonly).await?;
                self.turned(Switch::Attached(number), true, begun)
            }
            "ControllerUnpublish" => {
                let node = if self.rng.u64(..4) == 0 { "" } else { NODE };
                self.client.controller_unpublish(&subject.id, node).await?;
                self.turned(Switch::Attached(number), false, begun)
            }
            "ModifyVolume" => self.modify(&subject.id).await,
            "ExpandVolume" => self.expand(subject, number, begun).await,
            "CreateSnapshot" | "DeleteSnapshot" | "GetSnapshot" => {
                self.snapshot(&subjects, name, begun).await
            }
            "NodeStage" | "NodeUnstage" | "NodePublish" | "NodeUnpublish" | "NodeStats"
            | "NodeExpand" => self.on_node(subject, number, name, begun).await,
            other => self.look(subject, other).await,
        }
    }

    fn volume_number(&mut self) -> usize {
        self.rng.usize(..self.subjects.volumes.len())
    }

    fn turned(&self, switch: Switch, on: bool, begun: u64) -> Answer<()> {
        self.history.turned(switch, on, begun);
        Ok(())
    }

    async fn create(&mut self, subjects: &Subjects, number: usize, begun: u64) -> Answer<()> {
        let subject = &subjects.volumes[number];
        let volume = match subjects.create(&self.client, subject).send().await {
            // Nothing is missing that was never asked for.
            Err(status) if subject.origin == Origin::Nothing => {
                assert_eq!(status.code(), Code::Aborted, "CreateVolume answered {status}");
                return Err(status);
            }
            answer => answer?,
        };
        assert_eq!(volume.volume_id, subject.id, "one name, one volume");
        assert!(volume.capacity_bytes >= int(subject.size));
        self.turned(Switch::Volume(number), true, begun)
    }

    async fn modify(&mut self, id: &str) -> Answer<()> {
        let key = *self
            .rng
            .choice(&["readIops", "writeIops", "readBytesPerSecond"])
            .expect("a non-empty list");
        let rate = *self.rng.choice(&["max", "0", "100000", "4000000"]).expect("a non-empty list");
        self.client.modify(id, &[(key, rate)]).await
    }

    async fn expand(&mut self, subject: &Subject, number: usize, begun: u64) -> Answer<()> {
        let bytes = subject.size.max(32 * MIB) + self.rng.u64(..32) * MIB;
        let answer = self.client.expand(&subject.id, bytes).await?;
        assert!(answer.capacity_bytes >= int(bytes), "CE-06");
        self.history.grew(number, bytes, begun);
        Ok(())
    }

    async fn snapshot(&mut self, subjects: &Subjects, name: &str, begun: u64) -> Answer<()> {
        let number = self.rng.usize(..3);
        let snapshot = &subjects.snapshots[number];
        match name {
            "CreateSnapshot" => {
                let source = &subjects.volumes[snapshot.source].id;
                let made = self.client.snapshot(&snapshot.name, source).await?;
                assert_eq!(made.snapshot_id, snapshot.id, "one name, one snapshot");
                assert!(made.ready_to_use);
                self.turned(Switch::Snapshot(number), true, begun)
            }
            "DeleteSnapshot" => {
                self.client.delete_snapshot(&snapshot.id).await?;
                self.turned(Switch::Snapshot(number), false, begun)
            }
            _ => {
                let snapshot_id = snapshot.id.clone();
                let request = v1::GetSnapshotRequest { snapshot_id, ..Default::default() };
                self.client.controller().get_snapshot(request).await.map(drop)
            }
        }
    }

    async fn on_node(
        &mut self,
        subject: &Subject,
        number: usize,
        name: &str,
        begun: u64,
    ) -> Answer<()> {
        let second = usize::from(self.rng.u64(..3) == 0);
        let target = &subject.targets[second];
        match name {
            "NodeStage" => {
                self.client.node_stage(stage_request(subject)).await?;
                self.turned(Switch::Staged(number), true, begun)
            }
            "NodeUnstage" => {
                self.client.node_unstage(&subject.id, &subject.staging).await?;
                self.turned(Switch::Staged(number), false, begun)
            }
            "NodePublish" => {
                let readonly = self.rng.u64(..4) == 0;
                self.client.node_publish(publish_request(subject, second, readonly)).await?;
                self.turned(Switch::Published(number, second), true, begun)
            }
            "NodeUnpublish" => {
                self.client.node_unpublish(&subject.id, target).await?;
                self.turned(Switch::Published(number, second), false, begun)
            }
            "NodeStats" => {
                let path = if self.rng.u64(..2) == 0 { target } else { &subject.staging };
                self.client.node_stats(&subject.id, path).await.map(drop)
            }
            _ => self.node_expand(subject).await,
        }
    }

    /// To whatever the controller granted.
    async fn node_expand(&self, subject: &Subject) -> Answer<()> {
        let request = v1::NodeExpandVolumeRequest {
            volume_id: subject.id.clone(),
            volume_path: subject.staging.to_str().expect("a path").to_owned(),
            ..v1::NodeExpandVolumeRequest::default()
        };
        self.client.node().node_expand_volume(request).await.map(drop)
    }

    async fn look(&mut self, subject: &Subject, name: &str) -> Answer<()> {
        match name {
            "Validate" => {
                let request = v1::ValidateVolumeCapabilitiesRequest {
                    volume_id: subject.id.clone(),
                    volume_capabilities: vec![subject.capability.clone()],
                    ..v1::ValidateVolumeCapabilitiesRequest::default()
                };
                let answer = self.client.controller().validate_volume_capabilities(request).await?;
                assert!(answer.into_inner().confirmed.is_some());
                Ok(())
            }
            "ListVolumes" => self.list().await,
            "ListSnapshots" => self.client.list_snapshots().await.map(drop),
            "GetVolume" => self.client.get_volume(&subject.id).await.map(drop),
            "GetCapacity" => self.client.capacity().await.map(drop),
            "Probe" => self.client.probe().await.map(|ready| assert!(ready)),
            other => unreachable!("{other} is no call"),
        }
    }

    /// LV-16: volumes come and go between the pages, and that is no error.
    async fn list(&mut self) -> Answer<()> {
        let mut starting_token = String::new();
        let mut seen = Vec::new();
        loop {
            let max_entries = i32::try_from(self.rng.u64(..4)).expect("a small number");
            let request = v1::ListVolumesRequest { max_entries, starting_token };
            let page = self.client.controller().list_volumes(request).await?.into_inner();
            seen.extend(page.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id));
            starting_token = page.next_token;
            if starting_token.is_empty() {
                break;
            }
        }
        let listed = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), listed, "a volume is listed twice");
        Ok(())
    }
}

pub(crate) fn stage_request(subject: &Subject) -> v1::NodeStageVolumeRequest {
    v1::NodeStageVolumeRequest {
        volume_id: subject.id.clone(),
        staging_target_path: subject.staging.to_str().expect("a path").to_owned(),
        volume_capability: Some(subject.capability.clone()),
        ..v1::NodeStageVolumeRequest::default()
    }
}

fn publish_request(
    subject: &Subject,
    target: usize,
    readonly: bool,
) -> v1::NodePublishVolumeRequest {
    v1::NodePublishVolumeRequest {
        volume_id: subject.id.clone(),
        staging_target_path: subject.staging.to_str().expect("a path").to_owned(),
        target_path: subject.targets[target].to_str().expect("a path").to_owned(),
        volume_capability: Some(subject.capability.clone()),
        readonly,
        ..v1::NodePublishVolumeRequest::default()
    }
}
