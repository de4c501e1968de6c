//! What a TUN device hands over in one read: a packet, or many packets in one.
//!
//! A device opened with `IFF_VNET_HDR` puts a small header in front of every IP packet (`struct
//! virtio_net_hdr`; virtio 1.2, 5.1.6 "Device Operation"). If the reader has said that it can segment, the
//! packet may be a *super-packet* of up to 64 KiB: one IP and TCP or UDP header in front of the payload of
//! many *segments*, each of `gso_size` bytes, the last one perhaps of fewer. Written to another TUN device
//! as it is, it crosses a path at the cost of one packet. But what is lost on a wire is a segment, and what
//! a wire carries has headers on every segment. So a [`Packet`] counts them, says what they occupy, and
//! [cuts](Packet::cut) out a run of them.
//!
//! A run must be what the sender's kernel would have handed over, had it sent just those segments together:
//! the part that segments it at last, kernel or card, must make of it the very packets that it would have made of
//! the whole. The rules are those by which the kernel itself segments, and are named where they are applied.
//! Checksums of TCP and UDP are not computed: the field holds the sum of the pseudo-header
//! (`CHECKSUM_PARTIAL`), of which only the length changes. The kernel behind the next TUN device takes it
//! for right when the packet ends there, and completes it when the packet travels on.
//!
//! Nothing here fails. What is not understood (fragments, tunnels, lengths that do not fit each other, a
//! future kind of segmentation) is one segment that is passed or lost as a whole: on a path that is emulated
//! it is better to lose too much together than to invent bytes. That is also what becomes of packets beyond
//! 64 KiB ("BIG TCP", whose IP length is 0): TUN devices have none unless their `gso_max_size` is raised.

use std::num::NonZeroUsize;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// Bytes of `struct virtio_net_hdr`, without the count of buffers that only merging devices append.
pub(crate) const HEADER_BYTES: usize = 10;

/// One read from a TUN device: the virtio header and an IP packet of one or more segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    bytes: &'a [u8],
    /// `None`: there is one segment.
    super_packet: Option<SuperPacket>,
}

