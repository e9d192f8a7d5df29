//! The functions of librados and librbd, looked up at run time.
//!
//! The signatures are those of `rados/librados.h` and `rbd/librbd.h` of Ceph 16, which later
//! releases keep; what is optional came later, and is as in Ceph 20. Pointers to structures of Ceph are `c_void` here: they are only handed back.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem;
use std::path::Path;
use std::sync::{Mutex, Once};

use crate::error::{Error, Result};

pub(super) type Handle = *mut c_void;
type Text = *const c_char;
pub(super) type ProgressCallback = extern "C" fn(u64, u64, *mut c_void) -> c_int;
pub(super) type DiffCallback = extern "C" fn(u64, usize, c_int, *mut c_void) -> c_int;

macro_rules! library {
    (
        $table:ident, $file:literal:
        $(fn $function:ident($($argument:ty),*) $(-> $result:ty)?;)*
        $(optional fn $later:ident($($given:ty),*) -> $answer:ty;)*
    ) => {
        #[allow(clippy::struct_field_names, reason = "named as in the library")]
        pub(super) struct $table {
            $(pub(super) $function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            $(pub(super) $later: Option<unsafe extern "C" fn($($given),*) -> $answer>,)*
        }

        impl $table {
            fn load() -> Result<Self> {
                let library = open($file)?;
                Ok(Self {
                    $($function: {
                        let symbol = symbol(library, $file, stringify!($function))?;
                        // SAFETY: the library says that this name is a function, and its header
                        // that it is one of this signature.
                        unsafe {
                            mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(symbol)
                        }
                    },)*
                    $($later: find(library, $file, stringify!($later))?.map(|symbol| {
                        // SAFETY: as above.
                        unsafe {
                            mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($given),*) -> $answer,
                            >(symbol)
                        }
                    }),)*
                })
            }
        }
    };
}

library! { Rados, "librados.so.2":
    fn rados_version(*mut c_int, *mut c_int, *mut c_int);
    fn rados_create2(*mut Handle, Text, Text, u64) -> c_int;
    fn rados_conf_set(Handle, Text, Text) -> c_int;
    fn rados_connect(Handle) -> c_int;
    fn rados_shutdown(Handle);
    fn rados_blocklist_add(Handle, *mut c_char, u32) -> c_int;
    fn rados_getaddrs(Handle, *mut *mut c_char) -> c_int;
    fn rados_wait_for_latest_osdmap(Handle) -> c_int;
    fn rados_mon_command(
        Handle, *const Text, usize, Text, usize,
        *mut *mut c_char, *mut usize, *mut *mut c_char, *mut usize
    ) -> c_int;
    fn rados_buffer_free(*mut c_char);
    fn rados_ioctx_create(Handle, Text, *mut Handle) -> c_int;
    fn rados_ioctx_destroy(Handle);
    fn rados_ioctx_set_namespace(Handle, Text);
    fn rados_set_pool_full_try(Handle);
    fn rados_stat(Handle, Text, *mut u64, *mut libc::time_t) -> c_int;
    fn rados_read(Handle, Text, *mut c_char, usize, u64) -> c_int;
    fn rados_exec(Handle, Text, Text, Text, Text, usize, *mut c_char, usize) -> c_int;
    fn rados_lock_exclusive(
        Handle, Text, Text, Text, Text, *mut libc::timeval, u8
    ) -> c_int;
    fn rados_unlock(Handle, Text, Text, Text) -> c_int;
    fn rados_list_lockers(
        Handle, Text, Text, *mut c_int, *mut c_char, *mut usize, *mut c_char, *mut usize,
        *mut c_char, *mut usize, *mut c_char, *mut usize
    ) -> isize;
    fn rados_break_lock(Handle, Text, Text, Text, Text) -> c_int;
    fn rados_create_write_op() -> Handle;
    fn rados_release_write_op(Handle);
    fn rados_write_op_assert_exists(Handle);
    fn rados_write_op_create(Handle, c_int, Text);
    fn rados_write_op_write_full(Handle, Text, usize);
    fn rados_write_op_cmpext(Handle, Text, usize, u64, *mut c_int);
    fn rados_write_op_remove(Handle);
    fn rados_write_op_omap_cmp2(Handle, Text, u8, Text, usize, usize, *mut c_int);
    fn rados_write_op_omap_set2(
        Handle, *const Text, *const Text, *const usize, *const usize, usize
    );
    fn rados_write_op_omap_rm_keys2(Handle, *const Text, *const usize, usize);
    fn rados_write_op_operate(Handle, Handle, Text, *mut libc::time_t, c_int) -> c_int;
    fn rados_create_read_op() -> Handle;
    fn rados_release_read_op(Handle);
    fn rados_read_op_omap_get_vals2(
        Handle, Text, Text, u64, *mut Handle, *mut u8, *mut c_int
    );
    fn rados_read_op_operate(Handle, Handle, Text, c_int) -> c_int;
    fn rados_omap_get_next2(
        Handle, *mut *mut c_char, *mut *mut c_char, *mut usize, *mut usize
    ) -> c_int;
    fn rados_omap_get_end(Handle);
}

