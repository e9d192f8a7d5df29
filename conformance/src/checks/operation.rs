//! Configuration and operation (OP): mostly about processes and documents.

use std::collections::BTreeSet;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::ProbeRequest;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteVolume;

pub(super) const SECTION: Section = Section {
    title: "Operation",
    service: Service::Protocol,
    needs: &[],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "the-socket-is-alone",
        "lists the directory of the socket before and after some work",
        &["OP-06"],
        run!(the_socket_is_alone),
    )
    .needs(&[Need::LocalFiles, Need::Controller(CreateDeleteVolume), Need::NodeService])
    .alone(),
    check(
        "a-dead-socket-is-replaced",
        "kills the plugin, starts it again, and looks what else is gone from beside its socket",
        &["OP-23"],
        run!(a_dead_socket_is_replaced),
    )
    .needs(&[Need::LocalFiles, Need::Restart])
    .alone(),
];

const UNSEEN: &[(&str, &str)] = &[
    ("OP-01", "It shows when the plugin is started without the variable."),
    ("OP-02", "It shows when the plugin is started with such an address."),
    ("OP-03", "It shows when the plugin is started with another address."),
    ("OP-04", "Where settings come from is seen where the plugin is started."),
    ("OP-05", "What a plugin requires of its host is said in its documents."),
    ("OP-07", "How a plugin is packaged cannot be seen at its socket."),
    ("OP-08", "What an image's manifest says cannot be seen at the plugin's socket."),
    ("OP-09", "It shows when the plugin is started with no variable but the required one."),
    ("OP-10", "Which variables a plugin knows is seen where it is started."),
    ("OP-11", "At a socket, a service that stays looks the same as one started for each call."),
    ("OP-12", "Where else a process writes is not to be seen from outside it."),
    ("OP-13", "What is said about logs is in the plugin's documents."),
    ("OP-15", "Modes show when the plugin is started in each of them."),
    ("OP-16", "A permission, and it shows when the plugin is started in each mode."),
    ("OP-17", "It shows when the plugin is started with a wrong setting."),
    ("OP-18", "A permission: what rights a plugin uses is not told in an answer."),
    ("OP-19", "What rights a plugin needs is said in its documents."),
    ("OP-20", "Which namespaces a plugin shares is decided where it is started."),
    ("OP-21", "Limits are set by whoever starts the plugin."),
    ("OP-22", "What a plugin needs is said in its documents."),
];

/// Names beside the socket, but for other sockets and for directories of this suite.
fn others_beside(t: &CheckContext, socket: &Path) -> Outcome<BTreeSet<String>> {
    let Some(directory) = socket.parent() else {
        return t.not_applicable("the socket is in no directory");
    };
    let ours = [&t.options().staging_dir, &t.options().target_dir];
    let mut names = BTreeSet::new();
    for entry in t.could(std::fs::read_dir(directory), "list", directory)? {
        let entry = t.could(entry, "list", directory)?;
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        let is_ours = ours.iter().any(|path| path.starts_with(entry.path()));
        if !is_socket && !is_ours {
            names.insert(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

async fn the_socket_is_alone(t: &CheckContext) -> Outcome {
    let socket = t.options().socket.clone();
    let before = others_beside(t, &socket)?;
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    let during = others_beside(t, &socket)?;
    t.withdrawn(&placed).await?;
    let after = others_beside(t, &socket)?;
    let new: Vec<_> = during.union(&after).filter(|name| !before.contains(*name)).collect();
    t.expect(new.is_empty(), format!("nothing beside the socket, but there is {new:?}"))?;
    if before.is_empty() {
        return Ok(());
    }
    t.not_applicable("others use the socket's directory, so it is not clear whose files are there")
}

async fn a_dead_socket_is_replaced(t: &CheckContext) -> Outcome {
    let socket = t.options().socket.clone();
    let before = others_beside(t, &socket)?;
    t.restart_plugin()?;
    t.ok(ProbeRequest::default()).await?;
    let after = others_beside(t, &socket)?;
    let gone: Vec<_> = before.difference(&after).collect();
    t.expect(gone.is_empty(), format!("nothing else to be touched, but {gone:?} is gone"))
}
