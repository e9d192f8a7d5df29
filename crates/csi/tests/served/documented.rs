//! What the README owes to those who run the plugin.

/// The text under a heading, up to the next one of its level, in one line.
fn section(heading: &str) -> String {
    let readme = include_str!("../../../../README.md");
    let (_, after) = readme.split_once(&format!("\n## {heading}\n")).unwrap();
    let text = after.split("\n## ").next().unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// CA-21: how often, how long to wait, and what the limits are.
#[test]
fn the_readme_guides_whoever_probes() {
    let operation = section("Operation");
    let (_, probe) = operation.split_once("**Probe**").unwrap();
    for said in ["Every 5 to 30 seconds", "there is no limit", "timeout of some seconds"] {
        assert!(probe.contains(said), "{said}");
    }
    assert!(section("CSI-Addons").contains("Probe answers as the one of CSI does"));
}

/// VG-47
#[test]
fn the_readme_says_what_a_group_keeps_together() {
    let addons = section("CSI-Addons");
    assert!(addons.contains("| Consistency | a group is a list"), "{addons}");
}