impl<'a> Packet<'a> {
    /// Looks at what was read. Whatever cannot be understood is one segment.
    pub(crate) fn parse(bytes: &'a [u8]) -> Packet<'a> {
        Packet { bytes, super_packet: SuperPacket::of(bytes) }
    }

    /// How many packets it becomes on a wire: at least one.
    pub(crate) fn segments(&self) -> u32 {
        self.super_packet.map_or(1, |super_packet| super_packet.segments)
    }

    /// Length of the IP packet as it was handed over.
    pub(crate) fn ip_bytes(&self) -> u32 {
        // A read is far below 4 GiB; a slice that is not is no packet either.
        u32::try_from(self.bytes.len().saturating_sub(HEADER_BYTES)).unwrap_or(u32::MAX)
    }

    /// What all segments occupy on a wire, each with headers of its own and `framing_bytes` around it.
    #[cfg(test)]
    pub(crate) fn wire_bytes(&self, framing_bytes: u32) -> u64 {
        let segments = u64::from(self.segments());
        let header_bytes = self.super_packet.map_or(0, |super_packet| super_packet.header_bytes as u64);
        u64::from(self.ip_bytes()) + (segments - 1) * header_bytes + segments * u64::from(framing_bytes)
    }

    /// What segment `index` occupies on a wire: the same for all but the last.
    ///
    /// # Panics
    ///
    /// When there is no such segment.
    pub(crate) fn segment_wire_bytes(&self, index: u32, framing_bytes: u32) -> u64 {
        assert!(index < self.segments(), "segment {index} of {}", self.segments());
        let ip_bytes = self.super_packet.map_or(u64::from(self.ip_bytes()), |super_packet| {
            (super_packet.header_bytes + super_packet.payload_of(index..index + 1).len()) as u64
        });
        ip_bytes + u64::from(framing_bytes)
    }

    /// Appends the segments in `run` as a packet that can be written to a TUN device: virtio header, IP
    /// header and all. The run of all segments is what was read, byte for byte; an empty run is nothing.
    ///
    /// # Panics
    ///
    /// When there are no such segments.
    pub(crate) fn cut(&self, run: Range<u32>, out: &mut Vec<u8>) {
        assert!(run.end <= self.segments(), "segments {run:?} of {}", self.segments());
        if run.is_empty() {
            return;
        }
        match &self.super_packet {
            Some(super_packet) if run.len() < super_packet.segments as usize => {
                super_packet.cut(self.bytes, run, out);
            }
            _ => out.extend_from_slice(self.bytes),
        }
    }
}

/// Where things are in a packet of at least two segments. Lengths are proven: the headers lie within the
/// packet, and what IP and UDP say about its length is true, so all lengths fit 16 bits.
#[derive(Clone, Copy, Debug)]
struct SuperPacket {
    vnet: VnetHeader,
    network: Network,
    transport: Transport,
    /// From the start of the IP header to that of TCP or UDP.
    transport_start: usize,
    /// IP, its options or extensions, TCP with its options or UDP: what every segment has in front.
    header_bytes: usize,
    /// All segments' payload.
    payload_bytes: usize,
    /// Payload of every segment but the last.
    segment_payload_bytes: NonZeroUsize,
    /// At least two.
    segments: u32,
}

impl SuperPacket {
    fn of(bytes: &[u8]) -> Option<SuperPacket> {
        let (vnet, ip) = bytes.split_first_chunk()?;
        let vnet = VnetHeader::decode(vnet);
        let segment_payload_bytes = NonZeroUsize::new(vnet.gso_size.into())?;
        let (network, protocol, transport_start) = Network::of(ip)?;
        let transport = vnet.gso_type.transport(network, protocol)?;
        // Not `vnet.header_bytes`: that is a hint, in Linux how much of the packet lay in one piece
        // (`virtio_net_hdr_from_skb`: "a hint as to how much should be linear").
        let header_bytes = transport_start + transport.header_bytes(ip.get(transport_start..)?)?;
        let payload_bytes = ip.len().checked_sub(header_bytes)?;

        // Whoever sets a `gso_type` must set NEEDS_CSUM (virtio 1.2, 5.1.6.2.1), and the kernel segments
        // nothing whose checksum starts elsewhere (`tcp_gso_segment`). Without it the checksum would cover
        // the payload.
        let is_partial = vnet.flags.needs_checksum()
            && usize::from(vnet.checksum_start) == transport_start
            && usize::from(vnet.checksum_offset) == transport.checksum_at();
        // "Too small packets are not really GSO ones" (`virtio_net_hdr_to_skb`): one segment.
        let segments = u32::try_from(payload_bytes.div_ceil(segment_payload_bytes.get())).ok()?;
        (is_partial && segments >= 2).then_some(SuperPacket {
            vnet,
            network,
            transport,
            transport_start,
            header_bytes,
            payload_bytes,
            segment_payload_bytes,
            segments,
        })
    }

    /// Where the payload of the segments in `run` is, counted from the end of the headers.
    fn payload_of(&self, run: Range<u32>) -> Range<usize> {
        let at = |segment: u32| (segment as usize * self.segment_payload_bytes.get()).min(self.payload_bytes);
        at(run.start)..at(run.end)
    }

    /// Appends `run`, which is neither empty nor everything, of the packet in `bytes`.
    fn cut(&self, bytes: &[u8], run: Range<u32>, out: &mut Vec<u8>) {
        let (headers, payload) = bytes.split_at(HEADER_BYTES + self.header_bytes);
        let piece = Piece {
            payload: self.payload_of(run.clone()),
            payload_bytes_before_cut: self.payload_bytes,
            segments_before: run.start,
            is_single: run.len() == 1,
            is_first: run.start == 0,
            is_last: run.end == self.segments,
        };
        let start = out.len();
        out.extend_from_slice(headers);
        out.extend_from_slice(&payload[piece.payload.clone()]);

        let (vnet, ip) = out[start..].split_at_mut(HEADER_BYTES);
        vnet.copy_from_slice(&self.vnet.of_piece(&piece, self.header_bytes).encode());
        let (network, transport) = ip.split_at_mut(self.transport_start);
        self.network.rewrite(network, transport.len(), &piece);
        self.transport.rewrite(transport, &piece);
    }
}

/// A run of segments and its place in the super-packet.
#[derive(Clone, Debug)]
struct Piece {
    payload: Range<usize>,
    payload_bytes_before_cut: usize,
    segments_before: u32,
    is_single: bool,
    /// Whether it begins with the first segment.
    is_first: bool,
    /// Whether it ends with the last segment.
    is_last: bool,
}

// --- The virtio header ---------------------------------------------------------------------------

/// `struct virtio_net_hdr` (`include/uapi/linux/virtio_net.h`). TUN devices write numbers in the machine's
/// own order unless told otherwise with `TUNSETVNETLE` or `TUNSETVNETBE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct VnetHeader {
    flags: VnetFlags,
    gso_type: GsoType,
    /// `hdr_len`
    header_bytes: u16,
    /// Payload of a segment.
    gso_size: u16,
    /// Where the bytes that are summed begin, from the start of the IP header.
    checksum_start: u16,
    /// Where the sum is put, from there.
    checksum_offset: u16,
}

