//! A socket whose file is removed or replaced, or the directory around it: the daemon would run on, and
//! no new caller would find it. It is made again where its path is free; what another process has put
//! there is never removed. The daemon does not end for it: connections that are open go on.

use std::convert::Infallible;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::socket::{BindError, Socket, bind};

/// How often the socket's file is checked. Callers that find nothing try again for longer than this.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// For as long as it is polled. Each time the socket is made again, `renewed` gets its listener.
pub(crate) async fn keep_reachable(
    socket: &mut Socket,
    renewed: mpsc::Sender<UnixListener>,
) -> Infallible {
    let mut lost = Lost::default();
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        // Without an answer the process is about to end.
        if spawn_blocking(socket.presence()).await.unwrap_or(true) {
            lost.found_again(socket);
            continue;
        }
        lost.note(socket);
        let path = socket.path().to_owned();
        let Ok(bound) = spawn_blocking(move || bind(&path)).await else { continue };
        match bound {
            Ok(mut made) => {
                let listener = made.take_listener();
                let former = std::mem::replace(socket, made);
                // It takes a lock, to see that the file is not its own any more.
                let _ = spawn_blocking(move || drop(former)).await;
                lost.found_again(socket);
                if let Some(listener) = listener {
                    // Fails only if no more connections are accepted, as during a stop.
                    let _ = renewed.send(listener).await;
                }
            }
            Err(error) => lost.failed(socket, &error),
        }
    }
}

/// What was logged of a socket that is lost: each thing once.
#[derive(Default)]
struct Lost {
    is_noted: bool,
    failure: Option<String>,
}

impl Lost {
    fn note(&mut self, socket: &Socket) {
        if !std::mem::replace(&mut self.is_noted, true) {
            tracing::error!(
                socket = %socket.path().display(),
                "the socket's file or its directory was removed or replaced, so no new caller can \
                 connect; making the socket again"
            );
        }
    }

    fn failed(&mut self, socket: &Socket, error: &BindError) {
        let failure = Some(error.to_string());
        if self.failure != failure {
            tracing::error!(
                socket = %socket.path().display(),
                %error,
                "no new caller can connect until the socket can be made again; if this lasts, \
                 restart the daemon"
            );
            self.failure = failure;
        }
    }

    fn found_again(&mut self, socket: &Socket) {
        if std::mem::take(self).is_noted {
            tracing::warn!(socket = %socket.path().display(), "the socket is there again");
        }
    }
}
