//! Calls that overlap, that are given up, and that come again.

use std::collections::BTreeSet;
use std::time::Duration;

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{Answer, CheckContext};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type as Rpc;
use crate::wire::csi::v1::{CreateVolumeRequest, CreateVolumeResponse};

pub(in crate::checks) const SECTION: Section = Section {
    title: "General rules: overlapping calls",
    service: Service::Protocol,
    needs: &[Need::Controller(Rpc::CreateDeleteVolume)],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "equal-calls-at-once",
        "sends the same CreateVolume four times at once",
        &["GEN-23"],
        run!(equal_calls_at_once),
    ),
    check(
        "equal-calls-make-one-volume",
        "sends the same CreateVolume four times at once and counts the volumes",
        &["GEN-24"],
        run!(equal_calls_make_one_volume),
    )
    .needs(&[Need::Controller(Rpc::ListVolumes)])
    .alone(),
    check(
        "calls-carry-on",
        "gives up CreateVolume early and asks again",
        &["GEN-25"],
        run!(calls_carry_on),
    ),
    check(
        "hanging-up-undoes-nothing",
        "gives up a second CreateVolume of a volume that is there",
        &["GEN-26"],
        run!(hanging_up_undoes_nothing),
    ),
    check(
        "the-reverse-call-wins",
        "attaches and detaches a volume at once",
        &["GEN-27"],
        run!(the_reverse_call_wins),
    )
    .needs(&[Need::Controller(Rpc::PublishUnpublishVolume), Need::NodeService]),
];

/// Too little for an answer, in most cases; either is fine.
const SHORT: [Duration; 3] =
    [Duration::from_micros(300), Duration::from_millis(2), Duration::from_millis(20)];

async fn at_once(
    t: &CheckContext,
    request: &CreateVolumeRequest,
) -> Outcome<[Answer<CreateVolumeResponse>; 4]> {
    let ask = || t.ask(request.clone());
    let (first, second, third, fourth) = tokio::join!(ask(), ask(), ask(), ask());
    Ok([first?, second?, third?, fourth?])
}

async fn equal_calls_at_once(t: &CheckContext) -> Outcome {
    let request = t.new_volume();
    let mut ids = BTreeSet::new();
    for answer in at_once(t, &request).await? {
        match answer {
            Ok(reply) => {
                ids.insert(t.some(reply.volume, "a volume in the reply")?.volume_id);
            }
            Err(status) => t.expect(status.code() == Code::Aborted, "OK or ABORTED")?,
        }
    }
    ids.insert(t.create(request).await?.volume_id);
    t.expect(ids.len() == 1, "the same volume for all of them")
}

async fn equal_calls_make_one_volume(t: &CheckContext) -> Outcome {
    let before = t.listed(0).await?.len();
    let request = t.new_volume();
    let _ = at_once(t, &request).await?;
    let volume = t.create(request).await?;
    let during = t.listed(0).await?.len();
    t.expect(during == before + 1, "one volume more than before")?;
    t.ok(t.delete(&volume)).await?;
    let after = t.listed(0).await?.len();
    t.expect(after == before, "as many volumes as before, once it is deleted")
}

async fn calls_carry_on(t: &CheckContext) -> Outcome {
    for short in SHORT {
        let request = t.new_volume();
        t.abandoned(request.clone(), short).await?;
        let first = t.create(request.clone()).await?;
        let second = t.create(request).await?;
        t.expect(first.volume_id == second.volume_id, "one volume for one name")?;
        t.ok(t.validate(&first)).await?;
    }
    Ok(())
}

async fn hanging_up_undoes_nothing(t: &CheckContext) -> Outcome {
    let request = t.new_volume();
    let volume = t.create(request.clone()).await?;
    for short in SHORT {
        t.abandoned(request.clone(), short).await?;
        let reply = t.ok(t.validate(&volume)).await?;
        t.expect(reply.confirmed.is_some(), "the volume to be there as before")?;
    }
    let again = t.create(request).await?;
    t.expect(again.volume_id == volume.volume_id, "the same volume as before")
}

async fn the_reverse_call_wins(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let capability = t.capability();
    let detach = || t.detach(&volume);
    let (attached, detached) = tokio::join!(t.ask(t.attach(&volume, &capability)), t.ask(detach()));
    for code in [attached?.err(), detached?.err()].into_iter().flatten().map(|it| it.code()) {
        t.expect(code == Code::Aborted, "OK or ABORTED")?;
    }
    t.ok(detach()).await?;
    let entry = t.listed_as(&volume).await?;
    let nodes = entry.and_then(|it| it.status).map(|it| it.published_node_ids);
    let is_free = nodes.unwrap_or_default().iter().all(String::is_empty);
    t.expect(is_free, "a volume that is on no node")?;
    // A volume that is still attached is not deleted.
    t.ok(t.delete(&volume)).await?;
    Ok(())
}
