//! Access control: tokens and passwords, and checks of a request's origin.
//!
//! Every process of the machine can reach a port on loopback, and so can every page in its browser:
//! a page of any site may send requests to any address, and with a name whose address changes
//! between two look-ups (DNS rebinding) may read the answers, too. A port beyond loopback can be
//! reached by other machines. So the HTTP port requires a token; without configured tokens, it
//! accepts requests that name this machine and come from no other site. Listeners check user name
//! and password in their protocol's own way.
//!
//! | file | contents |
//! |---|---|
//! | `file` | errors of secret files |
//! | `secrets` | hashes of tokens and passwords, and their comparison |
//! | `tokens`, `passwords` | files of tokens, and of users' passwords |
//! | `guard` | authentication of the HTTP port |
//! | `origin` | checks that a request names this machine, and comes from no other site |

mod file;
mod guard;
mod origin;
mod passwords;
mod secrets;
mod tokens;

pub(crate) use file::public_bytes;
pub use file::{AccessError, Refusal, refused, secret_bytes};
pub use guard::{Guard, Refusals};
pub use passwords::{PasswordFile, UserTenants, Users};
pub use tokens::Tokens;
