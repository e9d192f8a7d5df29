//! The Debian package: installed in a fresh root, and started there as its unit says.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orlop_sys::tool;
use orlop_tests::*;
use rustix::process::{Pid, Signal, kill_process};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

const TIMEOUT: Duration = Duration::from_secs(120);

/// A root with what the package depends on and the tools for XFS, and nothing else. `$0` is where, `$1` the package.
const INSTALL: &str = r#"
    set -eu
    root=$0
    for directory in bin sbin lib lib64; do
        mkdir -p "$root/usr/$directory" && ln -s "usr/$directory" "$root/$directory"
    done
    mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/run" "$root/tmp" "$root/etc" "$root/var/lib/dpkg/info" \
        "$root/var/lib/dpkg/updates"
    for program in sh mkfs.xfs xfs_db setpriv; do
        path=$(PATH=/usr/sbin:/usr/bin:/sbin:/bin command -v "$program")
        install -D "$path" "$root/usr/bin/$program"
        ldd "$path" | grep -oE '/[^ ]+' | while read -r library; do
            install -D "$library" "$root/$library"
        done
    done
    ln -s ../bin/mkfs.xfs "$root/usr/sbin/mkfs.xfs"
    ldd "$2" | grep -oE '/[^ ]+' | while read -r library; do install -D "$library" "$root/$library"; done
    # As if they were installed, so that dpkg checks what the package depends on.
    for package in libc6 libgcc-s1; do
        dpkg-query --status "$package" | sed '/^Conffiles:/,/^[A-Z]/{/^Conffiles:/d;/^ /d}'
        echo
    done >"$root/var/lib/dpkg/status"
    dpkg --root="$root" --install "$1"
"#;

/// What a person runs first, without any option.
const COMMANDS: [&[&str]; 6] = [
    &["volume", "list"],
    &["pool", "status"],
    &["pool", "list"],
    &["doctor"],
    &["probe", "--ready"],
    &["serve", "--check"],
];

struct InstalledRoot {
    ground: Daemon,
    path: PathBuf,
}

impl InstalledRoot {
    fn new() -> Self {
        let ground = Launch::without_pool().idle();
        let scratch = ground.launch().scratch().clone();
        let package = build(&scratch);
        let path = scratch.ensure_dir("root");
        let words = ["-c", INSTALL].map(Into::into);
        let arguments =
            [path.as_os_str(), package.as_os_str(), binary().as_os_str()].map(Into::into);
        tool::run("sh", words.into_iter().chain(arguments).collect::<Vec<std::ffi::OsString>>())
            .unwrap();
        Self { ground, path }
    }

    /// Without variables.
    fn run(&self, words: &[&str]) {
        let inside = ["-i".as_ref(), "/usr/sbin/chroot".as_ref(), self.path.as_os_str()];
        let command = std::iter::once("/usr/bin/orlop").chain(words.iter().copied());
        let all = inside.into_iter().chain(command.map(std::ffi::OsStr::new));
        let ran = tool::run("env", all.collect::<Vec<_>>());
        ran.unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }

    fn unit(&self, setting: &str) -> String {
        let unit = std::fs::read_to_string(self.path.join("usr/lib/systemd/system/orlop.service"))
            .unwrap();
        let found = unit.lines().find_map(|line| line.strip_prefix(setting)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("{setting} is not in the unit")).to_owned()
    }
}

fn build(scratch: &Scratch) -> PathBuf {
    let script = format!(
        "ORLOP_TEST_DEB_COMPRESSION=none ORLOP_TEST_BINARY='{}' exec '{REPOSITORY}/scripts/deb' '{}'",
        binary().display(),
        scratch.join("packages").display()
    );
    let made = tool::run("sh", ["-c", &script]).unwrap();
    PathBuf::from(String::from_utf8(made.stdout).unwrap().trim())
}

/// But large reports, the suite for other plugins, and the changelog, which is compressed.
const LEFT_OUT: [&str; 3] = ["reports/", "conformance/", "CHANGELOG.md"];

#[test]
fn packaged_pages_lead_to_packaged_pages() {
    needs_root!();
    let root = InstalledRoot::new();
    let manual = root.path.join("usr/share/doc/orlop");
    let mut followed = 0;
    for folder in ["docs", "docs/deploy", "docs/runbooks"] {
        for entry in std::fs::read_dir(manual.join(folder)).unwrap() {
            let page = entry.unwrap().path();
            // Directories are here too.
            let Ok(text) = std::fs::read_to_string(&page) else { continue };
            let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
            let is_packaged = |link: &&str| {
                let is_page = link.ends_with(".md") && !link.contains("://");
                is_page && LEFT_OUT.iter().all(|left| !link.contains(left))
            };
            for link in links.filter(is_packaged) {
                followed += 1;
                let there = page.parent().unwrap().join(link);
                assert!(there.exists(), "{} leads to {link}", page.display());
            }
        }
    }
    assert!(followed > 50, "only {followed} links were followed");
}

#[test]
fn package_is_the_same_when_it_is_built_again() {
    needs_root!();
    let scratch = Scratch::new();
    let first = std::fs::read(build(&scratch)).unwrap();
    assert_eq!(first, std::fs::read(build(&scratch)).unwrap());
}

