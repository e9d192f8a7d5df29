//! Proves the conformance suite: each violation has to be caught by a check that names its row,
//! and the plugin without any violation has to pass.

mod interceptor;
mod memory;
mod mistakes;
mod proxy;
mod real;
mod renumber;
mod verify;
mod violation;
mod violations;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

/// Breaks the rules one at a time and sees whether the suite notices.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// Only these: names of violations, or ids or prefixes of the rows that they break
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,

    /// Leave out what needs root and a real pool
    #[arg(long)]
    memory_only: bool,

    /// The fewest violations that there must be
    #[arg(long, default_value_t = 0)]
    at_least: usize,

    /// Tell only of what went wrong
    #[arg(long, short)]
    quiet: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(&arguments)),
        Err(error) => Err(error.to_string()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("broken-plugin: {error}"));
            ExitCode::from(2)
        }
    }
}

/// A closed terminal is no error.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

async fn run(arguments: &Arguments) -> Result<bool, String> {
    let chosen: Vec<_> = violations::violations()
        .filter(|it| arguments.only.is_empty() || arguments.only.iter().any(|only| it.is(only)))
        .filter(|it| !arguments.memory_only || it.on != violation::Base::Real)
        .collect();
    if chosen.is_empty() {
        return Err("there is no such violation".to_owned());
    }
    let found = verify::verify(&chosen, arguments.quiet).await?;
    let caught = found.iter().filter(|it| it.caught()).count();
    let missed = found.len() - caught;
    say(&format!("violations: {} tried, {caught} caught, {missed} missed", found.len()));
    if found.len() < arguments.at_least {
        say(&format!("there have to be at least {}", arguments.at_least));
    }
    Ok(missed == 0 && found.len() >= arguments.at_least)
}
