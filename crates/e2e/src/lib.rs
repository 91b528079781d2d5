//! Tests of the shipped product that need several parts at once; see `tests/`.
