use super::*;

#[test]
fn nothing_is_detached_before_it_was_compared() {
    let (device, data) = (Path::new("/dev/loop7"), Path::new("/pool/data"));
    let points = ["/pods/a b", "/staging"].map(PathBuf::from);
    let text = in_order([
        unmount_command(&points),
        Some(copy_commands(device, &saved(data))),
        Some(rename_command(&saved(data), data)),
        detach_command(&[device.to_owned()]),
    ]);
    assert_eq!(
        text,
        "sync -f /pods/a\\ b /staging && umount /pods/a\\ b /staging && dd if=/dev/loop7 of=/pool/data.saved bs=1M iflag=direct \
         conv=sparse,fsync && cmp /dev/loop7 /pool/data.saved && mv /pool/data.saved /pool/data && \
         losetup --detach /dev/loop7"
    );
}

#[test]
fn commands_without_anything_to_do_are_left_out() {
    assert_eq!(in_order([unmount_command(&[]), detach_command(&[])]), "");
}
