//! ListSnapshots.

use std::collections::BTreeSet;

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteSnapshot, ListSnapshots,
};
use crate::wire::csi::v1::{ListSnapshotsRequest, Snapshot, Volume};

pub(super) const SECTION: Section = Section {
    title: "ListSnapshots",
    service: Service::Controller,
    needs: &[Need::Controller(ListSnapshots), Need::Controller(CreateDeleteSnapshot)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "list-snapshots-of-all-kinds",
        "lists two snapshots of a volume, one of a deleted volume, and members of a group",
        &["LS-02"],
        run!(of_all_kinds),
    ),
    check("list-snapshots-is-there", "lists what there is", &["LS-01"], run!(is_there)),
    check(
        "list-snapshots-after-changes",
        "lists before and after a snapshot is cut, and after it is deleted",
        &["LS-06"],
        run!(after_changes),
    ),
    check(
        "list-snapshots-ready",
        "lists a snapshot that is ready and compares",
        &["LS-05"],
        run!(ready),
    ),
    check(
        "list-snapshots-while-processed",
        "lists a snapshot that is not ready yet",
        &["LS-04"],
        run!(while_processed),
    ),
    check(
        "list-snapshots-after-a-failed-cut",
        "takes the storage away, lets a cut fail, and lists",
        &["LS-03"],
        run!(after_a_failed_cut),
    )
    .needs(&[Need::Faults])
    .alone(),
    check(
        "list-snapshots-pages-of-a-volume",
        "reads the snapshots of a volume in pages of one and of two",
        &["LS-08", "LS-09", "LS-13"],
        run!(pages_of_a_volume),
    ),
    check(
        "list-snapshots-pages-of-all",
        "reads all snapshots in pages of two",
        &["LS-08", "LS-09", "LS-13"],
        run!(pages_of_all),
    )
    .alone(),
    check("list-snapshots-without-a-cap", "sets max_entries to 0", &["LS-10"], run!(without_a_cap)),
    check("list-snapshots-negative-cap", "sets max_entries to -1", &["LS-11"], run!(negative_cap)),
    check(
        "list-snapshots-from-a-bad-token",
        "starts at tokens that were never given out: a word, and numbers out of all range",
        &["LS-12"],
        run!(from_a_bad_token),
    ),
    check(
        "list-snapshots-of-one-volume",
        "filters by a volume, and by one that never was",
        &["LS-14"],
        run!(of_one_volume),
    ),
    check(
        "list-snapshots-by-id",
        "filters by a snapshot, and by one that never was",
        &["LS-15"],
        run!(by_id),
    ),
    check(
        "list-snapshots-by-both",
        "filters by a snapshot and by its own or another volume",
        &["LS-16"],
        run!(by_both),
    ),
    check(
        "list-snapshots-that-go-meanwhile",
        "deletes what the first page has shown and reads on",
        &["LS-17"],
        run!(that_disappear_between_pages),
    )
    .alone(),
    check(
        "list-snapshots-without-storage",
        "takes the storage away, lists, and looks afterwards whether the answer was true",
        &["LS-18"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const UNSEEN: &[(&str, &str)] =
    &[("LS-07", "a permission: to report a failed processing here or not is both right")];

fn has(listed: &[Snapshot], snapshot: &Snapshot) -> bool {
    listed.iter().any(|it| it.snapshot_id == snapshot.snapshot_id)
}

/// In an order of no meaning.
fn ids(listed: &[Snapshot]) -> Vec<&str> {
    let mut ids: Vec<_> = listed.iter().map(|it| it.snapshot_id.as_str()).collect();
    ids.sort_unstable();
    ids
}

async fn with_snapshots(t: &CheckContext, count: usize) -> Outcome<(Volume, Vec<Snapshot>)> {
    let volume = t.volume().await?;
    let mut snapshots = Vec::new();
    for _ in 0..count {
        snapshots.push(t.snapshot(&volume).await?);
    }
    Ok((volume, snapshots))
}

/// Each of another volume.
async fn snapshots_of_several(t: &CheckContext, count: usize) -> Outcome<Vec<Snapshot>> {
    let mut snapshots = Vec::new();
    for _ in 0..count {
        snapshots.push(t.snapshot(&t.volume().await?).await?);
    }
    Ok(snapshots)
}

async fn is_there(t: &CheckContext) -> Outcome {
    t.ok(t.list_snapshots()).await?;
    Ok(())
}

async fn of_all_kinds(t: &CheckContext) -> Outcome {
    let (volume, mut made) = with_snapshots(t, 2).await?;
    let (orphaned, orphans) = with_snapshots(t, 1).await?;
    // A plugin may refuse to delete a volume that has snapshots (DV-04).
    let deleted = t.settled(t.delete(&orphaned)).await?;
    made.extend(orphans);
    if t.features().group_snapshots {
        made.extend(t.group_snapshot(&[&volume]).await?.snapshots);
    }
    let listed = t.listed_snapshots(t.list_snapshots()).await?;
    let whose = if deleted.is_ok() { " and that of a deleted volume" } else { "" };
    let expected = format!("all snapshots in the list, also both of one volume{whose}");
    t.expect(made.iter().all(|it| has(&listed, it)), expected)
}

async fn after_changes(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let request = t.list_snapshots_of(&volume);
    t.expect(t.listed_snapshots(request.clone()).await?.is_empty(), "no snapshot of a new volume")?;
    let snapshot = t.snapshot(&volume).await?;
    let listed = t.listed_snapshots(request.clone()).await?;
    t.expect(has(&listed, &snapshot), "the new snapshot in the list")?;
    t.ok(t.delete_snapshot(&snapshot)).await?;
    t.expect(t.listed_snapshots(request).await?.is_empty(), "the deleted snapshot not in the list")
}

async fn ready(t: &CheckContext) -> Outcome {
    let (_, made) = with_snapshots(t, 1).await?;
    let made = t.some(made.into_iter().next(), "a snapshot")?;
    let listed = t.listed_snapshots(t.list_snapshot(&made)).await?;
    let listed = t.some(listed.into_iter().next(), "the snapshot in the list")?;
    t.expect(listed.ready_to_use, "ready_to_use, as CreateSnapshot has said")
}

async fn while_processed(t: &CheckContext) -> Outcome {
    let request = t.new_snapshot(&t.volume().await?);
    let made = t.some(t.ok(request).await?.snapshot, "a snapshot in the reply")?;
    if made.ready_to_use {
        return t.not_applicable("snapshots are ready at once");
    }
    let listed = t.listed_snapshots(t.list_snapshot(&made)).await?;
    t.expect(has(&listed, &made), "the snapshot in the list before it is ready")
}

async fn after_a_failed_cut(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let request = t.new_snapshot(&volume);
    let answer = t.during_outage(t.ask(request)).await?;
    if answer.is_ok() {
        return t.not_applicable("a snapshot can be cut while the storage is away");
    }
    let listed = t.listed_snapshots(t.list_snapshots_of(&volume)).await?;
    t.expect(listed.is_empty(), "no snapshot in the list whose cut has failed")
}

/// All pages of so many entries each, as single lists.
async fn pages(
    t: &CheckContext,
    request: ListSnapshotsRequest,
    most: i32,
) -> Outcome<Vec<Vec<Snapshot>>> {
    let mut request = ListSnapshotsRequest { max_entries: most, ..request };
    let mut pages = Vec::new();
    let mut tokens = BTreeSet::new();
    loop {
        let page = t.ok(request.clone()).await?;
        let entries: Vec<_> = page.entries.into_iter().filter_map(|it| it.snapshot).collect();
        let fits = usize::try_from(most).is_ok_and(|most| entries.len() <= most);
        blamed("LS-08", t.expect(fits, format!("at most {most} entries")))?;
        pages.push(entries);
        if page.next_token.is_empty() {
            return Ok(pages);
        }
        let leads_on = tokens.insert(page.next_token.clone());
        blamed("LS-13", t.expect(leads_on, "a token that was not there before"))?;
        request.starting_token = page.next_token;
    }
}

async fn pages_of_a_volume(t: &CheckContext) -> Outcome {
    let (volume, made) = with_snapshots(t, 4).await?;
    let whole = t.listed_snapshots(t.list_snapshots_of(&volume)).await?;
    blamed("LS-14", t.expect(ids(&whole) == ids(&made), "the snapshots of that volume"))?;
    for most in [1, 2, 3] {
        let read = pages(t, t.list_snapshots_of(&volume), most).await?;
        let found: Vec<_> = read.into_iter().flatten().collect();
        t.expect(ids(&found) == ids(&made), "pages that show each snapshot once, and a last one")?;
    }
    Ok(())
}

async fn pages_of_all(t: &CheckContext) -> Outcome {
    let made = snapshots_of_several(t, 3).await?;
    let read = pages(t, t.list_snapshots(), 2).await?;
    let found: Vec<_> = read.into_iter().flatten().collect();
    let times = |snapshot: &Snapshot| {
        found.iter().filter(|it| it.snapshot_id == snapshot.snapshot_id).count()
    };
    t.expect(made.iter().all(|it| times(it) == 1), "each snapshot once on all pages together")
}

async fn without_a_cap(t: &CheckContext) -> Outcome {
    let made = snapshots_of_several(t, 3).await?;
    let listed = t.listed_snapshots(t.list_snapshots()).await?;
    t.expect(made.iter().all(|it| has(&listed, it)), "all snapshots")
}

async fn negative_cap(t: &CheckContext) -> Outcome {
    let request = ListSnapshotsRequest { max_entries: -1, ..t.list_snapshots() };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn from_a_bad_token(t: &CheckContext) -> Outcome {
    for token in ["no such token", "-1", "4294967295"] {
        let starting_token = token.to_owned();
        let request = ListSnapshotsRequest { starting_token, ..t.list_snapshots() };
        t.refused(request, Code::Aborted).await?;
    }
    Ok(())
}

async fn of_one_volume(t: &CheckContext) -> Outcome {
    let (volume, made) = with_snapshots(t, 2).await?;
    with_snapshots(t, 1).await?;
    let request = t.list_snapshots_of(&volume);
    let listed = t.listed_snapshots(request.clone()).await?;
    t.expect(ids(&listed) == ids(&made), "the snapshots of that volume and no others")?;
    let unknown = ListSnapshotsRequest { source_volume_id: t.unknown_id(), ..request };
    t.expect(t.listed_snapshots(unknown).await?.is_empty(), "no entries for an unknown volume")
}

async fn by_id(t: &CheckContext) -> Outcome {
    let made = snapshots_of_several(t, 2).await?;
    for snapshot in &made {
        let listed = t.listed_snapshots(t.list_snapshot(snapshot)).await?;
        t.expect(ids(&listed) == [&snapshot.snapshot_id], "that snapshot and no other")?;
    }
    let unknown = ListSnapshotsRequest { snapshot_id: t.unknown_id(), ..t.list_snapshots() };
    t.expect(t.listed_snapshots(unknown).await?.is_empty(), "no entries for an unknown snapshot")
}

async fn by_both(t: &CheckContext) -> Outcome {
    let (volume, made) = with_snapshots(t, 1).await?;
    let (other, _) = with_snapshots(t, 1).await?;
    let snapshot_id = ids(&made).concat();
    let of_both = |volume: &Volume| {
        let snapshot_id = snapshot_id.clone();
        ListSnapshotsRequest { snapshot_id, ..t.list_snapshots_of(volume) }
    };
    let listed = t.listed_snapshots(of_both(&volume)).await?;
    t.expect(ids(&listed) == [&snapshot_id], "that snapshot of its volume")?;
    let listed = t.listed_snapshots(of_both(&other)).await?;
    t.expect(listed.is_empty(), "no entries that match only one of two filters")
}

async fn that_disappear_between_pages(t: &CheckContext) -> Outcome {
    let made = snapshots_of_several(t, 3).await?;
    let mut request = ListSnapshotsRequest { max_entries: 1, ..t.list_snapshots() };
    // Of the snapshots that are there, only those made here may be deleted.
    let shown = loop {
        let page = t.ok(request.clone()).await?;
        if page.next_token.is_empty() {
            return t.not_applicable("the plugin hands out no next_token (LS-09)");
        }
        request.starting_token = page.next_token;
        let shown = page.entries.into_iter().find_map(|entry| entry.snapshot);
        if let Some(shown) = shown.filter(|it| has(&made, it)) {
            break shown;
        }
    };
    t.ok(t.delete_snapshot(&shown)).await?;
    let next = t.ask(request).await?;
    let copes = next.err().is_none_or(|status| status.code() == Code::Aborted);
    t.expect(copes, "the next page, or ABORTED if the token has become invalid")
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let (volume, made) = with_snapshots(t, 2).await?;
    let answer = t.during_outage(t.ask(t.list_snapshots_of(&volume))).await?;
    match answer {
        Err(status) => t.expect_fitting(&status),
        Ok(reply) => {
            let listed: Vec<_> = reply.entries.into_iter().filter_map(|it| it.snapshot).collect();
            t.expect(ids(&listed) == ids(&made), "an error, or the snapshots that are there")
        }
    }
}
