//! `sherwood demo`: the whole system in one process, nothing to install.

mod catalogue;
mod paced;
