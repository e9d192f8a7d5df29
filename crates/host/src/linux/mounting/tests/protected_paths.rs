#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use orlop_model::TargetPath;

use super::super::{ProtectedPaths, resolved};

struct Fixture {
    directory: tempfile::TempDir,
    protected: ProtectedPaths,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in ["pools/a", "run", "elsewhere"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    let protected = ProtectedPaths::new(vec![at("pools/a"), at("run")], at("run/inline"));
    Fixture { directory, protected }
}

impl Fixture {
    fn target(&self, name: &str) -> TargetPath {
        let path = self.directory.path().join(name);
        TargetPath::parse("path", path.to_str().unwrap()).unwrap()
    }

    fn is_allowed(&self, name: &str) -> bool {
        self.protected.check(&self.target(name)).is_ok()
    }

    fn is_allowed_stage(&self, name: &str) -> bool {
        let place = resolved(self.target(name).as_path());
        self.protected.check_resolved_stage(&place).is_ok()
    }
}

#[test]
fn protected_paths_above_and_below_are_refused() {
    let fixture = fixture();
    for name in ["pools/a", "pools", "pools/a/volumes/x", "run", "run/volumes", "run/new/deep"] {
        assert!(!fixture.is_allowed(name), "{name}");
        assert!(!fixture.is_allowed_stage(name), "{name}");
    }
    for name in ["elsewhere", "elsewhere/new/deep", "pools/ab", "pools/b"] {
        assert!(fixture.is_allowed(name), "{name}");
    }
}

#[test]
fn private_staging_path_is_refused() {
    let fixture = fixture();
    assert!(fixture.is_allowed_stage("run/inline/v"));
    assert!(!fixture.is_allowed("run/inline/v"));
}

#[test]
fn symlink_does_not_bypass_protection() {
    let fixture = fixture();
    let at = |name: &str| fixture.directory.path().join(name);
    symlink(at("pools"), at("link")).unwrap();
    symlink(at("elsewhere"), at("other")).unwrap();
    assert!(!fixture.is_allowed("link/a/new"));
    assert!(!fixture.is_allowed("link"));
    assert!(fixture.is_allowed("other/new"));
}