library! { Rbd, "librbd.so.1":
    fn rbd_version(*mut c_int, *mut c_int, *mut c_int);
    fn rbd_image_options_create(*mut Handle);
    fn rbd_image_options_destroy(Handle);
    fn rbd_image_options_set_uint64(Handle, c_int, u64) -> c_int;
    fn rbd_create4(Handle, Text, u64, Handle) -> c_int;
    fn rbd_clone3(Handle, Text, Text, Handle, Text, Handle) -> c_int;
    fn rbd_open(Handle, Text, *mut Handle, Text) -> c_int;
    fn rbd_open_read_only(Handle, Text, *mut Handle, Text) -> c_int;
    fn rbd_open_by_id(Handle, Text, *mut Handle, Text) -> c_int;
    fn rbd_open_by_id_read_only(Handle, Text, *mut Handle, Text) -> c_int;
    fn rbd_close(Handle) -> c_int;
    fn rbd_get_id(Handle, *mut c_char, usize) -> c_int;
    fn rbd_get_size(Handle, *mut u64) -> c_int;
    fn rbd_resize2(Handle, u64, bool, ProgressCallback, *mut c_void) -> c_int;
    fn rbd_get_create_timestamp(Handle, *mut libc::timespec) -> c_int;
    fn rbd_get_parent(Handle, *mut RawLinkedImage, *mut RawSnapshot) -> c_int;
    fn rbd_linked_image_spec_cleanup(*mut RawLinkedImage);
    fn rbd_snap_spec_cleanup(*mut RawSnapshot);
    fn rbd_flatten(Handle) -> c_int;
    fn rbd_sparsify(Handle, usize) -> c_int;
    fn rbd_read(Handle, u64, usize, *mut c_char) -> isize;
    fn rbd_write(Handle, u64, usize, Text) -> isize;
    fn rbd_discard(Handle, u64, u64) -> c_int;
    fn rbd_flush(Handle) -> c_int;
    fn rbd_metadata_get(Handle, Text, *mut c_char, *mut usize) -> c_int;
    fn rbd_metadata_set(Handle, Text, Text) -> c_int;
    fn rbd_snap_create(Handle, Text) -> c_int;
    fn rbd_snap_remove(Handle, Text) -> c_int;
    fn rbd_snap_is_protected(Handle, Text, *mut c_int) -> c_int;
    fn rbd_snap_remove_by_id(Handle, u64) -> c_int;
    fn rbd_snap_list(Handle, *mut RawSnapshotInfo, *mut c_int) -> c_int;
    fn rbd_snap_list_end(*mut RawSnapshotInfo);
    fn rbd_snap_set_by_id(Handle, u64) -> c_int;
    fn rbd_snap_get_namespace_type(Handle, u64, *mut c_int) -> c_int;
    fn rbd_snap_get_trash_namespace(Handle, u64, *mut c_char, usize) -> c_int;
    fn rbd_snap_get_group_namespace(Handle, u64, *mut RawGroupSnapshot, usize) -> c_int;
    fn rbd_snap_group_namespace_cleanup(*mut RawGroupSnapshot, usize) -> c_int;
    fn rbd_diff_iterate2(
        Handle, Text, u64, u64, u8, u8, DiffCallback, *mut c_void
    ) -> c_int;
    fn rbd_watchers_list(Handle, *mut RawWatcher, *mut usize) -> c_int;
    fn rbd_watchers_list_cleanup(*mut RawWatcher, usize);
    fn rbd_trash_restore(Handle, Text, Text) -> c_int;
    fn rbd_trash_remove(Handle, Text, bool) -> c_int;
    fn rbd_trash_list(Handle, *mut RawTrashed, *mut usize) -> c_int;
    fn rbd_trash_list_cleanup(*mut RawTrashed, usize);
    fn rbd_get_group(Handle, *mut RawGroup, usize) -> c_int;
    fn rbd_group_info_cleanup(*mut RawGroup, usize) -> c_int;
    fn rbd_group_create(Handle, Text) -> c_int;
    fn rbd_group_remove(Handle, Text) -> c_int;
    fn rbd_group_image_add(Handle, Text, Handle, Text) -> c_int;
    fn rbd_group_image_remove_by_id(Handle, Text, Handle, Text) -> c_int;
    fn rbd_group_snap_create(Handle, Text, Text) -> c_int;
    optional fn rbd_clone4(Handle, Text, u64, Handle, Text, Handle) -> c_int;
    optional fn rbd_diff_iterate3(
        Handle, u64, u64, u64, u32, DiffCallback, *mut c_void
    ) -> c_int;
}

