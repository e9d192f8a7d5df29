//! ListVolumes (LV).

use std::collections::BTreeSet;

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteVolume, ListVolumes, ListVolumesPublishedNodes, PublishUnpublishVolume,
    VolumeCondition,
};
use crate::wire::csi::v1::list_volumes_response::{Entry, VolumeStatus};
use crate::wire::csi::v1::{DeleteVolumeRequest, ListVolumesRequest, ListVolumesResponse, Volume};

pub(super) const SECTION: Section = Section {
    title: "ListVolumes",
    service: Service::Controller,
    needs: &[Need::Controller(ListVolumes), Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "list-volumes-all",
        "makes volumes, deletes one, and looks for them in the list",
        &["LV-01", "LV-02", "LV-05"],
        run!(all),
    ),
    check(
        "list-volumes-page-size",
        "asks for pages of 1, of 2 and of all but one, and counts",
        &["LV-03"],
        run!(page_size),
    )
    .alone(),
    check(
        "list-volumes-has-more",
        "asks for pages of 1, of 2 and of all but one, and looks for a token",
        &["LV-04"],
        run!(has_more),
    )
    .alone(),
    check("list-volumes-negative", "asks for -1 entries", &["LV-06"], run!(negative)),
    check(
        "list-volumes-from-the-beginning",
        "starts a second list while another one is half read",
        &["LV-07"],
        run!(from_the_beginning),
    )
    .alone(),
    check(
        "list-volumes-in-pages",
        "compares the pages of a list with the whole of it",
        &["LV-08", "LV-10"],
        run!(in_pages),
    )
    .alone(),
    check(
        "list-volumes-last-page",
        "asks for as many entries as there are, and for any number",
        &["LV-10"],
        run!(last_page),
    )
    .alone(),
    check(
        "list-volumes-garbage-token",
        "goes on from tokens that were never handed out: a word, and numbers out of all range",
        &["LV-09"],
        run!(garbage_token),
    ),
    check(
        "list-volumes-entries",
        "looks at the volume of each entry",
        &["LV-11"],
        run!(entries_have_volumes),
    ),
    check(
        "list-volumes-status",
        "looks for the status of each entry",
        &["LV-12"],
        run!(entries_have_status),
    )
    .needs(&[Need::Controller(ListVolumesPublishedNodes)]),
    check(
        "list-volumes-published-nodes",
        "looks where a volume is published before, during and after",
        &["LV-13"],
        run!(published_nodes),
    )
    .needs(&[
        Need::Controller(ListVolumesPublishedNodes),
        Need::Controller(PublishUnpublishVolume),
        Need::NodeService,
    ]),
    check(
        "list-volumes-condition",
        "looks for the condition of each entry",
        &["LV-15"],
        run!(entries_have_condition),
    )
    .needs(&[Need::Controller(VolumeCondition)]),
    check(
        "list-volumes-while-they-go",
        "deletes the volumes before and after a token and goes on from it",
        &["LV-16", "LV-17"],
        run!(while_they_go),
    )
    .alone(),
    check(
        "list-volumes-without-storage",
        "lists volumes while the storage is away",
        &["LV-18"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const UNSEEN: &[(&str, &str)] =
    &[("LV-14", "a permission: nodes that this plugin did not publish to may be named or not")];

const VOLUMES: usize = 4;

async fn some_volumes(t: &CheckContext) -> Outcome<Vec<Volume>> {
    let mut volumes = Vec::new();
    for _ in 0..VOLUMES {
        volumes.push(t.volume().await?);
    }
    Ok(volumes)
}

fn ids(entries: &[Entry]) -> Vec<String> {
    let volumes = entries.iter().filter_map(|entry| entry.volume.as_ref());
    volumes.map(|volume| volume.volume_id.clone()).collect()
}

fn page(max_entries: i32, starting_token: &str) -> ListVolumesRequest {
    ListVolumesRequest { max_entries, starting_token: starting_token.to_owned() }
}

async fn all(t: &CheckContext) -> Outcome {
    let mut volumes = some_volumes(t).await?;
    let gone = volumes.pop();
    let gone = t.some(gone, "a volume to delete")?;
    t.ok(t.delete(&gone)).await?;
    let listed = ids(&t.listed(0).await?);
    let all_there = volumes.iter().all(|volume| listed.contains(&volume.volume_id));
    t.expect(all_there, "all volumes to be in the list")?;
    t.expect(!listed.contains(&gone.volume_id), "no volume in the list that was deleted")
}

/// Numbers of entries that cannot be all.
async fn too_few(t: &CheckContext) -> Outcome<[usize; 3]> {
    some_volumes(t).await?;
    Ok([1, 2, t.listed(0).await?.len() - 1])
}

async fn page_size(t: &CheckContext) -> Outcome {
    for most in too_few(t).await? {
        let reply = t.ok(page(i32::try_from(most).unwrap_or(i32::MAX), "")).await?;
        let fits = !reply.entries.is_empty() && reply.entries.len() <= most;
        t.expect(fits, format!("at most {most} entries, and not none"))?;
    }
    Ok(())
}

async fn has_more(t: &CheckContext) -> Outcome {
    for most in too_few(t).await? {
        let reply = t.ok(page(i32::try_from(most).unwrap_or(i32::MAX), "")).await?;
        t.expect(!reply.next_token.is_empty(), "a next_token, as there are more")?;
    }
    Ok(())
}

/// The first page with a single entry. Without a token there is nothing to go on from, which is
/// LV-04's matter.
async fn first_of_several(t: &CheckContext) -> Outcome<ListVolumesResponse> {
    let first = t.ok(page(1, "")).await?;
    if first.next_token.is_empty() {
        return t.not_applicable("the plugin hands out no next_token (LV-04)");
    }
    Ok(first)
}

async fn negative(t: &CheckContext) -> Outcome {
    t.refused(page(-1, ""), Code::InvalidArgument).await?;
    Ok(())
}

async fn from_the_beginning(t: &CheckContext) -> Outcome {
    some_volumes(t).await?;
    let first = t.ok(page(1, "")).await?;
    if !first.next_token.is_empty() {
        let second = t.ok(page(1, &first.next_token)).await?;
        t.expect(ids(&first.entries) != ids(&second.entries), "another entry on the second page")?;
    }
    let again = t.ok(page(1, "")).await?;
    t.expect(ids(&again.entries) == ids(&first.entries), "the first entry again")
}

async fn in_pages(t: &CheckContext) -> Outcome {
    some_volumes(t).await?;
    first_of_several(t).await?;
    let whole: BTreeSet<_> = ids(&t.listed(0).await?).into_iter().collect();
    for size in [1, 2, 3] {
        let pages = ids(&t.listed(size).await?);
        t.expect(pages.len() == whole.len(), "as many entries in pages as in one list")?;
        let together: BTreeSet<_> = pages.into_iter().collect();
        t.expect(together == whole, "the same volumes in pages as in one list")?;
    }
    Ok(())
}

async fn last_page(t: &CheckContext) -> Outcome {
    some_volumes(t).await?;
    let whole = t.listed(0).await?.len();
    for most in [i32::try_from(whole).unwrap_or(i32::MAX), 0] {
        let last = t.ok(page(most, "")).await?;
        let ends = last.entries.len() < whole || last.next_token.is_empty();
        t.expect(ends, "no next_token where nothing follows")?;
    }
    Ok(())
}

async fn garbage_token(t: &CheckContext) -> Outcome {
    t.volume().await?;
    for token in ["garbage-4d1f5a", "-1", "4294967295"] {
        t.refused(page(1, token), Code::Aborted).await?;
    }
    Ok(())
}

/// At least one.
async fn entries(t: &CheckContext) -> Outcome<Vec<Entry>> {
    t.volume().await?;
    let entries = t.ok(page(0, "")).await?.entries;
    t.expect(!entries.is_empty(), "at least one entry")?;
    Ok(entries)
}

async fn entries_have_volumes(t: &CheckContext) -> Outcome {
    let named = |entry: &Entry| entry.volume.as_ref().is_some_and(|it| !it.volume_id.is_empty());
    let entries = entries(t).await?;
    t.expect(entries.iter().all(named), "a volume with a volume_id in each entry")
}

async fn entries_have_status(t: &CheckContext) -> Outcome {
    let entries = entries(t).await?;
    t.expect(entries.iter().all(|it| it.status.is_some()), "a status in each entry")
}

async fn entries_have_condition(t: &CheckContext) -> Outcome {
    let has_condition =
        |entry: &Entry| entry.status.as_ref().is_some_and(|it| it.volume_condition.is_some());
    let entries = entries(t).await?;
    t.expect(entries.iter().all(has_condition), "a volume_condition in each entry")
}

async fn nodes_of(t: &CheckContext, volume: &Volume) -> Outcome<Vec<String>> {
    let entry = t.listed_as(volume).await?;
    let VolumeStatus { published_node_ids, .. } =
        t.some(entry.and_then(|entry| entry.status), "the volume to be listed, with a status")?;
    Ok(published_node_ids)
}

async fn published_nodes(t: &CheckContext) -> Outcome {
    let capability = t.capability();
    let volume = t.volume_for(capability.clone()).await?;
    t.expect(nodes_of(t, &volume).await?.is_empty(), "no node before it is published")?;
    t.attached(&volume, &capability).await?;
    t.expect(nodes_of(t, &volume).await? == [t.node_id()], "the node that it is published to")?;
    t.ok(t.detach(&volume)).await?;
    t.expect(nodes_of(t, &volume).await?.is_empty(), "no node after it was unpublished")
}

async fn while_they_go(t: &CheckContext) -> Outcome {
    let volumes = some_volumes(t).await?;
    first_of_several(t).await?;
    let ours = |id: &String| volumes.iter().any(|volume| volume.volume_id == *id);
    let order = ids(&t.listed(0).await?);
    let mut token = String::new();
    let mut last = String::new();
    for _ in &order {
        let reply = t.ok(page(1, &token)).await?;
        token = reply.next_token;
        last = ids(&reply.entries).pop().unwrap_or_default();
        if ours(&last) {
            break;
        }
    }
    t.expect(!token.is_empty(), "a next_token, as there are more")?;
    // A token may point at the entry before it or at the one after it.
    let next = order.iter().skip_while(|id| **id != last).nth(1).filter(|id| ours(id));
    for volume_id in [Some(&last), next].into_iter().flatten().cloned() {
        t.ok(DeleteVolumeRequest { volume_id, secrets: t.secrets() }).await?;
    }
    while !token.is_empty() {
        match t.ask(page(1, &token)).await? {
            Ok(reply) => token = reply.next_token,
            Err(status) => return t.expect(status.code() == Code::Aborted, "OK or ABORTED"),
        }
    }
    Ok(())
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let Ok(reply) = t.during_outage(t.ask(page(0, ""))).await? else { return Ok(()) };
    let is_listed = ids(&reply.entries).contains(&volume.volume_id) || !reply.next_token.is_empty();
    t.expect(is_listed, "a refusal while the storage was away, or a list of what is there")
}
