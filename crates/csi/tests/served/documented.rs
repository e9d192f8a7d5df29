//! What the manual owes to those who run the plugin.

use orlop_model::{HealthReason, Severity};

const OPERATIONS: &str = include_str!("../../../../docs/operations.md");
const PROTOCOLS: &str = include_str!("../../../../docs/protocols.md");

/// The text under a heading, up to the next one of its level, in one line.
fn section(document: &str, heading: &str) -> String {
    let (_, after) = document.split_once(&format!("\n## {heading}\n")).unwrap();
    let text = after.split("\n## ").next().unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// CA-21: how often, how long to wait, and what the limits are.
#[test]
fn manual_documents_probe() {
    let probe = section(OPERATIONS, "Probe");
    for said in ["every 5 to 30 seconds", "there is no limit", "a timeout of about 10 seconds"] {
        assert!(probe.contains(said), "{said}");
    }
    let addons = section(PROTOCOLS, "CSI-Addons");
    for said in ["Probe answers like the Probe of CSI", "(operations.md#probe) applies here too"] {
        assert!(addons.contains(said), "{said}");
    }
}

/// VG-47
#[test]
fn manual_documents_group_consistency() {
    let addons = section(PROTOCOLS, "CSI-Addons");
    assert!(addons.contains("| Consistency | a group is a list"), "{addons}");
}

/// Each word that a program may meet has a line that says what it means and what to do.
#[test]
fn manual_documents_every_reason() {
    let (_, table) = OPERATIONS.split_once("\n### Reasons\n").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows.len(), HealthReason::ALL.len());
    for reason in HealthReason::ALL {
        let severity = match reason.severity() {
            Severity::Degraded => "DEGRADED",
            Severity::Inaccessible => "INACCESSIBLE",
            Severity::DataLoss => "DATA_LOSS",
        };
        let start = format!("| `{}` | {severity} |", reason.as_str());
        assert!(rows.iter().any(|row| row.starts_with(&start)), "{start}");
    }
}
