//! What the doctor says when nothing is wrong, and that it says it of nothing else.

use std::fs;

use orlop_tests::*;

use crate::doctor::fixture::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn sound_pool_is_called_so() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let id = fixture.block_volume("a").await;
    fixture.block_volume("b").await;
    fixture.client.snapshot("s", &id).await.unwrap();
    for is_served in [true, false] {
        if !is_served {
            fixture.daemon.terminate();
        }
        let report = fixture.doctor(&[]);
        report.expect(0, &[]);
        assert_eq!(report.document["sound"], true, "{}", report.text);
        assert_eq!(report.document["pools"][0]["sound"], true, "{}", report.text);
        let pool_id = report.document["pools"][0]["id"].as_str().unwrap();
        let lines = fixture.daemon.launch().run(&["doctor"]).stdout;
        let expected = format!("pool default ({pool_id}): sound, 2 volumes, 1 snapshot checked\n");
        assert!(lines.contains(&expected), "{lines}");
        let run_dir = fixture.pool.scratch().join("run/csi.orlop.io");
        let expected = format!("this machine: sound, by the records in {}\n", run_dir.display());
        assert!(lines.contains(&expected), "{lines}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_with_findings_is_not_called_sound() {
    needs_root!();
    let mut fixture = Fixture::new(PoolFs::Xfs).await;
    let id = fixture.block_volume("a").await;
    fixture.daemon.terminate();
    fs::remove_file(fixture.pool.volume_record(&id)).unwrap();
    let report = fixture.doctor(&[]);
    assert_eq!(report.document["sound"], false, "{}", report.text);
    assert_eq!(report.document["pools"][0]["sound"], false, "{}", report.text);
    assert_eq!(report.document["findings"][0]["pool"], "default", "{}", report.text);
    let lines = fixture.daemon.launch().run(&["doctor"]).stdout;
    assert!(lines.contains("): not sound, 1 finding, 0 volumes"), "{lines}");
    assert!(lines.contains("this machine: sound, "), "{lines}");
    let repaired = fixture.daemon.launch().run(&["doctor", "--repair"]).stdout;
    assert!(repaired.contains("): sound, 0 volumes, 0 snapshots checked\n"), "{repaired}");

    // A pool of which nothing is known is not sound either.
    let header = fixture.pool.path.join("orlop.pool");
    let text = fs::read(&header).unwrap();
    fs::write(&header, "{").unwrap();
    let report = fixture.doctor(&[]);
    assert_eq!(report.document["sound"], false, "{}", report.text);
    let lines = fixture.daemon.launch().run(&["doctor"]).stdout;
    assert!(!lines.contains("pool default (") && lines.contains("mark-damaged"), "{lines}");
    fs::write(&header, text).unwrap();
}
