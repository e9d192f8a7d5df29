#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use super::*;

struct Ground {
    directory: tempfile::TempDir,
    protected_paths: ProtectedPaths,
}

fn ground() -> Ground {
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
fn neither_on_nor_above_nor_in() {
    let ground = ground();
    for name in ["pools/a", "pools", "pools/a/volumes/x", "run", "run/volumes", "run/new/deep"] {
        assert!(!ground.is_allowed(name), "{name}");
        assert!(ground.protected_paths.check_stage(&ground.target(name)).is_err(), "{name}");
    }
    for name in ["elsewhere", "elsewhere/new/deep", "pools/ab", "pools/b"] {
        assert!(ground.is_allowed(name), "{name}");
    }
}

#[test]
fn a_private_stage_is_not_for_callers() {
    let ground = ground();
    let own = ground.target("run/inline/v");
    assert!(ground.protected_paths.check_stage(&own).is_ok());
    assert!(ground.protected_paths.check(&own).is_err());
}

#[test]
fn a_link_does_not_lead_around() {
    let ground = ground();
    let at = |name: &str| ground.directory.path().join(name);
    symlink(at("pools"), at("link")).unwrap();
    symlink(at("elsewhere"), at("other")).unwrap();
    assert!(!ground.is_allowed("link/a/new"));
    assert!(!ground.is_allowed("link"));
    assert!(ground.is_allowed("other/new"));
}