impl VnetHeader {
    fn decode(bytes: &[u8; HEADER_BYTES]) -> VnetHeader {
        let [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1] = *bytes;
        VnetHeader {
            flags: VnetFlags(flags),
            gso_type: GsoType(gso_type),
            header_bytes: u16::from_ne_bytes([h0, h1]),
            gso_size: u16::from_ne_bytes([g0, g1]),
            checksum_start: u16::from_ne_bytes([s0, s1]),
            checksum_offset: u16::from_ne_bytes([o0, o1]),
        }
    }

    fn encode(self) -> [u8; HEADER_BYTES] {
        let [h0, h1] = self.header_bytes.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.checksum_start.to_ne_bytes();
        let [o0, o1] = self.checksum_offset.to_ne_bytes();
        [self.flags.0, self.gso_type.0, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// The header in front of a run of segments.
    ///
    /// A single segment is no super-packet: type and size are 0, with the ECN bit too, as the kernel takes
    /// no other type with a bare ECN bit (`virtio_net_hdr_to_skb`: -EINVAL). `hdr_len` has to change, because
    /// `tun_get_user` refuses a packet that is shorter: it becomes what the specification wants it to be.
    fn of_piece(self, piece: &Piece, header_bytes: usize) -> VnetHeader {
        if piece.is_single {
            return VnetHeader { gso_type: GsoType::NONE, gso_size: 0, header_bytes: 0, ..self };
        }
        VnetHeader { header_bytes: header_bytes as u16, ..self }
    }
}

/// `virtio_net_hdr.flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct VnetFlags(u8);

impl VnetFlags {
    const NEEDS_CHECKSUM: u8 = 1;

    /// Whether the checksum field holds the sum of the pseudo-header only.
    fn needs_checksum(self) -> bool {
        self.0 & Self::NEEDS_CHECKSUM != 0
    }
}

/// `virtio_net_hdr.gso_type`: how the packet is to be segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GsoType(u8);

impl GsoType {
    const NONE: GsoType = GsoType(0);
    const TCP_V4: GsoType = GsoType(1);
    const TCP_V6: GsoType = GsoType(4);
    const UDP_L4: GsoType = GsoType(5);
    /// Beside a type of TCP: CWR is set, and belongs to the first segment only.
    const ECN: u8 = 0x80;

    fn without_ecn(self) -> GsoType {
        GsoType(self.0 & !Self::ECN)
    }

    /// What is segmented; `None` when the packet is something else, or the type is unknown. Among the unknown
    /// is 3, "UFO": its segments are fragments of one datagram, which is lost with any of them.
    fn transport(self, network: Network, protocol: Protocol) -> Option<Transport> {
        match (self, network, protocol) {
            (Self::UDP_L4, _, Protocol::UDP) => Some(Transport::Udp),
            (tcp, Network::V4, Protocol::TCP) if tcp.without_ecn() == Self::TCP_V4 => Some(Transport::Tcp),
            (tcp, Network::V6, Protocol::TCP) if tcp.without_ecn() == Self::TCP_V6 => Some(Transport::Tcp),
            _ => None,
        }
    }
}

// --- IP ------------------------------------------------------------------------------------------

/// Which IP (RFC 791, RFC 8200).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    V4,
    V6,
}

impl Network {
    const V4_BYTES_MIN: usize = 20;
    const V4_TOTAL_LENGTH: usize = 2;
    const V4_IDENTIFICATION: usize = 4;
    const V4_FRAGMENT: usize = 6;
    const V4_PROTOCOL: usize = 9;
    const V4_CHECKSUM: usize = 10;
    const V6_BYTES: usize = 40;
    const V6_PAYLOAD_LENGTH: usize = 4;
    const V6_NEXT_HEADER: usize = 6;

