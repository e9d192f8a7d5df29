use super::*;
use crate::lvm::report::GroupReport;

/// Of an LV with that layout and health.
fn problem(layout: &str, health: &str) -> Option<Problem> {
    let report = format!(
        r#"{{"report": [{{
        "vg": [{{"vg_name":"g", "vg_uuid":"u", "vg_seqno":"1", "vg_extent_size":"4194304", "vg_size":"8388608",
            "vg_free":"0", "vg_mda_size":"1044480", "vg_mda_free":"57856", "vg_missing_pv_count":"1",
            "vg_exported":""}}],
        "lv": [{{"lv_name":"v", "lv_uuid":"u", "lv_size":"8388608", "lv_tags":"", "lv_layout":"{layout}",
            "pool_lv":"", "lv_permissions":"", "lv_active":"", "lv_device_open":"", "lv_kernel_major":"-1",
            "lv_kernel_minor":"-1", "lv_health_status":"{health}", "lv_metadata_size":"", "data_percent":"",
            "metadata_percent":""}}]
        }}]}}"#
    );
    let report = GroupReport::parse(report.as_bytes()).unwrap();
    let group: GroupName = "g".parse().unwrap();
    problem_of_lv(&group, report.lv("v").unwrap())
}

#[test]
fn lost_copies_are_not_lost_data() {
    let reason = |layout, health| problem(layout, health).map(|problem| problem.reason);
    for well in ["", "mismatches exist"] {
        assert_eq!(reason("raid,raid1", well), None);
    }
    assert_eq!(reason("raid,raid1", "partial"), Some(HealthReason::RedundancyLost));
    assert_eq!(reason("raid,raid6,raid6_zr", "partial"), Some(HealthReason::RedundancyLost));
    assert_eq!(reason("raid,raid1", "refresh needed"), Some(HealthReason::RedundancyLost));
    assert_eq!(reason("linear", "partial"), Some(HealthReason::DeviceErrors));
    assert_eq!(reason("striped", "partial"), Some(HealthReason::DeviceErrors));
    assert_eq!(reason("thin,sparse", "failed"), Some(HealthReason::DeviceErrors));
    assert_eq!(reason("linear", "what is new"), Some(HealthReason::DeviceErrors));
    let text = problem("raid,raid1", "partial").unwrap().message;
    assert!(text.contains("lvconvert --repair g/v"), "{text}");
}
