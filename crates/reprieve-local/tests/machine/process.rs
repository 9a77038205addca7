//! Child processes of the tests: the test binary starts itself again, and reads its orders from
//! stdin.

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};

use reprieve_testkit::Process;

/// Reads the orders of the child's `#[ignore]`d test, one line. Empty when that test is run by
/// hand.
pub(crate) fn orders() -> Vec<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

/// Starts this test binary again, at its test `child`, and passes `orders` to it.
pub(crate) fn start(orders: &[&str]) -> Process {
    start_under(&[], orders)
}

/// The same under another program, such as a shell that mounts a disk first.
pub(crate) fn start_under(wrapper: &[&str], orders: &[&str]) -> Process {
    let this = std::env::current_exe().unwrap();
    let mut words = wrapper.iter().map(std::ffi::OsStr::new).chain([this.as_os_str()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["--ignored", "--exact", "child", "--nocapture"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Process::start(&mut command);
    writeln!(child.stdin(), "{}", orders.join(" ")).unwrap();
    child
}

/// Returns the output of a child that has ended by itself; `None` while it runs.
pub(crate) fn output_if_ended(child: &mut Process) -> Option<String> {
    let mut output = format!("{}\n", child.try_ended()?);
    child.stdout().read_to_string(&mut output).unwrap();
    child.stderr().read_to_string(&mut output).unwrap();
    Some(output)
}

/// Waits until a child has ended successfully, and returns its output.
pub(crate) fn finish(child: Process) -> Output {
    let output = child.output();
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
