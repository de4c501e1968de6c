//! What is shown: cutting and then segmenting gives the very packets that segmenting alone gives, for any
//! super-packet and any cuts; what is not understood is left alone; no bytes make it panic.
//!
//! How: [`Recipe`] makes super-packets as Linux leaves them, and [`wire_segments`] is a second opinion on
//! what becomes of them on a wire. It is written from what the fields mean, knows the layout from the recipe
//! and not from the module's parser, and computes every checksum over all that it covers.

use super::*;
use proptest::prelude::*;

// --- Packets as Linux leaves them ----------------------------------------------------------------

/// An IPv6 extension header.
#[derive(Clone, Copy, Debug)]
enum Extension {
    HopByHop,
    /// With one more stop ahead: the pseudo-header has that stop's address, not that of the IP header.
    Routing,
    /// 16 bytes of padding.
    DestinationOptions,
}

#[derive(Clone, Debug)]
enum Ip {
    V4 { option_words: u8, identification: u16 },
    V6 { extensions: Vec<Extension> },
}

#[derive(Clone, Debug)]
enum Layer4 {
    Tcp { option_words: u8, sequence: u32, flags: u8 },
    Udp,
}

#[derive(Clone, Debug)]
struct Recipe {
    ip: Ip,
    layer4: Layer4,
    gso_size: u16,
    /// `hdr_len` in the virtio header, a mere hint.
    hint: u16,
    payload: Vec<u8>,
}

const SOURCE_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const TARGET_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const FINAL_V6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 3];
const TCP_OPTIONS: [u8; 40] = {
    let mut options = [1; 40];
    // Timestamps, as on nearly every segment of Linux: NOP, NOP, kind 8, 10 bytes.
    let timestamps = [1, 1, 8, 10, 0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4];
    let mut at = 0;
    while at < timestamps.len() {
        options[at] = timestamps[at];
        at += 1;
    }
    options
};

