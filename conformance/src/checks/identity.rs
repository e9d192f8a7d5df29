//! GetPluginInfo, GetPluginCapabilities, Probe.

use crate::check::{Chapter, Check, Outcome, Service, check, run};
use crate::trial::Trial;
use crate::wire::csi::v1::{GetPluginCapabilitiesRequest, GetPluginInfoRequest, ProbeRequest};

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Identity",
    service: Service::Identity,
    needs: &[],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "identity-is-served",
        "calls the three calls that every plugin has",
        &["ID-01", "ID-10", "PR-04"],
        run!(identity_is_served),
    ),
    check(
        "plugin-has-a-proper-name",
        "reads the plugin's name, its length and its form",
        &["ID-02", "ID-03", "ID-04", "ID-05"],
        run!(plugin_has_a_proper_name),
    ),
];

const UNSEEN: &[(&str, &str)] = &[];

async fn identity_is_served(t: &Trial) -> Outcome {
    t.ok(GetPluginInfoRequest::default()).await?;
    t.ok(GetPluginCapabilitiesRequest::default()).await?;
    t.ok(ProbeRequest::default()).await?;
    Ok(())
}

async fn plugin_has_a_proper_name(t: &Trial) -> Outcome {
    let name = t.ok(GetPluginInfoRequest::default()).await?.name;
    t.expect(!name.is_empty() && name.len() <= 63, "a name of 1 to 63 characters")?;
    let is_label = |label: &str| {
        label.starts_with(|first: char| first.is_ascii_alphanumeric())
            && label.ends_with(|last: char| last.is_ascii_alphanumeric())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    t.expect(
        name.split('.').all(is_label),
        "labels of letters, digits and dashes, with dots between",
    )
}
