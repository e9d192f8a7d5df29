//! `orlop demo`: a throw-away pool, the real daemon, and what it can do, one line a step. Each line is checked before
//! it is printed.
//!
//! Crash windows: all that the demo makes lies below one directory, whose lock it holds. If it is killed, the kernel
//! kills the daemon and the writers with it, and the next demo removes the directory and all that is mounted or
//! attached below it.

mod calls;
mod contents;
mod daemon;
mod directory;
mod failure;
mod interrupt;
mod limited_writer;
mod requirements;
mod screen;
mod story;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use orlop_model::{Bytes, parse_size};

use directory::DemoDirectory;
use failure::Failure;
use interrupt::Interrupt;
pub(crate) use limited_writer::{LimitedWriterArguments, SUBCOMMAND as LIMITED_WRITER};
use requirements::Requirements;
use screen::Screen;
use story::Story;

const MIB: u64 = 1 << 20;
const SMALLEST: u64 = 16 * MIB;
const LARGEST: u64 = 1 << 40;
/// For files that are too large for a filesystem in memory.
const DEFAULT_DIRECTORY: &str = "/var/tmp";

#[derive(clap::Args)]
#[command(
    after_help = "Needs root, loop devices and mkfs.xfs (xfsprogs). Everything is made in a new directory and removed at\n\
    the end, also after Ctrl-C; a daemon that runs on this machine is not disturbed.\n\n\
    Exit codes: 0 every step was as it should be; 1 one was not; 2 something is missing that the demo needs;\n\
    128 and the signal's number, such as 130 for Ctrl-C: it was interrupted."
)]
pub(crate) struct DemoArguments {
    /// How much data to write, from 16MiB to 1TiB
    #[arg(long, default_value = "1GiB", value_parser = data_size)]
    size: u64,

    /// Keep the pool, with its volumes and snapshots, and print how to go on with it
    #[arg(long)]
    keep: bool,

    /// Where to make the directory [default: $TMPDIR, else /var/tmp]
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
}

fn data_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).ok_or("a size is a whole number with a unit, such as 512MiB")?;
    let whole = bytes.div_ceil(MIB).saturating_mul(MIB);
    match (SMALLEST..=LARGEST).contains(&whole) {
        true => Ok(whole),
        false => Err("the demo writes from 16MiB to 1TiB".to_owned()),
    }
}

pub(crate) fn limited_writer(arguments: &LimitedWriterArguments) -> ExitCode {
    match limited_writer::write(arguments) {
        Ok(never) => match never {},
        Err(error) => crate::complain(1, &error),
    }
}

pub(crate) fn run(arguments: &DemoArguments) -> ExitCode {
    let mut screen = Screen::of_stdout();
    let failure = match tell(arguments, &mut screen) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(failure) => failure,
    };
    screen.end_progress();
    match failure.signal() {
        // What was removed stands on the lines before.
        Some(_) => {}
        None => {
            // A closed stderr is no reason to change the exit code.
            let _ = writeln!(std::io::stderr(), "orlop: {failure}");
        }
    }
    ExitCode::from(failure.exit_code())
}

fn tell(arguments: &DemoArguments, screen: &mut Screen) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    let parent = parent_directory(arguments)?;
    Requirements { data: arguments.size, parent: &parent }.check()?;
    directory::remove_abandoned(&parent, screen)?;
    let directory = DemoDirectory::new(&parent)?;
    let began = Instant::now();
    let what = format!(
        "Orlop on a throw-away pool in {}; {} of data\n",
        directory.path().display(),
        Bytes(arguments.size)
    );
    let outcome = screen
        .line(&what)
        .and_then(|()| Story::new(arguments.size, &directory, &interrupt).tell(screen));
    match outcome {
        Ok(()) if arguments.keep => keep(directory, screen),
        Ok(()) => {
            screen.begin("remove");
            directory.remove()?;
            screen.done("nothing is left: no mount, loop device, process or file")?;
            let took = began.elapsed().as_secs_f64();
            screen.line(&format!("\nEvery line above was checked. {took:.1} s in all."))
        }
        Err(failure) => {
            let why = match failure.signal() {
                Some(name) => format!("interrupted by {name}"),
                None => "failed".to_owned(),
            };
            // Output that is closed may be why it failed: what was made is removed all the same.
            screen.end_progress();
            let path = directory.path().to_owned();
            match directory.remove() {
                Ok(()) => {
                    let _ =
                        screen.line(&format!("{why}: {} and all in it is removed", path.display()));
                    Err(failure)
                }
                Err(left) => Err(failure.and(&left)),
            }
        }
    }
}

fn parent_directory(arguments: &DemoArguments) -> Result<PathBuf, Failure> {
    let given = arguments.dir.clone().or_else(|| {
        let temporary = std::env::var_os("TMPDIR").filter(|value| !value.is_empty());
        temporary.map(PathBuf::from)
    });
    let chosen = given.unwrap_or_else(|| PathBuf::from(DEFAULT_DIRECTORY));
    // Mounts and loop devices are known to the kernel by their real paths.
    std::fs::canonicalize(&chosen).map_err(|error| {
        let path = chosen.display();
        Failure::missing(format!(
            "cannot use the directory {path}: {error}; name another with --dir"
        ))
    })
}

fn keep(directory: DemoDirectory, screen: &mut Screen) -> Result<(), Failure> {
    let path = directory.keep()?;
    let settings = path.join(daemon::SETTINGS);
    let settings = settings.display();
    screen.line(&format!(
        "\nKept: the pool in {path}, with its volumes and snapshots; nothing is mounted.\n\n\
         serve it again:   orlop serve --config {settings}\n\
         its socket:       unix://{socket}\n\
         look at it:       orlop doctor --config {settings}\n\
         remove it:        rm -r {path}",
        socket = path.join(daemon::SOCKET).display(),
        path = path.display(),
    ))
}
