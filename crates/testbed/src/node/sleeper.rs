//! Sleeps until it is killed.

fn main() {
    loop {
        std::thread::park();
    }
}