/// The rights of the unit, without systemd; the rest of its sandbox is systemd's to apply.
#[expect(clippy::disallowed_methods, reason = "the binary under test is no host tool")]
fn confined(root: &InstalledRoot) -> ConfinedDaemon {
    let kept = root.unit("CapabilityBoundingSet").to_lowercase();
    let kept: Vec<String> = kept.split_whitespace().map(|name| name.replace("cap_", "+")).collect();
    let bounding = format!("--bounding-set=-all,{}", kept.join(","));
    let command = root.unit("ExecStart");
    let words: Vec<&str> = command.split_whitespace().collect();
    assert_eq!(words, ["/usr/bin/orlop", "serve", "--config", "/etc/orlop/orlop.toml"]);
    let output = File::create(root.ground.launch().log_path()).unwrap();
    let child = Command::new("/usr/sbin/chroot")
        .arg(&root.path)
        .args(["/usr/bin/setpriv", &bounding, "--inh-caps=-all", "--no-new-privs"])
        .args(words)
        .env_clear()
        .envs(std::env::var_os("TMPDIR").map(|value| ("TMPDIR", value)))
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn();
    ConfinedDaemon(child.unwrap())
}

/// Killed when dropped.
struct ConfinedDaemon(Child);

impl ConfinedDaemon {
    async fn until_ready(&mut self, client: &Client, root: &InstalledRoot) {
        let deadline = Instant::now() + TIMEOUT;
        while !matches!(client.probe().await, Ok(true)) {
            let runs = self.0.try_wait().unwrap().is_none();
            assert!(runs && Instant::now() < deadline, "{}", root.ground.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn terminate(&mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for ConfinedDaemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn installed_package_serves_a_mounted_volume() {
    needs_root!();
    let root = InstalledRoot::new();
    for (source, target) in [("/dev", "dev"), ("/proc", "proc"), ("/sys", "sys")] {
        let target = root.path.join(target);
        tool::run("mount", ["--rbind".as_ref(), source.as_ref(), target.as_os_str()]).unwrap();
        tool::run("mount", ["--make-rslave".as_ref(), target.as_os_str()]).unwrap();
    }
    let _unmounted = Unmounted(root.path.clone());
    let mut daemon = confined(&root);
    let socket = root.path.join("run/orlop/csi.sock");
    let client = root.ground.client_at(&socket);
    daemon.until_ready(&client, &root).await;
    for words in COMMANDS {
        root.run(words);
    }

    let volume = client.create("first").size(512 * MIB).fs("xfs").done().await;
    let inside = |name: &str| {
        std::fs::create_dir_all(root.path.join(name)).unwrap();
        (format!("/{name}"), root.path.join(name))
    };
    let ((staging, _), (targets, outside)) = (inside("staging"), inside("targets"));
    let mut node = client.on_node(&volume, mount("xfs"));
    node.staging = staging.into();
    node.target = Path::new(&targets).join("first");
    node.stage().await.unwrap();
    node.publish().await.unwrap();
    let file = outside.join("first/file");
    let mounted = orlop_sys::mounts::mount_at(&outside.join("first")).unwrap();
    assert_eq!(mounted.unwrap().fs_type, "xfs", "the volume is not mounted where the host sees it");
    std::fs::write(&file, "precious").unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    node.unpublish().await.unwrap();
    node.unstage().await.unwrap();
    daemon.terminate();

    // A purge leaves the data.
    tool::run("dpkg", [format!("--root={}", root.path.display()).as_str(), "--purge", "orlop"])
        .unwrap();
    assert!(!root.path.join("usr/bin/orlop").exists() && !root.path.join("etc/orlop").exists());
    assert!(
        root.path.join("var/lib/orlop/pool/pool.xfs").exists(),
        "a pool was removed with the package"
    );
}

struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        for name in ["dev", "proc", "sys"] {
            let at = self.0.join(name);
            let _ =
                tool::run("umount", ["--recursive".as_ref(), "--lazy".as_ref(), at.as_os_str()]);
        }
    }
}

/// Nothing in it may make a mount namespace, or volumes are mounted where the host does not see them.
#[test]
fn unit_is_sound_and_makes_no_mount_namespace() {
    needs_root!();
    let unit =
        std::fs::read_to_string(format!("{REPOSITORY}/deploy/systemd/orlop.service")).unwrap();
    let settings: Vec<&str> = unit.lines().filter(|line| !line.starts_with('#')).collect();
    for line in &settings {
        let name = line.split('=').next().unwrap();
        let hides = [
            "Private",
            "Protect",
            "ReadOnly",
            "ReadWrite",
            "Inaccessible",
            "Exec",
            "Bind",
            "Temporary",
            "Root",
            "Mount",
            "Proc",
            "Dynamic",
            "RuntimeDirectory",
            "StateDirectory",
        ];
        let allowed = ["ExecStart"];
        let is_hiding = hides.iter().any(|word| name.starts_with(word)) && !allowed.contains(&name);
        assert!(!is_hiding, "{line}");
    }
    if tool::find("systemd-analyze").is_none() {
        report("systemd-analyze is not installed: the unit is not verified");
        return;
    }
    let scratch = Scratch::new();
    let copy = scratch.join("orlop.service");
    std::fs::write(&copy, unit.replace("/usr/bin/orlop", binary().to_str().unwrap())).unwrap();
    let verified = tool::run("systemd-analyze", ["verify".as_ref(), copy.as_os_str()]).unwrap();
    assert_eq!(String::from_utf8_lossy(&verified.stderr), "");
    let words = ["security", "--offline=true", "--threshold=55"];
    let words: Vec<&std::ffi::OsStr> =
        words.iter().map(AsRef::as_ref).chain([copy.as_os_str()]).collect();
    tool::run("systemd-analyze", words).unwrap();
}
