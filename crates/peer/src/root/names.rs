//! Names of servers as other machines have them.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use gridlane_sys::names::name_of;
use tokio::sync::Semaphore;

use super::client::Client;
use super::file::OpenFile;
use crate::memory::Memory;
use crate::patience::timeout;

/// Longest wait for the name of an address: without one the address itself does.
const NAME_MAX: Duration = Duration::from_secs(3);
/// A question to a dead name service holds a thread for half a minute: only so many do at once.
const ASKING_MAX: usize = 4;

/// Names of addresses, looked up once. Its clones share them.
#[derive(Clone)]
pub(super) struct Names {
    known: Memory<Ipv6Addr, Known>,
    turns: Arc<Semaphore>,
}

/// What the name service has said of an address.
#[derive(Clone, Default)]
enum Known {
    #[default]
    Nothing,
    Name(Option<String>),
}

impl Default for Names {
    fn default() -> Names {
        Names { known: Memory::default(), turns: Arc::new(Semaphore::new(ASKING_MAX)) }
    }
}

impl Names {
    async fn of(&self, address: Ipv6Addr) -> Option<String> {
        if let Known::Name(name) = self.known.of(&address) {
            return name;
        }
        let asked = async {
            let turn = Arc::clone(&self.turns).acquire_owned().await;
            let asked = tokio::task::spawn_blocking(move || {
                // The turn ends with the question, not when its caller stops to wait for it.
                let _turn = turn;
                name_of(address)
            });
            asked.await.ok().flatten()
        };
        let name = timeout(NAME_MAX, asked).await.ok().flatten();
        self.known.learn(&address, |known| *known = Known::Name(name.clone()));
        name
    }
}

impl Client {
    /// The host that has a file open as another server knows it, which sees only the address that it connects from: the name
    /// that the name service has for the address, or else the address, in brackets and an IPv4 one as IPv6. XRootD's servers and
    /// clients find it in the same way; the URL's host may be another of its names. Behind a proxy it is all that is known.
    pub async fn host_for_others(&self, file: &OpenFile) -> String {
        let Some(address) = file.server_address() else { return bracketed(file.url.host()) };
        let mapped = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        // The name of loopback is another machine's too.
        let name = if address.is_loopback() { None } else { self.names.of(mapped).await };
        name.unwrap_or_else(|| format!("[{mapped}]"))
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}
