//! PROXY protocol headers that load balancers put in front of the first frame (`docs/spec/01-remoting.md` 2.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use crate::connection::PeerIdentity;

/// Bytes that have to be there before anything can be said about a connection.
pub(crate) const DETECTION_BYTES: usize = 12;

const V1_START: &[u8] = b"PROXY";
const V2_START: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Longest version 1 line, its end included.
const V1_BYTES_MAX: usize = 108;
/// Most bytes of addresses and TLVs that a version 2 header may announce.
const V2_BYTES_MAX: usize = 4096;

/// A PROXY header that can't be read.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("malformed PROXY protocol header: {0}")]
pub(crate) struct MalformedHeader(&'static str);

/// What the first bytes of a connection are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Preface {
    /// More bytes are needed.
    Incomplete,
    /// No PROXY header: the bytes are frames (or TLS).
    None,
    /// A PROXY header of so many bytes.
    Header(PeerIdentity, usize),
}

pub(crate) fn detect(bytes: &[u8]) -> Result<Preface, MalformedHeader> {
    if bytes.len() < DETECTION_BYTES {
        Ok(Preface::Incomplete)
    } else if bytes.starts_with(V2_START) {
        version_2(bytes)
    } else if bytes.starts_with(V1_START) {
        version_1(bytes)
    } else {
        Ok(Preface::None)
    }
}

fn version_1(bytes: &[u8]) -> Result<Preface, MalformedHeader> {
    let line = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = line.windows(2).position(|pair| pair == b"\r\n") else {
        return if line.len() < V1_BYTES_MAX {
            Ok(Preface::Incomplete)
        } else {
            Err(MalformedHeader("line without end"))
        };
    };
    let line = std::str::from_utf8(&line[..end]).map_err(|_| MalformedHeader("not text"))?;
    let mut words = line.split(' ').skip(1);
    let family = words.next().ok_or(MalformedHeader("no family"))?;
    if family == "UNKNOWN" {
        return Ok(Preface::Header(PeerIdentity::default(), end + 2));
    }
    let mut address =
        || words.next().and_then(|word| word.parse::<IpAddr>().ok()).ok_or(MalformedHeader("address"));
    let (client, server) = (address()?, address()?);
    let mut port = || words.next().and_then(|word| word.parse::<u16>().ok()).ok_or(MalformedHeader("port"));
    let (client_port, server_port) = (port()?, port()?);
    let identity = PeerIdentity {
        client: Some(SocketAddr::new(client, client_port)),
        server: Some(SocketAddr::new(server, server_port)),
    };
    Ok(Preface::Header(identity, end + 2))
}

fn version_2(bytes: &[u8]) -> Result<Preface, MalformedHeader> {
    let Some(&[command, family, high, low]) = bytes[V2_START.len()..].first_chunk() else {
        return Ok(Preface::Incomplete);
    };
    if command >> 4 != 2 {
        return Err(MalformedHeader("version"));
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > V2_BYTES_MAX {
        return Err(MalformedHeader("too long"));
    }
    let start = V2_START.len() + 4;
    let Some(addresses) = bytes.get(start..start + length) else { return Ok(Preface::Incomplete) };
    let is_local = command & 0xf == 0;
    let identity = match family >> 4 {
        _ if is_local => PeerIdentity::default(),
        1 => {
            let Some(block) = addresses.first_chunk::<12>() else {
                return Err(MalformedHeader("short addresses"));
            };
            let ip = |at: usize| {
                IpAddr::from(Ipv4Addr::new(block[at], block[at + 1], block[at + 2], block[at + 3]))
            };
            let port = |at: usize| u16::from_be_bytes([block[at], block[at + 1]]);
            PeerIdentity {
                client: Some(SocketAddr::new(ip(0), port(8))),
                server: Some(SocketAddr::new(ip(4), port(10))),
            }
        }
        2 => {
            let Some(block) = addresses.first_chunk::<36>() else {
                return Err(MalformedHeader("short addresses"));
            };
            let ip = |at: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&block[at..at + 16]);
                IpAddr::from(Ipv6Addr::from(octets))
            };
            let port = |at: usize| u16::from_be_bytes([block[at], block[at + 1]]);
            PeerIdentity {
                client: Some(SocketAddr::new(ip(0), port(32))),
                server: Some(SocketAddr::new(ip(16), port(34))),
            }
        }
        _ => PeerIdentity::default(),
    };
    Ok(Preface::Header(identity, start + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twelve_bytes_decide() {
        // docs/spec/01-remoting.md 9.22
        assert_eq!(detect(b"PROXY TCP4 "), Ok(Preface::Incomplete));
        assert_eq!(detect(b"GET / HTTP/1.1"), Ok(Preface::None));
        assert_eq!(detect(b"\x00\x00\x00\x87\x00\x00\x00\x83{\"co"), Ok(Preface::None));
        assert_eq!(detect(V2_START), Ok(Preface::Incomplete));
    }

    #[test]
    fn version_1_tells_the_client() {
        let Ok(Preface::Header(identity, used)) = detect(b"PROXY TCP4 1.2.3.4 5.6.7.8 1000 2000\r\nrest")
        else {
            panic!("not found");
        };
        assert_eq!(identity.client, Some("1.2.3.4:1000".parse().unwrap()));
        assert_eq!(identity.server, Some("5.6.7.8:2000".parse().unwrap()));
        assert_eq!(used, 38);
        assert!(detect(&[b"PROXY ".as_slice(), &[b'x'; 120]].concat()).is_err());
    }

    #[test]
    fn version_2_tells_the_client() {
        let mut bytes = V2_START.to_vec();
        bytes.extend_from_slice(&[0x21, 0x11, 0, 12, 1, 2, 3, 4, 5, 6, 7, 8, 0x03, 0xe8, 0x07, 0xd0]);
        let Ok(Preface::Header(identity, used)) = detect(&bytes) else { panic!("not found") };
        assert_eq!(identity.client, Some("1.2.3.4:1000".parse().unwrap()));
        assert_eq!(used, bytes.len());
    }
}
