//! A connection to a cluster.

use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use super::handle::{CephCall, call, close, copied, owned};
use super::library::{Handle, end_without_destructors};
use super::locks::without_protocol;
use super::objects::IoCtx;
use crate::error::Result;

/// The cluster, and the user to connect as. The key is not in it: librados reads the keyring itself.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// As `mon_host` has them: `10.0.0.1,10.0.0.2` or `[v2:10.0.0.1:3300]`.
    pub monitors: String,
    /// Without `client.`
    pub user: String,
    pub keyring: PathBuf,
    /// For the first answer of a monitor.
    pub connect_timeout: Duration,
    /// For a single operation on an object or of a monitor.
    pub operation_timeout: Duration,
}

/// librados finds its way back by itself when monitors or stores were away. After the cluster has
/// blocklisted this client all calls fail with `ESHUTDOWN`, for good: make a new connection.
#[derive(Debug)]
pub struct Cluster {
    handle: Handle,
    monitors: String,
}

// SAFETY: librados locks inside; a cluster handle may be used by many threads at once.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

/// Five years. A fenced client must not be able to write when it returns, however late that is.
pub const FENCED_FOR: Duration = Duration::from_secs(5 * 365 * 24 * 60 * 60);

/// After this part of its time an operation counts as late, and librados asks the monitors where the
/// stores are now. Its own setting is ten seconds: an operation that is given up before would never
/// be late, and a store that comes back under another address would never be found.
const LATE_FRACTION: u32 = 4;
/// How often librados looks for that, and tells the stores that it lives; more would be lost time.
const MAX_TICK: Duration = Duration::from_secs(5);

fn seconds(duration: Duration) -> String {
    let duration = duration.min(MAX_TICK);
    format!("{}.{:03}", duration.as_secs(), duration.subsec_millis())
}

impl Cluster {
    pub fn connect(config: &ClusterConfig) -> Result<Arc<Self>> {
        let connecting = CephCall { operation: "connect to", subject: &config.monitors };
        let cluster = connecting.text("ceph")?;
        let user = connecting.text(&format!("client.{}", config.user))?;
        let mut handle = ptr::null_mut();
        let code = call!(rados.rados_create2(&raw mut handle, cluster.as_ptr(), user.as_ptr(), 0));
        connecting.check(code)?;
        let connected = Self { handle, monitors: config.monitors.clone() };
        connected.configure(config)?;
        connecting.check(call!(rados.rados_connect(handle)))?;
        end_without_destructors();
        Ok(Arc::new(connected))
    }

    fn configure(&self, config: &ClusterConfig) -> Result<()> {
        let connect = config.connect_timeout.as_secs().to_string();
        let operation = config.operation_timeout.as_secs().to_string();
        let late = seconds(config.operation_timeout / LATE_FRACTION);
        let keyring = config.keyring.to_string_lossy();
        let options = [
            ("mon_host", config.monitors.as_str()),
            ("keyring", &keyring),
            ("client_mount_timeout", &connect),
            ("rados_mon_op_timeout", &operation),
            ("rados_osd_op_timeout", &operation),
            ("objecter_timeout", &late),
            ("objecter_tick_interval", &late),
            // Its own log would go around ours, and a separate file would need rotating.
            ("log_to_stderr", "false"),
            ("err_to_stderr", "false"),
            ("log_file", ""),
        ];
        for (option, value) in options {
            self.set_option(option, value)?;
        }
        // The thread that reports an image as open accesses it once more afterwards. With two threads, the other
        // may have closed and freed the image by then: seen as a call that never ended (Ceph 20) and, probably, as
        // a process that aborted (Ceph 16).
        match self.set_option("librados_thread_count", "1") {
            // Ceph 15 has its threads elsewhere.
            Err(error) if error.is_not_found() => Ok(()),
            set => set,
        }
    }

    fn set_option(&self, option: &str, value: &str) -> Result<()> {
        let setting = CephCall { operation: "set the option", subject: option };
        let (option, value) = (setting.text(option)?, setting.text(value)?);
        let code = call!(rados.rados_conf_set(self.handle, option.as_ptr(), value.as_ptr()));
        setting.check(code)?;
        Ok(())
    }

    fn call(&self, operation: &'static str) -> CephCall<'_> {
        CephCall { operation, subject: &self.monitors }
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    /// A pool, or one of its namespaces.
    pub fn pool(self: &Arc<Self>, pool: &str, namespace: &str) -> Result<Arc<IoCtx>> {
        IoCtx::open(Arc::clone(self), pool, namespace)
    }

    /// A command of the monitors, in their JSON; returns what they answer.
    pub fn monitor_command(&self, command: &str) -> Result<Vec<u8>> {
        let calling = self.call("give a command to");
        let command = calling.text(command)?;
        let commands = [command.as_ptr()];
        let (mut answer, mut length) = (ptr::null_mut(), 0);
        let (mut status, mut status_length) = (ptr::null_mut(), 0);
        let code = call!(rados.rados_mon_command(
            self.handle,
            commands.as_ptr(),
            commands.len(),
            ptr::null(),
            0,
            &raw mut answer,
            &raw mut length,
            &raw mut status,
            &raw mut status_length,
        ));
        let text = copied(answer, length);
        for buffer in [answer, status] {
            call!(rados.rados_buffer_free(buffer));
        }
        calling.check(code)?;
        Ok(text)
    }

    /// Where the cluster sees this client, as [`Cluster::blocklist`] takes it.
    pub fn own_address(&self) -> Result<String> {
        let mut text = ptr::null_mut();
        let code = call!(rados.rados_getaddrs(self.handle, &raw mut text));
        self.call("read this client's address from").check(code)?;
        let address = without_protocol(&owned(text)).to_owned();
        // SAFETY: the library hands out a copy, made with malloc, that no other code has.
        unsafe { libc::free(text.cast()) };
        Ok(address)
    }

    /// An object store that is asked anything by us, or by a client that connects later, has learned of it
    /// first: what the old client wrote until then is there, and nothing comes after it.
    pub fn blocklist(&self, address: &str, lasting: Duration) -> Result<()> {
        let calling = CephCall { operation: "blocklist the client", subject: address };
        let seconds = u32::try_from(lasting.as_secs()).unwrap_or(u32::MAX);
        let address = calling.text(address)?;
        let text = address.as_ptr().cast_mut();
        calling.check(call!(rados.rados_blocklist_add(self.handle, text, seconds)))?;
        self.wait_for_latest_map()
    }

    /// Whatever the monitors have decided until now, this client knows.
    fn wait_for_latest_map(&self) -> Result<()> {
        let code = call!(rados.rados_wait_for_latest_osdmap(self.handle));
        self.call("wait for the latest map of").check(code)?;
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        close!(rados.rados_shutdown(self.handle));
    }
}
