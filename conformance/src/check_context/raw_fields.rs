//! What the messages of the suite cannot express: fields of other numbers.

use prost::bytes::Bytes;

use super::CheckContext;
use crate::check::Outcome;
use crate::fields::{Field, GARBAGE, contents, delimited_field, fields};
use crate::wire::Rpc;

impl CheckContext {
    /// The bytes of the reply that has to come.
    pub async fn ok_bytes<R: Rpc>(&self, request: &R) -> Outcome<Bytes> {
        match self.ask_bytes::<R>(request.encode_to_vec()).await? {
            Ok(bytes) => Ok(bytes),
            Err(_) => Err(self.failed("OK")),
        }
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
