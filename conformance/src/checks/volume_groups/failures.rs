//! Calls that cannot be done: an error is right, and OK only if it is true.

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::identity::capability::volume_group::Type;

pub(in crate::checks) const SECTION: Section = Section {
    title: "Volume groups: broken storage",
    service: Service::VolumeGroup,
    needs: &[
        Need::VolumeGroup(Type::VolumeGroup),
        Need::VolumeGroup(Type::GetVolumeGroup),
        Need::Faults,
    ],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "group-made-when-broken",
        "makes and deletes groups while the storage is away, and looks afterwards",
        &["VG-14", "VG-21"],
        run!(made_and_deleted),
    )
    .alone(),
    check(
        "group-modified-when-broken",
        "modifies a group while the storage is away, and looks afterwards",
        &["VG-31"],
        run!(modified),
    )
    .needs(&[Need::VolumeGroup(Type::ModifyVolumeGroup)])
    .alone(),
    check(
        "group-read-when-broken",
        "gets and lists groups while the storage is away",
        &["VG-37", "VG-45"],
        run!(read),
    )
    .needs(&[Need::VolumeGroup(Type::ListVolumeGroups)])
    .alone(),
];

async fn made_and_deleted(t: &CheckContext) -> Outcome {
    let victim = t.group(&[]).await?;
    let request = t.new_group(&[]);
    let calls = async { Ok((t.ask(request).await?, t.ask(t.delete_group(&victim)).await?)) };
    let (made, deleted) = t.during_outage(calls).await?;
    if let Ok(reply) = made {
        let group = t.some(reply.volume_group, "an error, or a group")?;
        let found = t.settled(t.get_group(&group)).await?;
        t.expect(found.is_ok(), "a group that was said to be made while the storage was away")?;
    }
    let is_there = t.settled(t.get_group(&victim)).await?.is_ok();
    t.expect(deleted.is_err() || !is_there, "an error, or the group to be gone")
}

async fn modified(t: &CheckContext) -> Outcome {
    let (first, second) = (t.volume().await?, t.volume().await?);
    let group = t.group(&[&first]).await?;
    let answer = t.during_outage(t.ask(t.modify_group(&group, &[&second]))).await?;
    let members = if answer.is_ok() { [&second] } else { [&first] };
    t.expect_members(&t.found_group(&group).await?, &members)
}

async fn read(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let group = t.group(&[&volume]).await?;
    let calls =
        async { Ok((t.ask(t.get_group(&group)).await?, t.ask(t.list_groups(0, "")).await?)) };
    let (got, listed) = t.during_outage(calls).await?;
    if let Ok(reply) = got {
        let found = t.some(reply.volume_group, "an error, or the group")?;
        t.expect_members(&found, &[&volume])?;
    }
    if let Ok(reply) = listed {
        let groups = reply.entries.into_iter().filter_map(|entry| entry.volume_group);
        let found = groups.into_iter().find(|it| it.volume_group_id == group.volume_group_id);
        let found = t.some(found, "an error, or the group in the list")?;
        t.expect_members(&found, &[&volume])?;
    }
    Ok(())
}
