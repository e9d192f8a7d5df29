//! ControllerUnpublishVolume (CU).

use tonic::Code;

use crate::capability::in_mode;
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteVolume, ListVolumesPublishedNodes, PublishUnpublishVolume,
};
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{
    ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest, Volume,
};

pub(super) const SECTION: Section = Section {
    title: "ControllerUnpublishVolume",
    service: Service::Controller,
    needs: &[
        Need::Controller(PublishUnpublishVolume),
        Need::Controller(CreateDeleteVolume),
        Need::NodeService,
    ],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "controller-unpublish-twice",
        "unpublishes a volume twice, and one that was never published",
        &["CU-01", "CU-02"],
        run!(twice),
    ),
    check(
        "controller-unpublish-from-node",
        "unpublishes a volume from its node and looks where it is published",
        &["CU-03"],
        run!(from_node),
    )
    .needs(&[Need::Controller(ListVolumesPublishedNodes)]),
    check(
        "controller-unpublish-from-one-of-two",
        "unpublishes a volume from one of two nodes, and the other one keeps it",
        &["CU-03"],
        run!(from_one_of_two),
    )
    .needs(&[Need::Controller(ListVolumesPublishedNodes), Need::OtherNode]),
    check(
        "controller-unpublish-from-all",
        "leaves out the node, and the volume is published nowhere",
        &["CU-04"],
        run!(from_all),
    )
    .needs(&[Need::Controller(ListVolumesPublishedNodes)]),
    check(
        "controller-unpublish-from-both",
        "leaves out the node, and the volume is gone from two nodes",
        &["CU-04"],
        run!(from_both),
    )
    .needs(&[Need::Controller(ListVolumesPublishedNodes), Need::OtherNode]),
    check("controller-unpublish-without-id", "leaves out the id", &["CU-05"], run!(without_id)),
    check(
        "controller-unpublish-unknown",
        "unpublishes volumes that do not exist, and from a node that does not exist",
        &["CU-06"],
        run!(unknown),
    ),
    check(
        "controller-unpublish-frees-volume",
        "unpublishes a volume from one node and publishes it to another",
        &["CU-10"],
        run!(frees_volume),
    )
    .needs(&[Need::OtherNode]),
    check(
        "controller-unpublish-without-storage",
        "unpublishes a volume while the storage is away",
        &["CU-11"],
        run!(without_storage),
    )
    .needs(&[Need::Faults, Need::Controller(ListVolumesPublishedNodes)])
    .alone(),
];

const UNSEEN: &[(&str, &str)] = &[
    (
        "CU-07",
        "a doubt of the backend whether a lost volume is still published cannot be made here",
    ),
    ("CU-08", "a doubt of the backend whether a lost node still has a volume cannot be made here"),
    ("CU-09", "which machine a plugin takes itself to be on does not show in its answers"),
];

async fn published(t: &CheckContext) -> Outcome<Volume> {
    let capability = t.capability();
    let volume = t.volume_for(capability.clone()).await?;
    t.attached(&volume, &capability).await?;
    Ok(volume)
}

async fn is_published_to(t: &CheckContext, volume: &Volume, nodes: &[&str]) -> Outcome {
    let known = t.known(volume).await?.published_node_ids;
    let same = known.len() == nodes.len() && nodes.iter().all(|it| known.iter().any(|id| id == it));
    t.expect(same, format!("the volume to be published to these nodes: {nodes:?}"))
}

async fn twice(t: &CheckContext) -> Outcome {
    let never = t.volume().await?;
    t.ok(t.detach(&never)).await?;
    let volume = published(t).await?;
    t.ok(t.detach(&volume)).await?;
    t.ok(t.detach(&volume)).await?;
    Ok(())
}

async fn from_node(t: &CheckContext) -> Outcome {
    let volume = published(t).await?;
    is_published_to(t, &volume, &[&t.node_id()]).await?;
    let node_id = "no-such-node-4d1f5a".to_owned();
    // OK or NOT_FOUND; in any case it is not this node that is meant.
    let _ = t.settled(ControllerUnpublishVolumeRequest { node_id, ..t.detach(&volume) }).await?;
    is_published_to(t, &volume, &[&t.node_id()]).await?;
    t.ok(t.detach(&volume)).await?;
    is_published_to(t, &volume, &[]).await
}

async fn published_to_two(t: &CheckContext) -> Outcome<Volume> {
    let capability = in_mode(&t.capability(), Mode::MultiNodeMultiWriter);
    let Ok(reply) = t.settled(t.new_volume_for(capability.clone())).await? else {
        return t.not_applicable("no volume is made for many nodes");
    };
    let volume = t.some(reply.volume, "a volume in the reply")?;
    let request = t.attach(&volume, &capability);
    t.ok(request.clone()).await?;
    t.ok(ControllerPublishVolumeRequest { node_id: t.other_node(), ..request }).await?;
    Ok(volume)
}

async fn from_one_of_two(t: &CheckContext) -> Outcome {
    let volume = published_to_two(t).await?;
    t.ok(t.detach(&volume)).await?;
    is_published_to(t, &volume, &[&t.other_node()]).await
}

fn detach_from_all(t: &CheckContext, volume: &Volume) -> ControllerUnpublishVolumeRequest {
    ControllerUnpublishVolumeRequest { node_id: String::new(), ..t.detach(volume) }
}

async fn from_all(t: &CheckContext) -> Outcome {
    let volume = published(t).await?;
    t.ok(detach_from_all(t, &volume)).await?;
    is_published_to(t, &volume, &[]).await
}

async fn from_both(t: &CheckContext) -> Outcome {
    let volume = published_to_two(t).await?;
    t.ok(detach_from_all(t, &volume)).await?;
    is_published_to(t, &volume, &[]).await
}

async fn without_id(t: &CheckContext) -> Outcome {
    let volume = published(t).await?;
    let nameless =
        ControllerUnpublishVolumeRequest { volume_id: String::new(), ..t.detach(&volume) };
    t.refused(nameless, Code::InvalidArgument).await?;
    Ok(())
}

async fn unknown(t: &CheckContext) -> Outcome {
    let gone = t.deleted_volume().await?;
    for volume_id in [gone, t.unknown_id()] {
        let volume = Volume { volume_id, ..Volume::default() };
        t.ok(t.detach(&volume)).await?;
    }
    let node_id = "no-such-node-4d1f5a".to_owned();
    let volume = t.volume().await?;
    t.ok(ControllerUnpublishVolumeRequest { node_id, ..t.detach(&volume) }).await?;
    Ok(())
}

async fn frees_volume(t: &CheckContext) -> Outcome {
    let volume = published(t).await?;
    t.ok(t.detach(&volume)).await?;
    let request = t.attach(&volume, &t.capability());
    t.ok(ControllerPublishVolumeRequest { node_id: t.other_node(), ..request }).await?;
    Ok(())
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let volume = published(t).await?;
    let answer = t.during_outage(t.ask(t.detach(&volume))).await?;
    if answer.is_ok() {
        is_published_to(t, &volume, &[]).await?;
    }
    t.ok(t.detach(&volume)).await?;
    is_published_to(t, &volume, &[]).await
}
