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
      "lv_health_status":"",
      "lv_metadata_size":"", "data_percent":"", "metadata_percent":""}],
  "pvseg": [{"pvseg_start":"0"}],
  "seg": [{"lv_name":"plain", "segtype":"linear", "thin_id":"", "chunk_size":"0", "zero":"unknown"}]
}]}"#;

/// The same of a thin pool, in the guest of tests/guest.
const THIN: &str = r#"
{"report": [{
  "vg": [{"vg_name":"vg-t", "vg_uuid":"vEEPhG-alea-nGzP-eD7g-o7sU-QC1P-Dgr18x", "vg_seqno":"21",
    "vg_extent_size":"4194304", "vg_size":"34355544064", "vg_free":"34078720000", "vg_mda_size":"1044480",
    "vg_mda_free":"519168", "vg_missing_pv_count":"0", "vg_exported":""}],
  "pv": [{"pv_name":"/dev/vda"}],
  "lv": [
    {"lv_name":"s-ro", "lv_uuid":"6jYLGR-2g2W-OmeZ-vlBm-BzO1-BAEC-UoJLDn", "lv_size":"1073741824",
      "lv_tags":"orlop1:draft", "lv_layout":"thin,sparse", "pool_lv":"tp", "lv_permissions":"read-only",
      "lv_active":"", 
      "lv_health_status":"", "lv_metadata_size":"", "data_percent":"", "metadata_percent":""},
    {"lv_name":"tp", "lv_uuid":"dQ31yE-qmQr-WMZn-ctmC-9pP6-vYz9-pHGiRL", "lv_size":"268435456", "lv_tags":"x,y",
      "lv_layout":"thin,pool", "pool_lv":"", "lv_permissions":"writeable", "lv_active":"active",
      "lv_health_status":"out_of_data",
      "lv_metadata_size":"4194304", "data_percent":"12.94", "metadata_percent":"11.43"},
    {"lv_name":"v1", "lv_uuid":"wH8Yoh-77GG-LIgp-1Ylj-70KB-E6Lm-L6JQ4o", "lv_size":"2147483648",
      "lv_tags":"orlop1:whole", "lv_layout":"thin,sparse", "pool_lv":"tp", "lv_permissions":"writeable",
      "lv_active":"active", 
      "lv_health_status":"", "lv_metadata_size":"", "data_percent":"1.61", "metadata_percent":""}],
  "pvseg": [{"pvseg_start":"0"}, {"pvseg_start":"1"}, {"pvseg_start":"65"}, {"pvseg_start":"66"}],
  "seg": [
    {"lv_name":"s-ro", "segtype":"thin", "thin_id":"3", "chunk_size":"0", "zero":"unknown"},
    {"lv_name":"tp", "segtype":"thin-pool", "thin_id":"", "chunk_size":"65536", "zero":"zero"},
    {"lv_name":"v1", "segtype":"thin", "thin_id":"1", "chunk_size":"0", "zero":"unknown"}]
}]}"#;

#[test]
fn volumes_without_devices_are_read() {
    let report = GroupReport::parse(REPORT.as_bytes()).unwrap();
    assert_eq!((report.group.revision, report.group.free), (12, 117_440_512));
    let lv = report.lv("plain").unwrap();
    assert_eq!((lv.kind(), lv.data_used), (LvKind::Thick, None));
    assert!(!lv.is_active() && !lv.is_read_only());
    assert!(lv.tags.is_empty());
    assert_eq!(report.segments[0].kind, "linear");
    assert_eq!(report.disks.len(), 2);
    assert!(!lv.is_redundant());
}

#[test]
fn thin_pool_and_volumes_in_it_are_read() {
    let report = GroupReport::parse(THIN.as_bytes()).unwrap();
    let pool = report.lv("tp").unwrap();
    assert_eq!(pool.kind(), LvKind::ThinPool);
    assert_eq!((pool.metadata_size, pool.health.as_str()), (Some(4 << 20), "out_of_data"));
    assert_eq!(pool.tags, ["x", "y"]);
    // 12.94 % of 4096 chunks are 530.02.
    assert_eq!(pool.data_used.map(|used| used.of(pool.size).div_ceil(65536)), Some(531));
    let volume = report.lv("v1").unwrap();
    assert_eq!((volume.kind(), volume.thin_pool.as_str()), (LvKind::Thin, "tp"));
    assert!(volume.is_active() && !volume.is_read_only());
    let snapshot = report.lv("s-ro").unwrap();
    assert!(snapshot.is_read_only() && !snapshot.is_active());
    let [of_snapshot, of_pool, of_volume] = report.segments.as_slice() else {
        panic!("{:?}", report.segments)
    };
    assert_eq!((of_snapshot.thin_id, of_volume.thin_id), (Some(3), Some(1)));
    assert_eq!((of_pool.chunk, of_pool.zeroes_chunks()), (65536, true));
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
