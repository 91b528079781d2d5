//! Repository commands.
fn main() {}
