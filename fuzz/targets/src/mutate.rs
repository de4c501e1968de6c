//! Inputs for the smoke run: seeds with something changed. libFuzzer, which sees what an input reaches, makes
//! its own.

use crate::random::Random;

/// No input is longer: beyond every limit on heads and tokens, and still quick.
pub const INPUT_BYTES_MAX: usize = 80 * 1024;

/// Characters that mean something somewhere.
const BYTES: &[u8] =
    b"\r\n\0\t :;,=/.%\"'<>()[]{}&#?*-+_\\@~0159aAfFxXzZ\x08\x0b\x0c\x1f\x7f\x80\x85\xa0\xbf\xc3\xef\xff";

/// Numbers at the ends of what an integer can hold.
const NUMBERS: [&str; 22] = [
    "0",
    "00",
    "1",
    "-1",
    "+1",
    "7",
    "10",
    "0x10",
    "1e3",
    "255",
    "256",
    "4096",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "ffffffffffffffff",
    "10000000000000000",
    "99999999999999999999999999",
];

/// One of `seeds`, mostly changed: bytes, numbers, lines, pieces of other seeds, `words` of the grammar.
pub fn mutate(random: &mut Random, seeds: &[Vec<u8>], words: &[Vec<u8>]) -> Vec<u8> {
    let mut input = if seeds.is_empty() { Vec::new() } else { random.pick(seeds).clone() };
    let changes = match random.below(8) {
        0 => random.below(2),
        1..=5 => 1 + random.below(3),
        _ => 1 + random.below(12),
    };
    for _ in 0..changes {
        change(random, &mut input, seeds, words);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn change(random: &mut Random, input: &mut Vec<u8>, seeds: &[Vec<u8>], words: &[Vec<u8>]) {
    let at = random.below(input.len() + 1);
    match random.below(14) {
        0 | 1 => {
            let byte = any_byte(random);
            if let Some(own) = input.get_mut(at) {
                *own = byte;
            }
        }
        2 => {
            let end = input.len().min(at + random.length(input.len()));
            input.drain(at..end);
        }
        3 => {
            let count = 1 + random.below(4);
            let bytes: Vec<u8> = (0..count).map(|_| any_byte(random)).collect();
            put(input, at, 0, &bytes);
        }
        4 | 5 if !words.is_empty() => {
            let word = random.pick(words).clone();
            let replaced = if random.once_in(2) { word.len() } else { 0 };
            put(input, at, replaced, &word);
        }
        6 => {
            let end = input.len().min(at + random.length(input.len()));
            let times = if random.once_in(20) { random.length(3000) } else { 1 };
            let again = input[at..end].repeat(times);
            put(input, at, 0, &again);
        }
        7 | 8 if !seeds.is_empty() => {
            let other = random.pick(seeds);
            let begin = random.below(other.len() + 1);
            match random.below(3) {
                0 => {
                    input.truncate(at);
                    input.extend_from_slice(&other[begin..]);
                }
                1 => input.extend_from_slice(other),
                _ => {
                    let end = other.len().min(begin + random.length(other.len()));
                    put(input, at, 0, &other[begin..end]);
                }
            }
        }
        9 | 10 => change_number(random, input, at),
        11 => {
            let end = input.len().min(at + random.length(input.len()));
            input[at..end]
                .iter_mut()
                .filter(|byte| byte.is_ascii_alphabetic())
                .for_each(|byte| *byte ^= 0x20);
        }
        _ => change_lines(random, input),
    }
    input.truncate(INPUT_BYTES_MAX);
}

fn any_byte(random: &mut Random) -> u8 {
    if random.once_in(4) { random.bits() as u8 } else { *random.pick(BYTES) }
}

fn put(input: &mut Vec<u8>, at: usize, replaced: usize, bytes: &[u8]) {
    let end = input.len().min(at + replaced);
    input.splice(at..end, bytes.iter().copied());
}

/// Replaces the first number behind `at`, or puts one there.
fn change_number(random: &mut Random, input: &mut Vec<u8>, at: usize) {
    let begin = input[at..].iter().position(u8::is_ascii_digit).map_or(at, |offset| at + offset);
    let len = input[begin..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = match random.below(4) {
        0 => {
            let own = std::str::from_utf8(&input[begin..begin + len]).unwrap_or_default();
            let value = own.parse::<u64>().unwrap_or_default();
            if random.once_in(2) { value.wrapping_add(1) } else { value.wrapping_sub(1) }.to_string()
        }
        1 => random.below(300).to_string(),
        _ => (*random.pick(&NUMBERS)).to_owned(),
    };
    put(input, begin, len, text.as_bytes());
}

/// Doubles, drops or swaps lines, or changes how one ends.
fn change_lines(random: &mut Random, input: &mut Vec<u8>) {
    let mut lines: Vec<Vec<u8>> = input.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    if lines.is_empty() {
        return;
    }
    let (a, b) = (random.below(lines.len()), random.below(lines.len()));
    match random.below(5) {
        0 => drop(lines.remove(a)),
        1 => lines.insert(b, lines[a].clone()),
        2 => lines.swap(a, b),
        3 => {
            let line = &mut lines[a];
            while line.ends_with(b"\n") || line.ends_with(b"\r") {
                line.pop();
            }
            line.extend_from_slice(
                random.pick::<&str>(&["\n", "\r", "\r\r\n", "\r\n\r\n", "\r\n ", ""]).as_bytes(),
            );
        }
        _ => {
            let times = if random.once_in(20) { random.length(300) } else { 1 };
            let line = lines[a].clone();
            lines.splice(b..b, std::iter::repeat_n(line, times));
        }
    }
    *input = lines.concat();
}
