#![allow(clippy::unwrap_used)]

use super::*;

const LENGTH: usize = 3 * CHUNK + 4096;
const VOLUME: usize = 5 * CHUNK;
const CREATED: VolumeOrigin = VolumeOrigin::Created;
const INTERRUPTED: VolumeOrigin = VolumeOrigin::Interrupted { still_attached: false };
const ATTACHED: VolumeOrigin = VolumeOrigin::Interrupted { still_attached: true };

struct Fixture {
    dir: tempfile::TempDir,
    mark: String,
}

impl Fixture {
    /// An image and a volume, which is zero.
    fn new(image: &[u8]) -> Self {
        let fixture = Self { dir: tempfile::tempdir().unwrap(), mark: new_mark().unwrap() };
        fixture.write("image", image);
        fixture.write("volume", &vec![0; VOLUME]);
        fixture
    }

    fn write(&self, name: &str, contents: &[u8]) {
        std::fs::write(self.dir.path().join(name), contents).unwrap();
    }

    fn volume(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join("volume")).unwrap()
    }

    fn fill(&self, origin: VolumeOrigin, stop: &StopFlag) -> Result<Option<u64>> {
        let open = |name: &str, write| NamedFile::open(&self.dir.path().join(name), write).unwrap();
        let (mut source, device) = (open("image", false), open("volume", true));
        let length = source.length().unwrap();
        let mut import_copy = ImportCopy {
            source: &mut source,
            device: &device,
            length,
            mark: &self.mark,
            is_verified: true,
            stop,
        };
        import_copy.run(origin)
    }

    /// Ends before the first chunk after the mark.
    fn interrupt(&self, origin: VolumeOrigin) {
        let stop = StopFlag::default();
        stop.request();
        assert!(matches!(self.fill(origin, &stop), Err(Failure::Interrupted(_))));
    }

    #[track_caller]
    fn assert_filled_with(&self, image: &[u8]) {
        let volume = self.volume();
        assert!(volume[..image.len()] == *image, "the image");
        assert!(volume[image.len()..].iter().all(|byte| *byte == 0), "what is after the image");
    }
}

fn image(byte: u8) -> Vec<u8> {
    vec![byte; LENGTH]
}

#[test]
fn an_interrupted_import_is_recognized_and_finished() {
    let fixture = Fixture::new(&image(7));
    fixture.interrupt(CREATED);
    assert!(fixture.volume().starts_with(b"orlop volume import "));
    assert_eq!(fixture.fill(INTERRUPTED, &StopFlag::default()).unwrap(), Some(LENGTH as u64));
    fixture.assert_filled_with(&image(7));
    // Interrupted after its last write: it is complete, and nothing is written.
    assert_eq!(fixture.fill(INTERRUPTED, &StopFlag::default()).unwrap(), Some(0));
}

/// The same name and id, but another volume: it was deleted and made again, and is used.
#[test]
fn a_volume_without_the_mark_is_not_overwritten() {
    let fixture = Fixture::new(&image(7));
    fixture.interrupt(CREATED);
    for other in [vec![0; VOLUME], vec![9; VOLUME]] {
        fixture.write("volume", &other);
        assert_eq!(fixture.fill(INTERRUPTED, &StopFlag::default()).unwrap(), None);
        assert!(fixture.volume() == other);
    }
    // Written to within the mark, as mkfs does.
    let mut used = vec![0; VOLUME];
    fixture.write("volume", &used);
    fixture.interrupt(CREATED);
    used = fixture.volume();
    used[4096..8192].fill(1);
    fixture.write("volume", &used);
    assert_eq!(fixture.fill(INTERRUPTED, &StopFlag::default()).unwrap(), None);
    assert_eq!(fixture.fill(ATTACHED, &StopFlag::default()).unwrap(), None);
    assert!(fixture.volume() == used);
}

#[test]
fn a_mark_of_another_import_does_not_count() {
    let mut fixture = Fixture::new(&image(7));
    fixture.interrupt(CREATED);
    fixture.mark = new_mark().unwrap();
    assert_eq!(fixture.fill(INTERRUPTED, &StopFlag::default()).unwrap(), None);
    fixture.mark = String::new();
    assert_eq!(fixture.fill(INTERRUPTED, &StopFlag::default()).unwrap(), None);
}

#[test]
fn a_zero_volume_that_is_still_attached_is_filled() {
    let fixture = Fixture::new(&image(7));
    assert_eq!(fixture.fill(ATTACHED, &StopFlag::default()).unwrap(), Some(LENGTH as u64));
    fixture.assert_filled_with(&image(7));
}

/// Where the new image has zeroes or nothing at all, the old one was.
#[test]
fn nothing_is_left_of_an_image_that_was_replaced() {
    let fixture = Fixture::new(&image(7));
    fixture.interrupt(CREATED);
    let mut half_way = fixture.volume();
    half_way[CHUNK..LENGTH].fill(7);
    for length in [LENGTH, CHUNK + 4096, 4096] {
        fixture.write("volume", &half_way);
        let mut replaced = vec![0; length];
        replaced[length - 10..].fill(8);
        fixture.write("image", &replaced);
        assert!(fixture.fill(INTERRUPTED, &StopFlag::default()).unwrap().is_some());
        fixture.assert_filled_with(&replaced);
    }
}

#[test]
fn a_volume_smaller_than_the_mark_is_filled() {
    let fixture = Fixture::new(&[7; 4096]);
    fixture.write("volume", &[0; 8192]);
    assert_eq!(fixture.fill(CREATED, &StopFlag::default()).unwrap(), Some(4096));
    fixture.assert_filled_with(&[7; 4096]);
}