impl Recipe {
    /// What `cut` gets for it, and the shape that [`wire_segments`] needs to know.
    fn build(&self) -> (Vec<u8>, Shape) {
        let (protocol, mut layer4, checksum_offset) = match &self.layer4 {
            Layer4::Tcp { option_words, sequence, flags } => {
                let mut tcp = vec![0xc3, 0x50, 0x04, 0x3b];
                tcp.extend_from_slice(&sequence.to_be_bytes());
                tcp.extend_from_slice(&[9, 8, 7, 6, (5 + option_words) << 4, *flags, 0x20, 0, 0, 0, 0, 0]);
                tcp.extend_from_slice(&TCP_OPTIONS[..usize::from(*option_words) * 4]);
                (6u8, tcp, 16u16)
            }
            Layer4::Udp => {
                let length = (8 + self.payload.len()) as u16;
                let mut udp = vec![0x82, 0x35, 0x11, 0x51];
                udp.extend_from_slice(&length.to_be_bytes());
                udp.extend_from_slice(&[0, 0]);
                (17, udp, 6)
            }
        };
        let layer4_bytes = layer4.len() + self.payload.len();

        let (mut ip, addresses) = match &self.ip {
            Ip::V4 { option_words, identification } => {
                let header_bytes = 20 + usize::from(*option_words) * 4;
                let mut ip = vec![0x45 + option_words, 0x02];
                ip.extend_from_slice(&((header_bytes + layer4_bytes) as u16).to_be_bytes());
                ip.extend_from_slice(&identification.to_be_bytes());
                ip.extend_from_slice(&[0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 9, 8, 2]);
                ip.resize(header_bytes, 1);
                let sum = !ones_sum(&ip);
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                let addresses = ip[12..20].to_vec();
                (ip, addresses)
            }
            Ip::V6 { extensions } => {
                let mut ip = vec![0x60, 0x21, 0x23, 0x45, 0, 0, protocol, 64];
                ip.extend_from_slice(&SOURCE_V6);
                ip.extend_from_slice(&TARGET_V6);
                let mut last = TARGET_V6;
                let mut next_at = 6;
                for extension in extensions {
                    let at = ip.len();
                    match extension {
                        Extension::HopByHop => ip.extend_from_slice(&[protocol, 0, 1, 4, 0, 0, 0, 0]),
                        Extension::Routing => {
                            ip.extend_from_slice(&[protocol, 2, 0, 1, 0, 0, 0, 0]);
                            ip.extend_from_slice(&FINAL_V6);
                            last = FINAL_V6;
                        }
                        Extension::DestinationOptions => {
                            ip.extend_from_slice(&[protocol, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                        }
                    }
                    ip[next_at] = match extension {
                        Extension::HopByHop => 0,
                        Extension::Routing => 43,
                        Extension::DestinationOptions => 60,
                    };
                    next_at = at;
                }
                let length = (ip.len() - 40 + layer4_bytes) as u16;
                ip[4..6].copy_from_slice(&length.to_be_bytes());
                (ip, [SOURCE_V6, last].concat())
            }
        };

        let shape = Shape { addresses, protocol, layer4_at: ip.len(), payload_at: ip.len() + layer4.len() };
        let seed = shape.pseudo_sum(layer4_bytes);
        let check_at = usize::from(checksum_offset);
        layer4[check_at..check_at + 2].copy_from_slice(&seed.to_be_bytes());

        let (is_v4, is_tcp) = (matches!(self.ip, Ip::V4 { .. }), protocol == 6);
        let has_cwr = matches!(self.layer4, Layer4::Tcp { flags, .. } if flags & 0x80 != 0);
        let gso_type = match (is_tcp, is_v4) {
            (false, _) => 5,
            (true, true) => 1 | if has_cwr { 0x80 } else { 0 },
            (true, false) => 4 | if has_cwr { 0x80 } else { 0 },
        };
        let mut bytes = vnet(1, gso_type, self.hint, self.gso_size, ip.len() as u16, checksum_offset);
        bytes.append(&mut ip);
        bytes.append(&mut layer4);
        bytes.extend_from_slice(&self.payload);
        (bytes, shape)
    }
}

fn vnet(flags: u8, gso_type: u8, hint: u16, gso_size: u16, start: u16, offset: u16) -> Vec<u8> {
    let mut bytes = vec![flags, gso_type];
    for number in [hint, gso_size, start, offset] {
        bytes.extend_from_slice(&number.to_ne_bytes());
    }
    bytes
}

// --- The second opinion --------------------------------------------------------------------------

/// What cutting leaves as it is.
#[derive(Clone, Debug)]
struct Shape {
    /// Both addresses of the pseudo-header.
    addresses: Vec<u8>,
    protocol: u8,
    layer4_at: usize,
    payload_at: usize,
}

impl Shape {
    /// Sum of the pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1): the lengths of both kinds sum up alike.
    fn pseudo_sum(&self, layer4_bytes: usize) -> u16 {
        let mut pseudo = self.addresses.clone();
        pseudo.extend_from_slice(&(layer4_bytes as u32).to_be_bytes());
        pseudo.extend_from_slice(&[0, 0, 0, self.protocol]);
        ones_sum(&pseudo)
    }
}

/// Sum of 16-bit words modulo 65535, where 0 is written 65535 unless all is 0.
fn ones_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for (at, byte) in bytes.iter().enumerate() {
        sum += u64::from(*byte) << if at % 2 == 0 { 8 } else { 0 };
    }
    if sum == 0 { 0 } else { ((sum - 1) % 65535 + 1) as u16 }
}

/// The IP packets on the wire, complete, that become of a packet with its virtio header.
fn wire_segments(bytes: &[u8], shape: &Shape) -> Vec<Vec<u8>> {
    let number = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let (flags, gso_type, hint, gso_size) = (bytes[0], bytes[1], number(2), usize::from(number(4)));
    let ip = &bytes[10..];
    let check_at = shape.layer4_at + if shape.protocol == 6 { 16 } else { 6 };
    assert_eq!(flags, 1, "the checksum is to be completed");
    assert_eq!(usize::from(number(6)), shape.layer4_at);
    assert_eq!(usize::from(number(6) + number(8)), check_at);
    // `tun_get_user` refuses other packets.
    assert!(usize::from(hint) <= ip.len(), "hdr_len {hint} of {}", ip.len());
    // And as it was handed over, it is one consistent packet.
    let is_v4 = ip[0] >> 4 == 4;
    let stated = usize::from(u16::from_be_bytes(if is_v4 { [ip[2], ip[3]] } else { [ip[4], ip[5]] }));
    assert_eq!(stated + if is_v4 { 0 } else { 40 }, ip.len());
    if is_v4 {
        assert_eq!(ones_sum(&ip[..usize::from(ip[0] & 15) * 4]), 0xffff, "IPv4 header checksum");
    }
    let seed = u16::from_be_bytes([ip[check_at], ip[check_at + 1]]);
    assert_eq!(seed, shape.pseudo_sum(ip.len() - shape.layer4_at), "sum of the pseudo-header");
    if shape.protocol == 17 {
        let length = u16::from_be_bytes([ip[shape.layer4_at + 4], ip[shape.layer4_at + 5]]);
        assert_eq!(usize::from(length), ip.len() - shape.layer4_at);
    }

    let (headers, payload) = ip.split_at(shape.payload_at);
    if gso_type == 0 {
        assert_eq!((hint, gso_size), (0, 0), "as the kernel leaves it for one segment");
        return vec![complete(ip, shape)];
    }
    let chunks: Vec<&[u8]> = payload.chunks(gso_size).collect();
    let mut segments = Vec::new();
    for (index, chunk) in chunks.iter().enumerate() {
        let mut segment = [headers, chunk].concat();
        if is_v4 {
            let identification = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index as u16);
            let length = segment.len() as u16;
            segment[2..4].copy_from_slice(&length.to_be_bytes());
            segment[4..6].copy_from_slice(&identification.to_be_bytes());
            segment[10..12].fill(0);
            let sum = !ones_sum(&segment[..usize::from(ip[0] & 15) * 4]);
            segment[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            let length = (segment.len() - 40) as u16;
            segment[4..6].copy_from_slice(&length.to_be_bytes());
        }
        let layer4_bytes = segment.len() - shape.layer4_at;
        let layer4 = &mut segment[shape.layer4_at..];
        if shape.protocol == 6 {
            let first = u32::from_be_bytes([layer4[4], layer4[5], layer4[6], layer4[7]]);
            let sequence = first.wrapping_add((index * gso_size) as u32);
            layer4[4..8].copy_from_slice(&sequence.to_be_bytes());
            if index > 0 {
                layer4[13] &= 0x7f;
            }
            if index + 1 < chunks.len() {
                layer4[13] &= 0xf6;
            }
        } else {
            layer4[4..6].copy_from_slice(&(layer4_bytes as u16).to_be_bytes());
        }
        segments.push(complete(&segment, shape));
    }
    segments
}

/// `ip` with the checksum of TCP or UDP over all that it covers.
fn complete(ip: &[u8], shape: &Shape) -> Vec<u8> {
    let check_at = shape.layer4_at + if shape.protocol == 6 { 16 } else { 6 };
    let mut ip = ip.to_vec();
    ip[check_at..check_at + 2].fill(0);
    let covered =
        [&shape.pseudo_sum(ip.len() - shape.layer4_at).to_be_bytes(), &ip[shape.layer4_at..]].concat();
    let sum = match !ones_sum(&covered) {
        0 if shape.protocol == 17 => 0xffff,
        sum => sum,
    };
    ip[check_at..check_at + 2].copy_from_slice(&sum.to_be_bytes());
    ip
}

fn cut(bytes: &[u8], run: Range<u32>) -> Vec<u8> {
    let mut out = vec![0xaa; 3];
    Packet::parse(bytes).cut(run, &mut out);
    assert_eq!(out[..3], [0xaa; 3], "cut appends");
    out.split_off(3)
}

// --- Tables --------------------------------------------------------------------------------------

fn bytes_of(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn tcp_v4(payload_bytes: usize) -> Recipe {
    Recipe {
        ip: Ip::V4 { option_words: 0, identification: 0xfffe },
        // ACK, with everything that belongs to one end only: FIN, PSH, CWR.
        layer4: Layer4::Tcp { option_words: 3, sequence: 0xffff_f000, flags: 0x99 },
        gso_size: 1448,
        hint: 66,
        payload: bytes_of(payload_bytes),
    }
}

fn tcp_v6(extensions: Vec<Extension>, payload_bytes: usize) -> Recipe {
    Recipe { ip: Ip::V6 { extensions }, gso_size: 1428, ..tcp_v4(payload_bytes) }
}

fn udp(ip: Ip, payload_bytes: usize) -> Recipe {
    Recipe { ip, layer4: Layer4::Udp, gso_size: 1200, hint: 0, payload: bytes_of(payload_bytes) }
}

fn v4(option_words: u8) -> Ip {
    Ip::V4 { option_words, identification: 7 }
}

#[test]
fn kinds_of_super_packets_are_counted_and_measured() {
    use Extension::{DestinationOptions, HopByHop, Routing};
    let no_options = Layer4::Tcp { option_words: 0, sequence: 1, flags: 0x10 };
    // What it is, the packet, segments, bytes of headers on each, payload of the last.
    let table = [
        ("TCP v4 with timestamps", tcp_v4(10 * 1448), 10, 52, 1448),
        ("TCP v4 with a short end", tcp_v4(10 * 1448 + 1), 11, 52, 1),
        ("TCP v4 without options", Recipe { layer4: no_options, ..tcp_v4(2897) }, 3, 40, 1),
        ("TCP v4, options of IP", Recipe { ip: v4(10), ..tcp_v4(3000) }, 3, 92, 104),
        ("TCP v4, as large as can be", tcp_v4(65535 - 52), 46, 52, 323),
        ("TCP v6", tcp_v6(vec![], 3 * 1428), 3, 72, 1428),
        ("TCP v6, as large as can be", tcp_v6(vec![], 65535 - 32), 46, 72, 1243),
        ("TCP v6, options", tcp_v6(vec![DestinationOptions], 1429), 2, 88, 1),
        ("TCP v6, routed", tcp_v6(vec![HopByHop, Routing, DestinationOptions], 2900), 3, 120, 44),
        ("UDP v4", udp(v4(0), 5 * 1200 - 1), 5, 28, 1199),
        ("UDP v4, options of IP", udp(v4(1), 2400), 2, 32, 1200),
        ("UDP v6", udp(Ip::V6 { extensions: vec![] }, 1201), 2, 48, 1),
        ("UDP v6, hop by hop", udp(Ip::V6 { extensions: vec![HopByHop] }, 1201), 2, 56, 1),
    ];
    for (what, recipe, segments, header_bytes, last_bytes) in table {
        let (bytes, shape) = recipe.build();
        let packet = Packet::parse(&bytes);
        assert_eq!(packet.segments(), segments, "{what}");
        assert_eq!(packet.ip_bytes() as usize, bytes.len() - HEADER_BYTES, "{what}");
        assert_eq!(packet.segment_wire_bytes(segments - 1, 38), header_bytes + last_bytes + 38, "{what}");
        let others = u64::from(recipe.gso_size) + header_bytes + 38;
        for index in 0..segments - 1 {
            assert_eq!(packet.segment_wire_bytes(index, 38), others, "{what}");
        }
        let wire = wire_segments(&bytes, &shape);
        assert_eq!(wire.len(), segments as usize, "{what}");
        let wire_bytes: usize = wire.iter().map(|segment| segment.len() + 38).sum();
        assert_eq!(packet.wire_bytes(38), wire_bytes as u64, "{what}");
        // Every segment alone.
        for index in 0..segments {
            let alone = wire_segments(&cut(&bytes, index..index + 1), &shape);
            assert_eq!(alone, wire[index as usize..][..1], "{what}, segment {index}");
        }
        assert_eq!(cut(&bytes, 0..segments), bytes, "{what}");
        assert_eq!(cut(&bytes, 1..1), [0u8; 0], "{what}");
    }
}

#[test]
fn the_rewritten_fields_byte_by_byte() {
    let (bytes, _) = tcp_v4(4 * 1448).build();
    let middle = cut(&bytes, 1..3);
    assert_eq!(middle[..HEADER_BYTES], vnet(1, 0x81, 52, 1448, 20, 16));
    let ip = &middle[HEADER_BYTES..];
    assert_eq!(ip.len(), 52 + 2 * 1448);
    assert_eq!(ip[2..4], (52 + 2 * 1448u16).to_be_bytes(), "total length");
    assert_eq!(ip[4..6], [0xff, 0xff], "identification of the second segment");
    assert_eq!(ip[24..28], 0xffff_f5a8u32.to_be_bytes(), "sequence number of the second segment");
    assert_eq!(ip[33], 0x10, "ACK only");
    assert_eq!(ip[52..], bytes_of(4 * 1448)[1448..3 * 1448]);

    let first = cut(&bytes, 0..1);
    assert_eq!(first[..HEADER_BYTES], vnet(1, 0, 0, 0, 20, 16));
    assert_eq!(first[HEADER_BYTES + 33], 0x90, "ACK and CWR");
    let last = cut(&bytes, 2..4);
    assert_eq!(last[HEADER_BYTES + 4..][..2], [0, 0], "the identification wraps");
    assert_eq!(last[HEADER_BYTES + 24..][..4], 0xffff_fb50u32.to_be_bytes());
    assert_eq!(last[HEADER_BYTES + 33], 0x19, "ACK, FIN and PSH");
    let wrapped = cut(&bytes, 3..4);
    assert_eq!(wrapped[HEADER_BYTES + 24..][..4], 0xf8u32.to_be_bytes(), "the sequence number wraps");
}

#[test]
fn what_is_not_understood_is_one_segment() {
    let (good, _) = tcp_v4(4 * 1448).build();
    let (good_v6, _) = tcp_v6(vec![Extension::HopByHop], 4 * 1428).build();
    let (good_udp, _) = udp(v4(0), 4 * 1200).build();
    let altered = |bytes: &[u8], changes: &[(usize, u8)]| {
        let mut bytes = bytes.to_vec();
        changes.iter().for_each(|&(at, value)| bytes[at] = value);
        bytes
    };
    let icmp = [&vnet(0, 0, 0, 0, 0, 0)[..], &good[10..30], &[8, 0, 0, 0, 0, 1, 0, 1]].concat();
    let table = [
        ("nothing", vec![]),
        ("half a virtio header", good[..5].to_vec()),
        ("a virtio header", good[..HEADER_BYTES].to_vec()),
        ("headers cut short", good[..HEADER_BYTES + 30].to_vec()),
        ("a single packet", altered(&good, &[(1, 0), (4, 0), (5, 0)])),
        ("a packet of one segment", tcp_v4(1448).build().0),
        ("no payload", tcp_v4(0).build().0),
        ("echo request", altered(&icmp, &[(HEADER_BYTES + 9, 1)])),
        ("no size", altered(&good, &[(4, 0), (5, 0)])),
        ("checksum complete", altered(&good, &[(0, 0)])),
        ("checksum found right", altered(&good, &[(0, 2)])),
        ("checksum starts elsewhere", altered(&good, &[(6, 21), (7, 21)])),
        ("checksum put elsewhere", altered(&good, &[(8, 6), (9, 6)])),
        ("UFO", altered(&good_udp, &[(1, 3)])),
        ("UDP with ECN", altered(&good_udp, &[(1, 0x85)])),
        ("unknown type", altered(&good, &[(1, 7)])),
        ("tunnelled type", altered(&good, &[(1, 0x21)])),
        ("ECN and nothing else", altered(&good, &[(1, 0x80)])),
        ("v6's type on v4", altered(&good, &[(1, 4)])),
        ("v4's type on v6", altered(&good_v6, &[(1, 1)])),
        ("TCP's type on UDP", altered(&good_udp, &[(1, 1)])),
        ("version 5", altered(&good, &[(HEADER_BYTES, 0x55)])),
        ("IPv4 header of 16 bytes", altered(&good, &[(HEADER_BYTES, 0x44)])),
        ("IPv4 length off by one", altered(&good, &[(HEADER_BYTES + 3, good[HEADER_BYTES + 3] ^ 1)])),
        ("IPv4 length 0 (BIG TCP)", altered(&good, &[(HEADER_BYTES + 2, 0), (HEADER_BYTES + 3, 0)])),
        ("first fragment", altered(&good, &[(HEADER_BYTES + 6, 0x20)])),
        ("last fragment", altered(&good, &[(HEADER_BYTES + 7, 1)])),
        ("IPv6 length off by one", altered(&good_v6, &[(HEADER_BYTES + 5, good_v6[HEADER_BYTES + 5] ^ 1)])),
        ("IPv6 fragment", altered(&good_v6, &[(HEADER_BYTES + 6, 44)])),
        ("encrypted", altered(&good_v6, &[(HEADER_BYTES + 6, 50)])),
        ("extension beyond the end", altered(&good_v6, &[(HEADER_BYTES + 41, 255), (HEADER_BYTES + 40, 0)])),
        ("TCP header of 16 bytes", altered(&good, &[(HEADER_BYTES + 32, 0x40)])),
        (
            "UDP length off by one",
            altered(&good_udp, &[(HEADER_BYTES + 25, good_udp[HEADER_BYTES + 25] ^ 1)]),
        ),
        ("trailing byte", [&good[..], &[0]].concat()),
    ];
    for (what, bytes) in table {
        let packet = Packet::parse(&bytes);
        let ip_bytes = bytes.len().saturating_sub(HEADER_BYTES);
        assert_eq!(packet.segments(), 1, "{what}");
        assert_eq!(packet.ip_bytes() as usize, ip_bytes, "{what}");
        assert_eq!(packet.wire_bytes(38), ip_bytes as u64 + 38, "{what}");
        assert_eq!(packet.segment_wire_bytes(0, 38), ip_bytes as u64 + 38, "{what}");
        assert_eq!(cut(&bytes, 0..1), bytes, "{what}");
    }
    // They were one step from being understood.
    for bytes in [good, good_v6, good_udp] {
        assert_eq!(Packet::parse(&bytes).segments(), 4);
    }
}

#[test]
fn an_evil_bit_is_no_fragment_and_a_hint_is_no_length() {
    let (mut bytes, _) = tcp_v4(4 * 1448).build();
    bytes[HEADER_BYTES + 6] = 0xc0;
    bytes[2..4].copy_from_slice(&0u16.to_ne_bytes());
    assert_eq!(Packet::parse(&bytes).segments(), 4);
    bytes[2..4].copy_from_slice(&u16::MAX.to_ne_bytes());
    assert_eq!(Packet::parse(&bytes).segments(), 4);
}

#[test]
#[should_panic(expected = "segments 0..5 of 4")]
fn a_run_beyond_the_end_is_a_mistake() {
    cut(&tcp_v4(4 * 1448).build().0, 0..5);
}

// --- Properties ----------------------------------------------------------------------------------

fn any_ip() -> impl Strategy<Value = Ip> {
    use Extension::{DestinationOptions, HopByHop, Routing};
    let extensions =
        proptest::collection::vec(prop::sample::select(vec![HopByHop, Routing, DestinationOptions]), 0..4);
    prop_oneof![
        (0..=10u8, any::<u16>())
            .prop_map(|(option_words, identification)| Ip::V4 { option_words, identification }),
        extensions.prop_map(|extensions| Ip::V6 { extensions }),
    ]
}

/// Super-packets of at least two segments.
fn any_recipe() -> impl Strategy<Value = Recipe> {
    let layer4 = prop_oneof![
        3 => (0..=10u8, any::<u32>(), any::<u8>())
            .prop_map(|(option_words, sequence, flags)| Layer4::Tcp { option_words, sequence, flags }),
        1 => Just(Layer4::Udp),
    ];
    // Small segments for many of them in few bytes, and what networks have: 1500, 9000.
    let gso_size = prop_oneof![1..40u16, 500..1460u16, 8000..9000u16];
    (any_ip(), layer4, gso_size, 0..90u16, 1..=50usize, any::<u64>(), any::<prop::sample::Index>()).prop_map(
        |(ip, layer4, gso_size, hint, whole_segments, seed, last)| {
            let size = usize::from(gso_size);
            let payload_bytes = (whole_segments * size + 1 + last.index(size)).min(65_300);
            let mut state = seed;
            let payload = std::iter::repeat_with(|| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 56) as u8
            })
            .take(payload_bytes)
            .collect();
            // A hint is never more than the packet has.
            let hint = hint.min(28);
            Recipe { ip, layer4, gso_size, hint, payload }
        },
    )
}

