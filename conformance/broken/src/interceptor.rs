//! How a plugin is made to break a rule: what it is asked, or what it answers, is changed on the
//! way. Everything else stays as it is.

use csi_conformance::wire::Rpc;
use prost::Message;
use prost::bytes::Bytes;
use tonic::codegen::http::HeaderMap;
use tonic::{Code, Status};

pub(crate) type Answer<T> = Result<T, Status>;

/// What becomes of a request before the plugin sees it.
pub(crate) enum Before {
    Forward(Bytes),
    Answer(Answer<Bytes>),
}

type Asked = Box<dyn Fn(&str, Bytes) -> Before + Send + Sync>;
type Answered = Box<dyn Fn(&str, &Bytes, Answer<Bytes>) -> Answer<Bytes> + Send + Sync>;
type Headed = Box<dyn Fn(&str, &mut HeaderMap) + Send + Sync>;
type Streamed = Box<dyn Fn(&str, &Bytes, &mut Vec<Bytes>, &mut Answer<()>) + Send + Sync>;

/// Changes, each applied in turn. Closures are called by several calls at once; what they have to
/// remember goes into an atomic or a mutex.
#[derive(Default)]
pub(crate) struct Interceptor {
    asked: Vec<Asked>,
    answered: Vec<Answered>,
    streamed: Vec<Streamed>,
    headed: Vec<Headed>,
}

impl Interceptor {
    /// Changes the request that the plugin gets to see.
    pub(crate) fn ask<R: Rpc>(mut self, change: impl Fn(&mut R) + Send + Sync + 'static) -> Self {
        self.asked.push(Box::new(move |path, bytes| {
            let Some(mut request) = decoded::<R>(path, &bytes) else {
                return Before::Forward(bytes);
            };
            change(&mut request);
            Before::Forward(encoded(&request))
        }));
        self
    }

    /// Answers in the plugin's place, which never hears of it; `None`: not this time.
    pub(crate) fn answer<R: Rpc>(
        mut self,
        answer: impl Fn(&R) -> Option<Answer<R::Reply>> + Send + Sync + 'static,
    ) -> Self {
        self.asked.push(Box::new(move |path, bytes| {
            match decoded::<R>(path, &bytes).and_then(|request| answer(&request)) {
                Some(answer) => Before::Answer(answer.map(|reply| encoded(&reply))),
                None => Before::Forward(bytes),
            }
        }));
        self
    }

    /// Changes a reply, but no refusal.
    pub(crate) fn reply<R: Rpc>(
        self,
        change: impl Fn(&R, &mut R::Reply) + Send + Sync + 'static,
    ) -> Self {
        self.outcome::<R>(move |request, answer| {
            answer.map(|mut reply| {
                change(request, &mut reply);
                reply
            })
        })
    }

    /// Changes a refusal, but no reply.
    pub(crate) fn refusal<R: Rpc>(
        self,
        change: impl Fn(&R, Status) -> Answer<R::Reply> + Send + Sync + 'static,
    ) -> Self {
        self.outcome::<R>(move |request, answer| answer.or_else(|status| change(request, status)))
    }

    /// Changes either.
    pub(crate) fn outcome<R: Rpc>(
        mut self,
        change: impl Fn(&R, Answer<R::Reply>) -> Answer<R::Reply> + Send + Sync + 'static,
    ) -> Self {
        self.answered.push(Box::new(move |path, bytes, answer| {
            let Some(request) = decoded::<R>(path, bytes) else {
                return answer;
            };
            let answer = answer.and_then(|bytes| {
                R::Reply::decode(bytes).map_err(|error| Status::internal(error.to_string()))
            });
            change(&request, answer).map(|reply| encoded(&reply))
        }));
        self
    }

    /// A refusal with one code becomes one with another.
    pub(crate) fn recode<R: Rpc>(self, from: Code, to: Code) -> Self {
        self.refusal::<R>(move |_, status| {
            Err(if status.code() == from { Status::new(to, status.message()) } else { status })
        })
    }