    /// The version, what is carried and where it begins; `None` unless this is exactly one packet, and no
    /// fragment.
    fn of(ip: &[u8]) -> Option<(Network, Protocol, usize)> {
        match nibbles(*ip.first()?) {
            [4, words] => Network::of_v4(ip, usize::from(words) * 4),
            [6, _] => Network::of_v6(ip),
            _ => None,
        }
    }

    fn of_v4(ip: &[u8], header_bytes: usize) -> Option<(Network, Protocol, usize)> {
        let fragment = Ipv4Fragment(u16_at(ip, Self::V4_FRAGMENT)?);
        let protocol = Protocol(*ip.get(Self::V4_PROTOCOL)?);
        let is_whole = header_bytes >= Self::V4_BYTES_MIN
            && header_bytes <= ip.len()
            && usize::from(u16_at(ip, Self::V4_TOTAL_LENGTH)?) == ip.len()
            && !fragment.is_fragment();
        is_whole.then_some((Network::V4, protocol, header_bytes))
    }

    /// Extension headers stay as they are and are repeated in every segment (`ipv6_gso_segment`).
    fn of_v6(ip: &[u8]) -> Option<(Network, Protocol, usize)> {
        if usize::from(u16_at(ip, Self::V6_PAYLOAD_LENGTH)?) + Self::V6_BYTES != ip.len() {
            return None;
        }
        let mut protocol = Protocol(*ip.get(Self::V6_NEXT_HEADER)?);
        let mut at = Self::V6_BYTES;
        while protocol.is_extension() {
            // RFC 8200, 4.3: units of 8 bytes, of which the first is not counted.
            let [next, units_more] = *ip.get(at..)?.first_chunk()?;
            protocol = Protocol(next);
            at += (usize::from(units_more) + 1) * 8;
        }
        Some((Network::V6, protocol, at))
    }

    /// Makes of `header` (with options or extensions) that of a piece, in front of `transport_bytes`.
    ///
    /// `inet_gso_segment` counts the identification up from segment to segment. It does not for flows whose
    /// identification is fixed, but only a network card's driver says so (`SKB_GSO_TCP_FIXEDID`), and the
    /// virtio header has no place for it.
    fn rewrite(self, header: &mut [u8], transport_bytes: usize, piece: &Piece) {
        let ip_bytes = header.len() + transport_bytes;
        match self {
            Network::V4 => {
                let identification = get_u16(header, Self::V4_IDENTIFICATION);
                put_u16(header, Self::V4_TOTAL_LENGTH, ip_bytes as u16);
                put_u16(
                    header,
                    Self::V4_IDENTIFICATION,
                    identification.wrapping_add(piece.segments_before as u16),
                );
                put_u16(header, Self::V4_CHECKSUM, 0);
                let sum = header.chunks_exact(2).map(|word| u32::from(get_u16(word, 0))).sum();
                put_u16(header, Self::V4_CHECKSUM, !fold(sum));
            }
            Network::V6 => put_u16(header, Self::V6_PAYLOAD_LENGTH, (ip_bytes - Self::V6_BYTES) as u16),
        }
    }
}

/// Flags and offset of a fragment.
#[derive(Clone, Copy, Debug)]
struct Ipv4Fragment(u16);

impl Ipv4Fragment {
    const MORE: u16 = 0x2000;
    const OFFSET: u16 = 0x1fff;

    fn is_fragment(self) -> bool {
        self.0 & (Self::MORE | Self::OFFSET) != 0
    }
}

/// What follows an IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Protocol(u8);

impl Protocol {
    const HOP_BY_HOP: Protocol = Protocol(0);
    const TCP: Protocol = Protocol(6);
    const UDP: Protocol = Protocol(17);
    const ROUTING: Protocol = Protocol(43);
    const DESTINATION_OPTIONS: Protocol = Protocol(60);

