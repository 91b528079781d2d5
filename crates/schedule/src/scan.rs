//! A scanner for short texts that counts positions in characters.

use crate::error::{Fault, Reason, shorten};

pub(crate) struct Scanner<'a> {
    rest: &'a str,
    position: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self::starting_at(text, 0)
    }

    /// Scans a part of a longer text; positions are relative to the whole text.
    pub(crate) fn starting_at(text: &'a str, position: usize) -> Self {
        Self { rest: text, position }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    pub(crate) fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Consumes `wanted` if it is the next character.
    pub(crate) fn eat(&mut self, wanted: char) -> bool {
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                self.position += 1;
                true
            }
            None => false,
        }
    }

    /// Consumes the longest run of ASCII characters of a class, which may be empty.
    pub(crate) fn take_while(&mut self, class: fn(&u8) -> bool) -> &'a str {
        let length = self.rest.bytes().take_while(class).count();
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        self.position += length;
        taken
    }

    /// Consumes exactly `count` digits.
    pub(crate) fn digits(&mut self, count: usize, expected: &'static str) -> Result<u32, Fault> {
        let mut value = 0;
        for _ in 0..count {
            let digit = self.peek().and_then(|next| next.to_digit(10)).ok_or_else(|| self.expected(expected))?;
            value = value * 10 + digit;
            self.take_one();
        }
        Ok(value)
    }

    /// Consumes a number of one or two digits between `min` and `max`, or returns `None` if the next character is no digit.
    pub(crate) fn small_number(&mut self, noun: &'static str, min: u32, max: u32) -> Result<Option<u32>, Fault> {
        let start = self.position;
        let digits = self.take_while(u8::is_ascii_digit);
        if digits.is_empty() {
            return Ok(None);
        }
        let number = shorten(digits);
        match digits.parse() {
            Ok(value) if (min..=max).contains(&value) && digits.len() <= 2 => Ok(Some(value)),
            Ok(value) if (min..=max).contains(&value) => Err(Fault::new(start, Reason::TooManyDigits { noun, number })),
            Ok(_) | Err(_) => Err(Fault::new(start, Reason::OutOfRange { noun, number, min, max })),
        }
    }

    /// The fault that `expected` is missing at the current position.
    pub(crate) fn expected(&self, expected: &'static str) -> Fault {
        Fault::new(self.position, Reason::Expected { expected, found: self.peek() })
    }

    fn take_one(&mut self) {
        let mut characters = self.rest.chars();
        if characters.next().is_some() {
            self.rest = characters.as_str();
            self.position += 1;
        }
    }
}

/// Parses a comma-separated list of values and ranges into a bit set below `size`. Ranges may wrap around.
pub(crate) fn wrapping_list(
    text: &str,
    size: u32,
    separator: &'static str,
    mut value: impl FnMut(&mut Scanner<'_>) -> Result<u32, Fault>,
) -> Result<u32, Fault> {
    let mut scanner = Scanner::new(text);
    let mut set = 0;
    loop {
        let first = value(&mut scanner)?;
        let last = if scanner.eat('-') { value(&mut scanner)? } else { first };
        let length = (last + size - first) % size + 1;
        set |= (first..first + length).fold(0, |bits, n| bits | 1 << (n % size));
        if scanner.at_end() {
            return Ok(set);
        }
        if !scanner.eat(',') {
            return Err(scanner.expected(separator));
        }
    }
}