/// Runs that cover `segments`, from points anywhere.
fn runs(segments: u32, points: &[prop::sample::Index]) -> Vec<Range<u32>> {
    let mut bounds: Vec<u32> = points.iter().map(|point| point.index(segments as usize) as u32).collect();
    bounds.extend([0, segments]);
    bounds.sort();
    bounds.windows(2).map(|pair| pair[0]..pair[1]).filter(|run| !run.is_empty()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn cut_and_segmented_is_segmented_and_picked(
        recipe in any_recipe(),
        points in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        points_again in proptest::collection::vec(any::<prop::sample::Index>(), 0..3),
    ) {
        let (bytes, shape) = recipe.build();
        let packet = Packet::parse(&bytes);
        let wire = wire_segments(&bytes, &shape);
        prop_assert_eq!(packet.segments() as usize, wire.len());
        for (index, segment) in wire.iter().enumerate() {
            prop_assert_eq!(packet.segment_wire_bytes(index as u32, 38), segment.len() as u64 + 38);
        }
        let wire_bytes: usize = wire.iter().map(|segment| segment.len() + 38).sum();
        prop_assert_eq!(packet.wire_bytes(38), wire_bytes as u64);
        for run in runs(packet.segments(), &points) {
            let piece = cut(&bytes, run.clone());
            let expected = &wire[run.start as usize..run.end as usize];
            prop_assert!(wire_segments(&piece, &shape) == expected, "{run:?}");
            prop_assert_eq!(Packet::parse(&piece).segments() as usize, run.len());
            // A piece of a piece is that piece of the whole.
            for inner in runs(run.len() as u32, &points_again) {
                let of_whole = cut(&bytes, run.start + inner.start..run.start + inner.end);
                prop_assert!(cut(&piece, inner.clone()) == of_whole, "{inner:?} of {run:?}");
            }
        }
    }

    #[test]
    fn no_bytes_are_a_problem(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        survives(&bytes);
    }

    #[test]
    fn no_damage_is_a_problem(
        recipe in any_recipe(),
        damage in proptest::collection::vec((0..150usize, any::<u8>()), 0..4),
        length in prop_oneof![Just(usize::MAX), 0..300usize],
    ) {
        let (mut bytes, _) = recipe.build();
        bytes.truncate(length);
        for (at, value) in damage {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        survives(&bytes);
    }
}

/// Whatever it is: segments add up to the whole, and pieces are packets of as many segments.
fn survives(bytes: &[u8]) {
    let packet = Packet::parse(bytes);
    let segments = packet.segments();
    let sum: u64 = (0..segments).map(|index| packet.segment_wire_bytes(index, 20)).sum();
    assert_eq!(packet.wire_bytes(20), sum);
    assert_eq!(cut(bytes, 0..segments), bytes);
    let middle = segments / 2;
    let mut payload_bytes = 0;
    for run in [0..middle, middle..segments] {
        let piece = cut(bytes, run.clone());
        if !run.is_empty() {
            assert_eq!(Packet::parse(&piece).segments() as usize, run.len());
            payload_bytes += Packet::parse(&piece).wire_bytes(0);
        }
    }
    assert_eq!(payload_bytes, packet.wire_bytes(0));
}
