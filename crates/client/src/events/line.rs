//! An event as one line for people.

use super::Event;
use crate::terminal::{Style, printable};

/// Fields that the line has already, or that are for programs.
const NOT_APPENDED: [&str; 13] = [
    "method",
    "code",
    "call",
    "took",
    "volume",
    "volume_name",
    "snapshot",
    "snapshot_name",
    "group",
    "group_name",
    "trace_id",
    "span_id",
    "parent_id",
];

pub(super) fn of(event: &Event, style: Style) -> String {
    let time =
        event.time.split_once('.').map_or(event.time.clone(), |(whole, _)| format!("{whole}Z"));
    let level = format!("{:<5}", printable(&event.level));
    let level = if event.level == "info" { level } else { style.bad(&level) };
    format!("{time}  {level}  {:<6}  {}", printable(&event.kind), printable(&text(event)))
}

fn text(event: &Event) -> String {
    let field = |name: &str| event.fields.get(name).map(String::as_str).unwrap_or_default();
    let mut parts: Vec<String> = Vec::new();
    if !field("method").is_empty() {
        parts.push(field("method").to_owned());
    }
    for kind in ["volume", "snapshot", "group"] {
        let label = match (field(&format!("{kind}_name")), field(kind)) {
            ("", "") => continue,
            (name, "") => name.to_owned(),
            ("", id) => id.to_owned(),
            (name, id) => format!("{name} ({id})"),
        };
        parts.push(format!("{kind} {label}"));
    }
    let code = match field("code") {
        "" | "OK" => String::new(),
        code => format!("{code}: "),
    };
    let took = match field("took") {
        "" => String::new(),
        took => format!(", {took}"),
    };
    let more: Vec<String> = event
        .fields
        .iter()
        .filter(|(name, _)| !NOT_APPENDED.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
    let subject = if parts.is_empty() { String::new() } else { format!("{}: ", parts.join(" ")) };
    format!("{subject}{code}{}{took}{more}", event.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(level: &str, kind: &str, message: &str, fields: &[(&str, &str)]) -> Event {
        Event {
            sequence: 1,
            time: "2026-11-18T11:43:01.485737472Z".to_owned(),
            level: level.to_owned(),
            kind: kind.to_owned(),
            message: message.to_owned(),
            fields: fields.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        }
    }

    #[test]
    fn a_line_says_what_happened_to_which_object() {
        let created = event(
            "info",
            "call",
            "done",
            &[
                ("method", "CreateVolume"),
                ("volume_name", "pvc-1"),
                ("volume", "v-1"),
                ("code", "OK"),
                ("took", "3ms"),
                ("call", "7"),
            ],
        );
        let line = of(&created, Style::plain());
        assert_eq!(
            line,
            "2026-11-18T11:43:01Z  info   call    CreateVolume volume pvc-1 (v-1): done, 3ms"
        );
        let refused = event(
            "warn",
            "call",
            "it is in use",
            &[("method", "DeleteVolume"), ("volume", "v-1"), ("code", "FAILED_PRECONDITION")],
        );
        assert!(
            of(&refused, Style::plain())
                .ends_with("DeleteVolume volume v-1: FAILED_PRECONDITION: it is in use")
        );
        let forged = event("in\x1b[2Jfo", "ca\nll", "done", &[]);
        assert!(!of(&forged, Style::plain()).contains(char::is_control), "no plugin is trusted");
        let floor =
            event("warn", "pool", "below its floor\x1b[2J", &[("pool", "a"), ("free", "1")]);
        assert!(
            of(&floor, Style::plain()).ends_with("pool    below its floor?[2J (free=1, pool=a)")
        );
    }
}