#[repr(C)]
pub(super) struct RawLinkedImage {
    pub(super) pool_id: i64,
    pub(super) pool_name: *mut c_char,
    pub(super) pool_namespace: *mut c_char,
    pub(super) image_id: *mut c_char,
    pub(super) image_name: *mut c_char,
    pub(super) trash: bool,
}

#[repr(C)]
pub(super) struct RawSnapshot {
    pub(super) id: u64,
    pub(super) namespace_type: c_int,
    pub(super) name: *mut c_char,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RawSnapshotInfo {
    pub(super) id: u64,
    pub(super) size: u64,
    pub(super) name: *const c_char,
}

#[repr(C)]
pub(super) struct RawGroup {
    pub(super) name: *mut c_char,
    pub(super) pool: i64,
}

#[repr(C)]
pub(super) struct RawGroupSnapshot {
    pub(super) group_pool: i64,
    pub(super) group_name: *mut c_char,
    pub(super) group_snap_name: *mut c_char,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RawWatcher {
    pub(super) addr: *mut c_char,
    pub(super) id: i64,
    pub(super) cookie: u64,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct RawTrashed {
    pub(super) id: *mut c_char,
    pub(super) name: *mut c_char,
    pub(super) source: c_int,
    pub(super) deletion_time: libc::time_t,
    pub(super) deferment_end_time: libc::time_t,
}

pub(super) struct Library {
    pub(super) rados: Rados,
    pub(super) rbd: Rbd,
}

/// Once loaded they stay: librados leaves threads behind that a `dlclose` would pull the code from
/// under. A failure is not remembered, as the package may be installed later.
pub(super) fn library() -> Result<&'static Library> {
    static LOADED: Mutex<Option<&'static Library>> = Mutex::new(None);
    let mut loaded = LOADED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(library) = *loaded {
        return Ok(library);
    }
    let library: &'static Library =
        Box::leak(Box::new(Library { rados: Rados::load()?, rbd: Rbd::load()? }));
    *loaded = Some(library);
    Ok(library)
}

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Threads of librados may still be at work when the process ends, also after every connection was
/// shut down. Its destructors would take from them what they use, so none of them runs: what was
/// registered last is called first, and the libraries register nothing after the first connection.
#[cfg(target_env = "gnu")]
pub(super) fn end_without_destructors() {
    static REGISTERED: Once = Once::new();
    extern "C" fn end(status: c_int, _: *mut c_void) {
        // SAFETY: takes a number; nothing runs after it.
        unsafe { libc::_exit(status) }
    }
    REGISTERED.call_once(|| {
        // SAFETY: the function is there as long as the process, and does without its argument. A
        // refusal for want of memory leaves things as they were.
        unsafe { on_exit(end, std::ptr::null_mut()) };
    });
}

/// Other C libraries have no `on_exit`.
#[cfg(not(target_env = "gnu"))]
pub(super) fn end_without_destructors() {}

fn open(file: &str) -> Result<Handle> {
    let name = CString::new(file).map_err(|_| missing(file, "its name holds a NUL".to_owned()))?;
    // SAFETY: the name is terminated. What the libraries do when they are loaded is theirs to
    // know; they are made for it.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(missing(file, last_reason()));
    }
    Ok(handle)
}

fn symbol(library: Handle, file: &str, name: &str) -> Result<*mut c_void> {
    let without = || missing(file, format!("it has no {name}; Ceph 16 or later is needed"));
    find(library, file, name)?.ok_or_else(without)
}

fn find(library: Handle, file: &str, name: &str) -> Result<Option<*mut c_void>> {
    let text = CString::new(name).map_err(|_| missing(file, "a name holds a NUL".to_owned()))?;
    // SAFETY: an open library and a terminated name.
    let symbol = unsafe { libc::dlsym(library, text.as_ptr()) };
    Ok((!symbol.is_null()).then_some(symbol))
}

fn last_reason() -> String {
    // SAFETY: takes nothing.
    let reason = unsafe { libc::dlerror() };
    if reason.is_null() {
        return "no reason is given".to_owned();
    }
    // SAFETY: not null, hence a terminated text that stays until the next call on this thread.
    unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned()
}

fn missing(file: &str, reason: String) -> Error {
    Error::refused("load", Path::new(file), reason)
}