    /// A refusal with this code becomes an empty reply: the rule is not looked at.
    pub(crate) fn accept<R: Rpc>(self, code: Code) -> Self {
        self.refusal::<R>(
            move |_, status| {
                if status.code() == code { Ok(R::Reply::default()) } else { Err(status) }
            },
        )
    }

    /// Does nothing and says that it did.
    pub(crate) fn forget<R: Rpc>(self) -> Self {
        self.answer::<R>(|_| Some(Ok(R::Reply::default())))
    }

    /// Does not know the call.
    pub(crate) fn unimplemented<R: Rpc>(self) -> Self {
        self.answer::<R>(|_| Some(Err(Status::unimplemented("not implemented"))))
    }

    /// Changes the refusals of all calls.
    pub(crate) fn every_status(
        mut self,
        change: impl Fn(&str, Status) -> Status + Send + Sync + 'static,
    ) -> Self {
        self.answered
            .push(Box::new(move |path, _, answer| answer.map_err(|status| change(path, status))));
        self
    }

    /// Changes the headers of all answers; that of a refusal has its code and its text.
    pub(crate) fn headers(
        mut self,
        change: impl Fn(&str, &mut HeaderMap) + Send + Sync + 'static,
    ) -> Self {
        self.headed.push(Box::new(change));
        self
    }

    /// Changes the bytes of one call's replies, for what the messages cannot express.
    pub(crate) fn reply_bytes<R: Rpc>(
        mut self,
        change: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        self.answered.push(Box::new(move |path, _, answer| {
            if path != R::PATH {
                return answer;
            }
            answer.map(|bytes| Bytes::from(change(bytes.to_vec())))
        }));
        self
    }

    /// Changes the bytes of one call's requests, as if the plugin read them by other numbers.
    pub(crate) fn ask_bytes<R: Rpc>(
        mut self,
        change: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        self.asked.push(Box::new(move |path, bytes| {
            let is_this = path == R::PATH;
            Before::Forward(if is_this { change(bytes.to_vec()).into() } else { bytes })
        }));
        self
    }

    /// Has a method that it should not have.
    pub(crate) fn serve(mut self, method: &'static str) -> Self {
        self.asked.push(Box::new(move |path, bytes| {
            if path == method { Before::Answer(Ok(Bytes::new())) } else { Before::Forward(bytes) }
        }));
        self
    }

    /// Changes what a stream holds and how it ends.
    pub(crate) fn stream<R: Rpc>(
        mut self,
        change: impl Fn(&R, &mut Vec<R::Reply>, &mut Answer<()>) + Send + Sync + 'static,
    ) -> Self {
        self.streamed.push(Box::new(move |path, bytes, messages, end| {
            let Some(request) = decoded::<R>(path, bytes) else { return };
            let replies: Result<Vec<_>, _> =
                messages.iter().map(|bytes| R::Reply::decode(bytes.clone())).collect();
            let Ok(mut replies) = replies else { return };
            change(&request, &mut replies, end);
            *messages = replies.iter().map(encoded).collect();
        }));
        self
    }

    pub(crate) fn before(&self, path: &str, mut bytes: Bytes) -> Before {
        for asked in &self.asked {
            match asked(path, bytes) {
                Before::Forward(changed) => bytes = changed,
                Before::Answer(answer) => return Before::Answer(answer),
            }
        }
        Before::Forward(bytes)
    }

    pub(crate) fn after(
        &self,
        path: &str,
        request: &Bytes,
        answer: Answer<Bytes>,
    ) -> Answer<Bytes> {
        self.answered.iter().fold(answer, |answer, answered| answered(path, request, answer))
    }

    pub(crate) fn head(&self, path: &str, headers: &mut HeaderMap) {
        for headed in &self.headed {
            headed(path, headers);
        }
    }

    pub(crate) fn after_stream(
        &self,
        path: &str,
        request: &Bytes,
        messages: &mut Vec<Bytes>,
        end: &mut Answer<()>,
    ) {
        for streamed in &self.streamed {
            streamed(path, request, messages, end);
        }
    }
}

fn decoded<R: Rpc>(path: &str, bytes: &Bytes) -> Option<R> {
    if path != R::PATH {
        return None;
    }
    R::decode(bytes.clone()).ok()
}

fn encoded(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}
