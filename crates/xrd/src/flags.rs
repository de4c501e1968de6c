//! Sets of bits, with names for the bits and methods instead of masks.

use std::fmt;
use std::ops::BitOr;

macro_rules! flags {
    (
        $(#[$doc:meta])*
        $name:ident: $raw:ty {
            $( $(#[$bit_doc:meta])* $constant:ident = $value:literal; )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $raw);

        impl $name {
            $( $(#[$bit_doc])* pub const $constant: $name = $name($value); )*

            /// No bit.
            pub const NONE: $name = $name(0);

            /// True if all bits of `other` are set.
            pub const fn has(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// True if any bit of `other` is set.
            pub const fn has_any(self, other: $name) -> bool {
                self.0 & other.0 != 0
            }

            /// With the bits of `other`.
            pub const fn with(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// Without the bits of `other`.
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }

            /// With the bits of `other` if `on`.
            pub const fn with_if(self, on: bool, other: $name) -> $name {
                if on { self.with(other) } else { self }
            }
        }

        impl BitOr for $name {
            type Output = $name;

            fn bitor(self, other: $name) -> $name {
                self.with(other)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut rest = self.0;
                f.write_str(stringify!($name))?;
                f.write_str("(")?;
                let mut gap = "";
                $(
                    if self.has($name::$constant) {
                        write!(f, "{gap}{}", stringify!($constant))?;
                        gap = "|";
                        rest &= !$value;
                    }
                )*
                if rest != 0 {
                    write!(f, "{gap}{rest:#x}")?;
                }
                f.write_str(")")
            }
        }
    };
}

flags! {
    /// Abilities and wishes of a client, in its `protocol` request.
    ClientFlags: u8 {
        /// Tell me which requests have to be signed.
        WANTS_SIGNING = 0x01;
        /// I can do TLS.
        CAN_TLS = 0x02;
        /// I want TLS.
        WANTS_TLS = 0x04;
        /// Tell me where to bind.
        WANTS_BIND = 0x08;
    }
}

flags! {
    /// The role and the abilities of a server, in its answer to `protocol`.
    ServerFlags: u32 {
        /// It has files.
        IS_SERVER = 0x1;
        /// It knows which servers have files.
        IS_MANAGER = 0x2;
        /// It is a caching proxy.
        IS_CACHE = 0x80;
        /// It is at the top of a federation.
        IS_META = 0x100;
        /// It is a proxy.
        IS_PROXY = 0x200;
        /// It supervises a part of a cluster.
        IS_SUPERVISOR = 0x400;
        /// Files can vanish unless they are closed in good order.
        CAN_POSC = 0x0010_0000;
        /// `pgread` and `pgwrite`.
        CAN_PAGES = 0x0020_0000;
        /// `gpfile`.
        CAN_GPF = 0x0040_0000;
        /// `gpfile` without login.
        CAN_ANONYMOUS_GPF = 0x0080_0000;
        /// Bound connections need TLS.
        TLS_DATA = 0x0100_0000;
        /// `gpfile` needs TLS.
        TLS_GPF = 0x0200_0000;
        /// Login needs TLS.
        TLS_LOGIN = 0x0400_0000;
        /// Everything behind login needs TLS.
        TLS_SESSION = 0x0800_0000;
        /// Third-party copies need TLS.
        TLS_TPC = 0x1000_0000;
        /// `gpfile` without login needs TLS.
        TLS_ANONYMOUS_GPF = 0x2000_0000;
        /// TLS begins behind this answer.
        GOTO_TLS = 0x4000_0000;
        /// It can do TLS.
        HAS_TLS = 0x8000_0000;
    }
}

flags! {
    /// Ways to open a file.
    OpenOptions: u16 {
        /// Tell of compression; historic.
        COMPRESS = 0x0001;
        /// Make it, or empty what is there.
        DELETE = 0x0002;
        /// Ignore usage rules.
        FORCE = 0x0004;
        /// Make it; nothing may be there.
        NEW = 0x0008;
        /// To read.
        READ = 0x0010;
        /// To read and write.
        UPDATE = 0x0020;
        /// Historic; with [`NEW`](OpenOptions::NEW) or [`DELETE`](OpenOptions::DELETE) it also makes the
        /// directories that lead there.
        ASYNC = 0x0040;
        /// A manager shall look anew for servers that have it.
        REFRESH = 0x0080;
        /// Make the directories that lead there.
        MKPATH = 0x0100;
        /// To write behind its end.
        APPEND = 0x0200;
        /// Answer with what is known of it.
        RETSTAT = 0x0400;
        /// This makes a replica.
        REPLICA = 0x0800;
        /// Remove it unless it is closed in good order.
        POSC = 0x1000;
        /// A manager shall not wait until it is staged.
        NOWAIT = 0x2000;
        /// It will be read from beginning to end.
        SEQUENTIAL = 0x4000;
        /// To write only.
        WRITE = 0x8000;
    }
}

impl OpenOptions {
    /// True if bytes may be written.
    pub fn is_write(self) -> bool {
        let writes = OpenOptions::UPDATE | OpenOptions::APPEND | OpenOptions::WRITE;
        self.has_any(writes | OpenOptions::NEW | OpenOptions::DELETE)
    }

    /// True if the file is made if it is not there.
    pub fn creates(self) -> bool {
        self.has_any(OpenOptions::NEW | OpenOptions::DELETE)
    }

    /// True if the directories that lead there are made.
    pub fn makes_parents(self) -> bool {
        self.has(OpenOptions::MKPATH) || self.creates() && self.has(OpenOptions::ASYNC)
    }
}

flags! {
    /// More about how a file is to be opened.
    OpenMore: u16 {
        /// On the file system of the template, with its content.
        DUPLICATE = 0x1;
        /// On the file system of the template.
        SAME_FILE_SYSTEM = 0x2;
        /// Answer with more of what is known of it.
        RETSTATX = 0x4;
        /// Past the page cache.
        DIRECT = 0x8;
    }
}

flags! {
    /// The kind of a file, in a stat text.
    StatFlags: u32 {
        /// A directory that may be searched, or a program.
        EXECUTABLE = 1;
        /// A directory.
        DIRECTORY = 2;
        /// Neither file nor directory.
        OTHER = 4;
        /// On tape only.
        OFFLINE = 8;
        /// The server can read it.
        READABLE = 16;
        /// The server can write it.
        WRITABLE = 32;
        /// It vanishes unless it is closed in good order.
        POSC_PENDING = 64;
        /// There is a copy on tape.
        BACKED_UP = 128;
        /// It is in a cache.
        CACHED = 512;
    }
}

flags! {
    /// Ways to list a directory.
    DirlistOptions: u8 {
        /// Only what is on disk.
        ONLINE = 1;
        /// With what is known of each entry.
        STAT = 2;
        /// With checksums, and what is known.
        CHECKSUM = 4;
        /// With more of what is known.
        STATX = 8;
    }
}

flags! {
    /// Ways to look for servers.
    LocateOptions: u16 {
        /// Each host once.
        UNIQUE = 0x0001;
        /// Ask all of them.
        FORCE = 0x0004;
        /// Look anew.
        REFRESH = 0x0080;
        /// Names rather than addresses.
        PREFER_NAMES = 0x0100;
        /// For a listing.
        FOR_DIRLIST = 0x0400;
        /// Do not wait.
        NOWAIT = 0x2000;
    }
}

flags! {
    /// Ways to prepare files.
    PrepareOptions: u8 {
        /// Stop it.
        CANCEL = 1;
        /// Tell when it is done.
        NOTIFY = 2;
        /// Tell of no errors.
        NO_ERRORS = 4;
        /// Bring them to disk.
        STAGE = 8;
        /// They will be written.
        WRITE = 16;
        /// All to one place.
        COLOCATE = 32;
        /// Treated like files used now.
        FRESH = 64;
        /// Tell by TCP.
        USE_TCP = 128;
    }
}

flags! {
    /// Abilities of a client, in its `login` request.
    Abilities: u8 {
        /// Redirects that are URLs.
        FULL_URL = 1;
        /// Several protocols; implies [`FULL_URL`](Abilities::FULL_URL).
        MULTI_PROTOCOL = 3;
        /// Redirects of reads.
        READ_REDIRECT = 4;
        /// IPv4 and IPv6.
        DUAL_STACK = 8;
        /// Private IPv4 addresses only.
        PRIVATE_IPV4 = 16;
        /// Private IPv6 addresses only.
        PRIVATE_IPV6 = 32;
        /// Redirects to its own files.
        LOCAL_FILE = 64;
        /// Redirects with flags.
        REDIRECT_FLAGS = 128;
    }
}

flags! {
    /// Ways to handle attributes.
    FattrOptions: u8 {
        /// The attribute must not be there before it is set.
        NEW = 0x01;
        /// A list with values.
        VALUES = 0x10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_have_names() {
        let options = OpenOptions(0x0468);
        assert_eq!(format!("{options:?}"), "OpenOptions(NEW|UPDATE|ASYNC|RETSTAT)");
        assert!(options.is_write() && options.creates() && options.makes_parents());
        assert!(!OpenOptions(0x0450).is_write() && !OpenOptions(0x0060).makes_parents());
        assert_eq!(format!("{:?}", DirlistOptions(0x12)), "DirlistOptions(STAT|0x10)");
        assert_eq!(ServerFlags::NONE.with_if(true, ServerFlags::IS_SERVER), ServerFlags(1));
    }
}
