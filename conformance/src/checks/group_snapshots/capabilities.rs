//! GroupControllerGetCapabilities, and that the calls it promises are there.

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::GroupControllerGetCapabilitiesRequest;
use crate::wire::csi::v1::plugin_capability::service::Type::GroupControllerService;

/// Without [`Need::GroupSnapshots`]: a plugin that cannot say what it offers offers nothing.
pub(in crate::checks) const SECTION: Section = Section {
    title: "GroupControllerGetCapabilities",
    service: Service::GroupController,
    needs: &[Need::Plugin(GroupControllerService)],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "group-capabilities",
        "asks what the group controller offers",
        &["GG-01"],
        run!(capabilities),
    ),
    check(
        "group-capabilities-without-storage",
        "takes the storage away and compares the answer with one from before",
        &["GG-02"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
    check(
        "group-calls-are-there",
        "cuts, reads and deletes a group",
        &["GG-03"],
        run!(calls_are_there),
    )
    .needs(&[Need::GroupSnapshots]),
];

async fn capabilities(t: &CheckContext) -> Outcome {
    t.ok(GroupControllerGetCapabilitiesRequest::default()).await?;
    Ok(())
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let request = GroupControllerGetCapabilitiesRequest::default();
    let before = t.ok(request).await?;
    match t.during_outage(t.ask(request)).await? {
        Err(_) => Ok(()),
        Ok(reply) => t.expect(reply == before, "an error, or the same capabilities as before"),
    }
}

async fn calls_are_there(t: &CheckContext) -> Outcome {
    let volume = t.volume().await?;
    let group = t.group_snapshot(&[&volume]).await?;
    t.ok(t.get_group_snapshot(&group)).await?;
    t.ok(t.delete_group_snapshot(&group)).await?;
    Ok(())
}
