//! Access control: tokens, passwords and the origin of requests.
//!
//! A port on loopback is reached by every process of the machine, and by every page in its browser:
//! a page of anybody's may send requests to any address, and by a name that changes its address
//! between two look-ups (DNS rebinding) may read the answers, too. A port beyond loopback is
//! reached by everybody. So the HTTP port takes requests that show a token; without any, it takes
//! those that name this machine and come from no other site. And a listener takes a name and a
//! password, as its protocol has them.
//!
//! | file | what it is |
//! |---|---|
//! | `file` | files with secrets: whose they are, what may be in them, and that they change |
//! | `secrets` | what is known of tokens and passwords, and how one is recognised |
//! | `tokens`, `passwords` | files of them |
//! | `guard` | stands before the HTTP port |
//! | `origin` | whether a request names this machine, and comes from it |

mod file;
mod guard;
mod origin;
mod passwords;
mod secrets;
mod tokens;

pub use file::{AccessError, Refusal};
pub(crate) use file::{Reloading, file_bytes, refused};
pub(crate) use guard::{Guard, Refusals};
pub(crate) use passwords::PasswordFile;
pub(crate) use tokens::Tokens;
