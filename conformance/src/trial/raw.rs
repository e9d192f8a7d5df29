//! What the messages of the suite cannot express: other methods, other fields.

use prost::Message;
use prost::bytes::Bytes;
use tonic::Code;

use super::asking::Answer;
use super::{Trial, code_of};
use crate::check::Outcome;
use crate::fields::{Field, GARBAGE, contents, delimited_field, fields};
use crate::journal::render_status;
use crate::wire::Rpc;

impl Trial {
    /// Any answer of a method that need not exist.
    pub async fn ask_method(&self, path: &str, encoded: Vec<u8>) -> Answer<Bytes> {
        let asked = format!("{} bytes", encoded.len());
        let answer = self.plugin.client_of(path).unary(path, encoded).await;
        let told = match &answer {
            Ok((bytes, _)) => format!("OK {} bytes", bytes.len()),
            Err(status) => render_status(status),
        };
        self.note(path, asked, told);
        answer.map(|(bytes, _)| bytes)
    }

    /// Is there such a method? Whatever it says to an empty request.
    pub async fn is_served(&self, path: &str) -> bool {
        code_of(&self.ask_method(path, Vec::new()).await) != Code::Unimplemented
    }

    /// The bytes of the reply that has to come.
    pub async fn ok_bytes<R: Rpc>(&self, request: &R) -> Outcome<Bytes> {
        match self.ask_bytes::<R>(request.encode_to_vec()).await? {
            Ok(bytes) => Ok(bytes),
            Err(_) => Err(self.failed("OK")),
        }
    }

    /// The reply that has to come, without the rules that hold for all replies: for rows that say
    /// the same of one of them, and are to be the ones that it breaks.
    pub async fn ok_as_it_is<R: Rpc>(&self, request: &R) -> Outcome<R::Reply> {
        let encoded = self.ok_bytes(request).await?;
        self.some(R::Reply::decode(encoded).ok(), R::REPLY)
    }

    /// A refusal with any code, where the row asks for none in particular. That it was not refused
    /// is what is wrong, whatever the reply looks like.
    pub async fn refused_somehow<R: Rpc>(&self, request: R, why: &str) -> Outcome {
        let answer = self.ask_bytes::<R>(request.encode_to_vec()).await?;
        self.expect(answer.is_err(), format!("a refusal, as {why}"))
    }

    pub fn fields_of(&self, message: &[u8]) -> Outcome<Vec<Field>> {
        self.some(fields(message), "a protocol buffers message")
    }

    /// The messages that fields with this number hold.
    pub fn messages_in(&self, message: &[u8], number: u32) -> Outcome<Vec<Vec<u8>>> {
        self.some(contents(message, number), &format!("a message in field {number}"))
    }

    /// Not the fields of another version.
    pub fn only_fields(&self, what: &str, message: &[u8], numbers: &[u32]) -> Outcome {
        let found = self.fields_of(message)?;
        match found.iter().find(|field| !numbers.contains(&field.number)) {
            Some(Field { number, .. }) => {
                Err(self.failed(format!("no field {number} in {what}, only {numbers:?}")))
            }
            None => Ok(()),
        }
    }

    /// The plugin reads this field: what cannot be read there is refused. Without it, the request
    /// is one that succeeds.
    pub async fn reads_field<R: Rpc>(&self, request: &R, number: u32) -> Outcome {
        let answer = self.ask_bytes::<R>(with_garbage(request, number)).await?;
        let expected = format!("a refusal, as field {number} is not what it has to be");
        self.expect(answer.is_err(), expected)
    }

    /// The plugin does not know this field and passes over it.
    pub async fn ignores_field<R: Rpc>(&self, request: &R, number: u32) -> Outcome {
        let answer = self.ask_bytes::<R>(with_garbage(request, number)).await?;
        self.expect(answer.is_ok(), format!("OK, as there is no field {number} in this message"))
    }
}

fn with_garbage<R: Rpc>(request: &R, number: u32) -> Vec<u8> {
    let mut encoded = request.encode_to_vec();
    encoded.extend(delimited_field(number, &GARBAGE));
    encoded
}
