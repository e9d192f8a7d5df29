//! Lists of groups.

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::identity::capability::volume_group::Type;
use crate::wire::volumegroup::VolumeGroup;

pub(in crate::checks) const SECTION: Section = Section {
    title: "Volume groups: lists",
    service: Service::VolumeGroup,
    needs: &[Need::VolumeGroup(Type::VolumeGroup), Need::VolumeGroup(Type::ListVolumeGroups)],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "groups-listed",
        "makes three groups and lists all that there are",
        &["VG-01", "VG-10", "VG-38", "VG-41", "VG-44"],
        run!(all),
    ),
    check(
        "groups-listed-in-pages",
        "makes three groups and lists them one and two at a time",
        &["VG-39", "VG-40"],
        run!(in_pages),
    ),
    check("groups-listed-negatively", "lists fewer groups than none", &["VG-42"], run!(negatively)),
    check(
        "groups-listed-from-nowhere",
        "lists groups from a token that was never issued",
        &["VG-43"],
        run!(from_nowhere),
    ),
];

/// Longer than any list that checks make.
const MAX_PAGES: usize = 10_000;

/// All pages with so many entries at most.
async fn pages(t: &CheckContext, max_entries: i32) -> Outcome<Vec<Vec<VolumeGroup>>> {
    let mut pages = Vec::new();
    let mut token = String::new();
    while pages.len() < MAX_PAGES {
        let reply = t.ok(t.list_groups(max_entries, &token)).await?;
        let mut page = Vec::new();
        for entry in reply.entries {
            page.push(t.some(entry.volume_group, "a volume_group in each entry")?);
        }
        pages.push(page);
        if reply.next_token.is_empty() {
            return Ok(pages);
        }
        token = reply.next_token;
    }
    Err(t.failed("an end of the list"))
}

fn times(listed: &[&VolumeGroup], group: &VolumeGroup) -> usize {
    listed.iter().filter(|other| other.volume_group_id == group.volume_group_id).count()
}

async fn all(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let full = t.group(&[&volume]).await?;
    let groups = [t.group(&[]).await?, t.group(&[]).await?];
    for _ in 0..2 {
        let pages = pages(t, 0).await?;
        let listed: Vec<_> = pages.iter().flatten().collect();
        for group in groups.iter().chain([&full]) {
            t.expect(times(&listed, group) == 1, "each group once in the list")?;
        }
        let found = listed.into_iter().find(|it| it.volume_group_id == full.volume_group_id);
        t.expect_members(t.some(found, "the group in the list")?, &[&volume])?;
    }
    Ok(())
}

/// Other checks may create and delete groups at the same time, so only these three are counted.
async fn in_pages(t: &CheckContext) -> Outcome {
    let groups = [t.group(&[]).await?, t.group(&[]).await?, t.group(&[]).await?];
    for max in [1, 2] {
        let pages = pages(t, max).await?;
        let most = usize::try_from(max).unwrap_or_default();
        t.expect(pages.iter().all(|page| page.len() <= most), format!("at most {max} in a page"))?;
        t.expect(pages.len() > 1, "a next_token, as there are more groups than fit")?;
        let listed: Vec<_> = pages.iter().flatten().collect();
        for group in &groups {
            t.expect(times(&listed, group) == 1, "each group once in the pages together")?;
        }
    }
    Ok(())
}

async fn negatively(t: &CheckContext) -> Outcome {
    t.refused(t.list_groups(-1, ""), Code::InvalidArgument).await?;
    Ok(())
}

async fn from_nowhere(t: &CheckContext) -> Outcome {
    t.refused(t.list_groups(0, "no token that anybody issued"), Code::Aborted).await?;
    Ok(())
}
