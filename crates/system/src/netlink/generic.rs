//! Generic netlink: families of messages that are known by their names (`linux/genetlink.h`).
//!
//! ```text
//! nlmsghdr: type = the family's number │ command u8 │ version u8 │ 2 bytes │ attributes
//! ```

use nix::errno::Errno;

use super::attributes::{find, ne_u16};
use super::client::{Client, Protocol, TIMEOUT};
use super::error::NetlinkError;
use super::request::Writer;

/// The length of the header of generic netlink, in bytes.
pub const GENERIC_HEADER: usize = 4;

/// The family that knows the numbers of all families, its command, and the attributes of its
/// answer.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// A socket that knows the number of one family.
#[derive(Debug)]
pub struct Generic {
    client: Client,
    family: u16,
}

impl Generic {
    /// Opens a socket, and asks for the family's number.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` or `ENOENT` where the kernel has no such family.
    pub fn open(family: &str) -> Result<Self, NetlinkError> {
        let mut client = Client::open(Protocol::Generic, TIMEOUT)?;
        let question = request(GET_FAMILY, |put| _ = put.text(FAMILY_NAME, family));
        let family = client.get(CONTROLLER, 0, question, |_, body| family_id(body));
        match family {
            Ok(family) => Ok(Self { client, family }),
            Err(NetlinkError::Empty) => {
                Err(NetlinkError::Refused { errno: Errno::ENOENT as i32, text: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Lists the objects of a command: the results of `read` for each message, from the header of
    /// generic netlink on.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn dump<T>(
        &mut self,
        command: u8,
        attributes: impl FnOnce(&mut Writer<'_>),
        mut read: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        self.client.dump(self.family, request(command, attributes), |_, body| read(body))
    }
}

/// A command of version 1 with its attributes.
fn request(command: u8, attributes: impl FnOnce(&mut Writer<'_>)) -> impl FnOnce(&mut Writer<'_>) {
    move |put| attributes(put.raw(&[command, 1, 0, 0]))
}

fn family_id(body: &[u8]) -> Option<u16> {
    ne_u16(find(body.get(GENERIC_HEADER..)?, FAMILY_ID)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn families_have_numbers() {
        let answer = [1, 2, 0, 0, 12, 0, 2, 0, b'n', b'l', b'8', b'0', b'2', b'1', b'1', 0];
        let answer = [&answer[..], &[6, 0, 1, 0, 28, 0, 0, 0]].concat();
        assert_eq!(family_id(&answer), Some(28));
        assert_eq!(family_id(&answer[..16]), None);
    }

    #[test]
    fn the_kernel_answers_for_the_families_that_it_has() {
        // Not of Wi-Fi, but there wherever there is generic netlink.
        let mut controller = match Generic::open("nlctrl") {
            Err(NetlinkError::System(_)) => {
                println!("skipped: needs generic netlink");
                return;
            }
            opened => opened.unwrap(),
        };
        assert_eq!(controller.family, CONTROLLER);
        let families = controller.dump(GET_FAMILY, |_| (), family_id).unwrap();
        assert!(families.contains(&CONTROLLER), "{families:?}");
        let unknown = Generic::open("flnone").unwrap_err();
        assert_eq!(unknown.errno(), Some(Errno::ENOENT as i32));
    }
}
