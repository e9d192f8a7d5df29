use super::*;

/// As LVM 2.03.16 printed it, but for the spaces.
const REPORT: &str = r#"
{"report": [{
  "vg": [{"vg_name":"vg-t", "vg_uuid":"UQEMOH-YOBm-yYXF-iAO3-BIRj-Ci3d-2BfGgl", "vg_seqno":"12",
    "vg_extent_size":"4194304", "vg_size":"125829120", "vg_free":"117440512", "vg_mda_size":"1044480",
    "vg_mda_free":"57856", "vg_missing_pv_count":"0", "vg_exported":""}],
  "pv": [{"pv_name":"/dev/loop3"}, {"pv_name":"/dev/loop4"}],
  "lv": [
    {"lv_name":"plain", "lv_uuid":"bok9E9-Hwa6-fZBg-H2MS-8Hs0-39yz-IFvOQo", "lv_size":"8388608", "lv_tags":"",
      "lv_layout":"linear", "pool_lv":"", "lv_permissions":"unknown", "lv_active":"unknown",
      "lv_device_open":"unknown", "lv_kernel_major":"-1", "lv_kernel_minor":"-1", "lv_health_status":"",
      "lv_metadata_size":"", "data_percent":"", "metadata_percent":""}],
  "pvseg": [{"pvseg_start":"0"}],
  "seg": [{"lv_name":"plain", "segtype":"linear", "thin_id":"", "chunk_size":"0"}]
}]}"#;

/// The same of a thin pool, from tests/guest.
const THIN: &str = r#"
{"report": [{
  "vg": [{"vg_name":"vg-t", "vg_uuid":"UQEMOH-YOBm-yYXF-iAO3-BIRj-Ci3d-2BfGgl", "vg_seqno":"7",
    "vg_extent_size":"4194304", "vg_size":"260046848", "vg_free":"117440512", "vg_mda_size":"1044480",
    "vg_mda_free":"519168", "vg_missing_pv_count":"0", "vg_exported":""}],
  "lv": [
    {"lv_name":"tp", "lv_uuid":"cCzxYp-X4pr-dZ7I-ZkOK-8q6C-OSpU-MAvF1G", "lv_size":"67108864",
      "lv_tags":"orlop1:pool:01234567", "lv_layout":"thin,pool", "pool_lv":"", "lv_permissions":"writeable",
      "lv_active":"active", "lv_device_open":"", "lv_kernel_major":"252", "lv_kernel_minor":"2",
      "lv_health_status":"", "lv_metadata_size":"4194304", "data_percent":"12.50", "metadata_percent":"10.84"},
    {"lv_name":"v-1", "lv_uuid":"VMDUGe-Qhhi-ml7E-mdFg-ZcNI-kCQM-Lp1gP3", "lv_size":"1073741824",
      "lv_tags":"backup,orlop1:draft", "lv_layout":"thin,sparse", "pool_lv":"tp", "lv_permissions":"read-only",
      "lv_active":"active", "lv_device_open":"open", "lv_kernel_major":"252", "lv_kernel_minor":"4",
      "lv_health_status":"", "lv_metadata_size":"", "data_percent":"0.78", "metadata_percent":""}],
  "seg": [
    {"lv_name":"tp", "segtype":"thin-pool", "thin_id":"", "chunk_size":"65536"},
    {"lv_name":"v-1", "segtype":"thin", "thin_id":"1", "chunk_size":"0"}]
}]}"#;

#[test]
fn volumes_without_devices_are_read() {
    let report = GroupReport::parse(REPORT.as_bytes()).unwrap();
    assert_eq!((report.group.revision, report.group.free), (12, 117_440_512));
    let lv = report.lv("plain").unwrap();
    assert_eq!((lv.kind(), lv.device(), lv.data_used), (LvKind::Thick, None, None));
    assert!(!lv.is_active() && !lv.is_open() && !lv.is_read_only());
    assert!(lv.tags.is_empty());
    assert_eq!(report.segments[0].kind, "linear");
}

#[test]
fn thin_pool_and_volumes_in_it_are_read() {
    let report = GroupReport::parse(THIN.as_bytes()).unwrap();
    let pool = report.lv("tp").unwrap();
    assert_eq!((pool.kind(), pool.device()), (LvKind::ThinPool, Some((252, 2))));
    assert_eq!(pool.metadata_size, Some(4 << 20));
    assert_eq!(pool.data_used.map(|used| used.of(pool.size)), Some(8 << 20));
    let volume = report.lv("v-1").unwrap();
    assert_eq!((volume.kind(), volume.thin_pool.as_str()), (LvKind::Thin, "tp"));
    assert!(volume.is_active() && volume.is_open() && volume.is_read_only());
    assert_eq!(volume.tags, ["backup", "orlop1:draft"]);
    assert_eq!((report.segments[0].chunk, report.segments[1].thin_id), (65536, Some(1)));
}

#[test]
fn what_is_no_report_on_one_group_is_refused() {
    let two = format!("{{\"report\":[{0},{0}]}}", &REPORT.trim()[12..REPORT.trim().len() - 2]);
    assert!(GroupReport::parse(two.as_bytes()).unwrap_err().contains("2 volume groups"));
    for damaged in [
        "",
        "{}",
        r#"{"report":[]}"#,
        &REPORT[..REPORT.len() - 9],
        &REPORT.replace("\"4194304\"", "\"4m\""),
        &REPORT.replace("\"vg_seqno\":\"12\"", "\"vg_seqno\":\"\""),
        &REPORT.replace("\"data_percent\":\"\"", "\"data_percent\":\"100.01\""),
    ] {
        assert!(GroupReport::parse(damaged.as_bytes()).is_err(), "{damaged}");
    }
}

#[test]
fn shares_are_exact_and_rounded_up() {
    let share = |text: &str| text.parse::<Share>();
    assert_eq!(share("100.00"), Ok(Share::WHOLE));
    assert_eq!(share("0.01").unwrap().of(1 << 20), 105);
    assert_eq!(Share::WHOLE.of(u64::MAX), u64::MAX);
    for text in ["", "1", "1.5", "1.555", "-1.00", "100.01", "700.00", "x.00"] {
        assert!(share(text).is_err(), "{text}");
    }
}
