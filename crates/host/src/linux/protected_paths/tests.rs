#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use super::*;

struct Ground {
    directory: tempfile::TempDir,
    protected_paths: ProtectedPaths,
}

fn fixture() -> Ground {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in ["pools/a", "run", "elsewhere"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    let protected_paths = ProtectedPaths::new(vec![at("pools/a"), at("run")], at("run/inline"));
    Ground { directory, protected_paths }
}

impl Ground {
    fn target(&self, name: &str) -> TargetPath {
        let path = self.directory.path().join(name);
        TargetPath::parse("path", path.to_str().unwrap()).unwrap()
    }

    fn is_allowed(&self, name: &str) -> bool {
        self.protected_paths.check(&self.target(name)).is_ok()
    }
}

#[test]
fn protected_paths_above_and_below_are_refused() {
    let fixture = fixture();
    for name in ["pools/a", "pools", "pools/a/volumes/x", "run", "run/volumes", "run/new/deep"] {
        assert!(!fixture.is_allowed(name), "{name}");
        assert!(fixture.protected_paths.check_stage(&fixture.target(name)).is_err(), "{name}");
    }
    for name in ["elsewhere", "elsewhere/new/deep", "pools/ab", "pools/b"] {
        assert!(fixture.is_allowed(name), "{name}");
    }
}

#[test]
fn private_staging_path_is_refused() {
    let fixture = fixture();
    let own = fixture.target("run/inline/v");
    assert!(fixture.protected_paths.check_stage(&own).is_ok());
    assert!(fixture.protected_paths.check(&own).is_err());
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