    /// Whether this is an extension header of IPv6 that does not keep the packet from being segmented.
    fn is_extension(self) -> bool {
        matches!(self, Self::HOP_BY_HOP | Self::ROUTING | Self::DESTINATION_OPTIONS)
    }
}

// --- TCP and UDP ---------------------------------------------------------------------------------

/// What is segmented (RFC 9293, RFC 768).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
}

impl Transport {
    const TCP_BYTES_MIN: usize = 20;
    const TCP_SEQUENCE: usize = 4;
    const TCP_DATA_OFFSET: usize = 12;
    const TCP_FLAGS: usize = 13;
    const TCP_CHECKSUM: usize = 16;
    const UDP_BYTES: usize = 8;
    const UDP_LENGTH: usize = 4;
    const UDP_CHECKSUM: usize = 6;

    fn checksum_at(self) -> usize {
        match self {
            Transport::Tcp => Self::TCP_CHECKSUM,
            Transport::Udp => Self::UDP_CHECKSUM,
        }
    }

    /// How long the header at the start of `transport` is; `None` when it is not all there or impossible.
    fn header_bytes(self, transport: &[u8]) -> Option<usize> {
        let header_bytes = match self {
            Transport::Tcp => {
                let [words, _] = nibbles(*transport.get(Self::TCP_DATA_OFFSET)?);
                let header_bytes = usize::from(words) * 4;
                (header_bytes >= Self::TCP_BYTES_MIN).then_some(header_bytes)?
            }
            Transport::Udp => {
                let length = usize::from(u16_at(transport, Self::UDP_LENGTH)?);
                (length == transport.len()).then_some(Self::UDP_BYTES)?
            }
        };
        (header_bytes <= transport.len()).then_some(header_bytes)
    }

    /// Makes of the header at the start of `transport` that of a piece.
    ///
    /// Of the pseudo-header only the length changes, so its sum is adjusted and not computed anew, as in
    /// `tcp_gso_segment` and `__udp_gso_segment`. It is the sum that the kernel would have stored, bit by
    /// bit, and right also where the pseudo-header's addresses are not those of the IP header: with a
    /// routing header it has the final destination (RFC 8200, 8.1).
    fn rewrite(self, transport: &mut [u8], piece: &Piece) {
        let bytes_removed = piece.payload_bytes_before_cut - piece.payload.len();
        let length = transport.len() as u16;
        let length_before_cut = (transport.len() + bytes_removed) as u16;
        let sum = get_u16(transport, self.checksum_at());
        let sum = fold(u32::from(sum) + u32::from(!length_before_cut) + u32::from(length));
        put_u16(transport, self.checksum_at(), sum);
        match self {
            Transport::Tcp => {
                let sequence = get_u32(transport, Self::TCP_SEQUENCE);
                put_u32(transport, Self::TCP_SEQUENCE, sequence.wrapping_add(piece.payload.start as u32));
                let flags = &mut transport[Self::TCP_FLAGS];
                *flags = TcpFlags(*flags).of_piece(piece).0;
            }
            Transport::Udp => put_u16(transport, Self::UDP_LENGTH, length),
        }
    }
}

/// Byte 13 of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TcpFlags(u8);

impl TcpFlags {
    const FIN: u8 = 0x01;
    const PSH: u8 = 0x08;
    const CWR: u8 = 0x80;

    /// FIN and PSH belong to the last segment, CWR to the first (`tcp_gso_segment`). Under Accurate ECN, CWR
    /// is one bit of a counter and on every segment (`SKB_GSO_TCP_ACCECN`), but TUN devices take no such
    /// super-packets: the kernel segments them itself.
    fn of_piece(self, piece: &Piece) -> TcpFlags {
        let mut cleared = 0;
        if !piece.is_first {
            cleared |= Self::CWR;
        }
        if !piece.is_last {
            cleared |= Self::FIN | Self::PSH;
        }
        TcpFlags(self.0 & !cleared)
    }
}

// --- Numbers -------------------------------------------------------------------------------------

/// Sum of 16-bit words with the carries added in (RFC 1071), not complemented. Only a sum of zeros is 0.
fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

/// The upper and the lower half.
fn nibbles(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 0x0f]
}

/// A number in network order, if it is there.
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

// In headers that `SuperPacket::of` has found to be all there:

fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}
