//! A question and its answer over a socket, without anything that understands them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

pub(crate) struct Echo {
    stream: Option<UnixStream>,
    answering: Option<JoinHandle<()>>,
}

impl Echo {
    pub(crate) fn new() -> Self {
        let (stream, mut other) = UnixStream::pair().expect("a pair of sockets");
        let answering = std::thread::spawn(move || {
            let mut byte = [0];
            while other.read_exact(&mut byte).is_ok() && other.write_all(&byte).is_ok() {}
        });
        Self { stream: Some(stream), answering: Some(answering) }
    }

    pub(crate) fn ask(&mut self) {
        let stream = self.stream.as_mut().expect("an open socket");
        let mut byte = [1];
        stream.write_all(&byte).expect("ask");
        stream.read_exact(&mut byte).expect("be answered");
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        drop(self.stream.take());
        let ended = self.answering.take().map(JoinHandle::join);
        ended.expect("a thread").expect("the other side ends with the socket");
    }
}
