//! Every number of the protocol that has a name, declared once and tolerant of those that have none.

use std::fmt;

/// A number on the wire of which some values have names; any other is kept as it is.
macro_rules! registry {
    (
        $(#[$doc:meta])*
        $name:ident: $raw:ty {
            $( $(#[$value_doc:meta])* $constant:ident = $value:literal, $spelled:literal; )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $raw);

        impl $name {
            $( $(#[$value_doc])* pub const $constant: $name = $name($value); )*

            /// All that have a name.
            pub const KNOWN: &[$name] = &[$( $name($value) ),*];

            /// XRootD's name of it; `None` for a number without a name.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $value => Some($spelled), )*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}", self.0),
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

registry! {
    /// Kinds of requests.
    RequestId: u16 {
        /// Credentials.
        AUTH = 3000, "auth";
        /// Facts about the server, a file or a file system.
        QUERY = 3001, "query";
        /// Permissions.
        CHMOD = 3002, "chmod";
        /// The end of an open file.
        CLOSE = 3003, "close";
        /// The names in a directory.
        DIRLIST = 3004, "dirlist";
        /// Implemented by no server.
        GPFILE = 3005, "gpfile";
        /// The server's abilities, and the beginning of TLS.
        PROTOCOL = 3006, "protocol";
        /// The client's name.
        LOGIN = 3007, "login";
        /// A new directory.
        MKDIR = 3008, "mkdir";
        /// Another name.
        MV = 3009, "mv";
        /// A file, for reading or writing.
        OPEN = 3010, "open";
        /// A sign of life of the server.
        PING = 3011, "ping";
        /// Changes that can be taken back.
        CHKPOINT = 3012, "chkpoint";
        /// Bytes of a file.
        READ = 3013, "read";
        /// A file is removed.
        RM = 3014, "rm";
        /// An empty directory is removed.
        RMDIR = 3015, "rmdir";
        /// To the disk.
        SYNC = 3016, "sync";
        /// Facts about a file or directory.
        STAT = 3017, "stat";
        /// Settings of the session.
        SET = 3018, "set";
        /// Bytes for a file.
        WRITE = 3019, "write";
        /// Attributes of a file.
        FATTR = 3020, "fattr";
        /// Files are brought from tape.
        PREPARE = 3021, "prepare";
        /// The kinds of several paths.
        STATX = 3022, "statx";
        /// The end of another session.
        ENDSESS = 3023, "endsess";
        /// This connection joins a session.
        BIND = 3024, "bind";
        /// Many ranges at once.
        READV = 3025, "readv";
        /// Bytes with a checksum for each page.
        PGWRITE = 3026, "pgwrite";
        /// Which servers have a file.
        LOCATE = 3027, "locate";
        /// A new length.
        TRUNCATE = 3028, "truncate";
        /// The signature of the next request.
        SIGVER = 3029, "sigver";
        /// Bytes with a checksum for each page.
        PGREAD = 3030, "pgread";
        /// Many ranges at once.
        WRITEV = 3031, "writev";
        /// A copy within the server, from protocol 5.2 on.
        CLONE = 3032, "clone";
    }
}

registry! {
    /// Kinds of answers.
    Status: u16 {
        /// The end of a good answer.
        OK = 0, "ok";
        /// A part of it; more follows.
        OKSOFAR = 4000, "oksofar";
        /// Unasked, or the answer to a request that was told to wait.
        ATTN = 4001, "attn";
        /// More credentials are needed.
        AUTHMORE = 4002, "authmore";
        /// It failed.
        ERROR = 4003, "error";
        /// Ask another server.
        REDIRECT = 4004, "redirect";
        /// Ask again later.
        WAIT = 4005, "wait";
        /// The answer comes later, as [`ATTN`](Status::ATTN).
        WAITRESP = 4006, "waitresp";
        /// With a checksum of its own: pages.
        STATUS = 4007, "status";
    }
}

registry! {
    /// Why a request failed.
    ErrorCode: u32 {
        /// An argument makes no sense.
        ARG_INVALID = 3000, "ArgInvalid";
        /// An argument is missing.
        ARG_MISSING = 3001, "ArgMissing";
        /// An argument is too long.
        ARG_TOO_LONG = 3002, "ArgTooLong";
        /// Another client has it open.
        FILE_LOCKED = 3003, "FileLocked";
        /// There is no such handle.
        FILE_NOT_OPEN = 3004, "FileNotOpen";
        /// The file system refuses for another reason.
        FS_ERROR = 3005, "FSError";
        /// Not now, or not at all.
        INVALID_REQUEST = 3006, "InvalidRequest";
        /// The device fails.
        IO_ERROR = 3007, "IOError";
        /// The server lacks memory.
        NO_MEMORY = 3008, "NoMemory";
        /// The storage is full.
        NO_SPACE = 3009, "NoSpace";
        /// Not allowed.
        NOT_AUTHORIZED = 3010, "NotAuthorized";
        /// There is nothing.
        NOT_FOUND = 3011, "NotFound";
        /// The server is broken.
        SERVER_ERROR = 3012, "ServerError";
        /// The server cannot do that.
        UNSUPPORTED = 3013, "Unsupported";
        /// No server can be reached.
        NO_SERVER = 3014, "noserver";
        /// It is no file.
        NOT_FILE = 3015, "NotFile";
        /// It is a directory.
        IS_DIRECTORY = 3016, "isDirectory";
        /// It was stopped.
        CANCELLED = 3017, "Cancelled";
        /// It is there already, or not empty.
        ITEM_EXISTS = 3018, "ItExists";
        /// Bytes are not what their checksum says.
        CHECKSUM_ERROR = 3019, "ChkSumErr";
        /// It is being done.
        IN_PROGRESS = 3020, "inProgress";
        /// A quota is used up.
        OVER_QUOTA = 3021, "overQuota";
        /// A signature is wrong or missing.
        SIGNATURE_ERROR = 3022, "SigVerErr";
        /// Something could not be decrypted.
        DECRYPT_ERROR = 3023, "DecryptErr";
        /// Too much to do.
        OVERLOADED = 3024, "Overloaded";
        /// The file system is read-only.
        READ_ONLY = 3025, "fsReadOnly";
        /// The bytes of a request make no sense.
        BAD_PAYLOAD = 3026, "BadPayload";
        /// There is no such attribute.
        ATTRIBUTE_NOT_FOUND = 3027, "AttrNotFound";
        /// Only with TLS.
        TLS_REQUIRED = 3028, "TLSRequired";
        /// No server has a replica.
        NO_REPLICAS = 3029, "noReplicas";
        /// The credentials are not good.
        AUTH_FAILED = 3030, "AuthFailed";
        /// It can never be.
        IMPOSSIBLE = 3031, "Impossible";
        /// It contradicts something else.
        CONFLICT = 3032, "Conflict";
        /// Too many errors.
        TOO_MANY_ERRORS = 3033, "TooManyErrs";
        /// It took too long.
        REQUEST_TIMED_OUT = 3034, "ReqTimedOut";
        /// A timer ran out.
        TIMER_EXPIRED = 3035, "TimerExpired";
    }
}

registry! {
    /// Kinds of queries.
    QueryKind: u16 {
        /// Statistics, as XML.
        STATS = 1, "stats";
        /// The outcome of a prepare request.
        PREPARE = 2, "prepare";
        /// The checksum of a file.
        CHECKSUM = 3, "checksum";
        /// Facts about a file, as CGI.
        XATTR = 4, "xattr";
        /// The room that there is.
        SPACE = 5, "space";
        /// Stop computing a checksum.
        CHECKSUM_CANCEL = 6, "checksumcancel";
        /// Settings of the server, by name.
        CONFIG = 7, "config";
        /// By handle; means something to its implementation only.
        VISA = 8, "visa";
        /// Defined by a plug-in, of a file.
        FILE_INFO = 9, "finfo";
        /// Defined by a plug-in, of a file system.
        FILE_SYSTEM_INFO = 10, "fsinfo";
        /// An argument that only the implementation understands.
        OPAQUE = 16, "opaque";
        /// The same with a path.
        OPAQUE_FILE = 32, "opaquefile";
        /// The same by handle.
        OPAQUE_HANDLE = 64, "opaqueug";
    }
}

registry! {
    /// Kinds of messages that come unasked.
    AttnAction: u32 {
        /// A message for people.
        MESSAGE = 5002, "asyncms";
        /// The answer to an earlier request.
        RESPONSE = 5008, "asynresp";
    }
}

registry! {
    /// Operations on attributes.
    FattrKind: u8 {
        /// Remove.
        DELETE = 0, "del";
        /// Read.
        GET = 1, "get";
        /// Name all.
        LIST = 2, "list";
        /// Write.
        SET = 3, "set";
    }
}

registry! {
    /// Operations on a checkpoint.
    ChkpointKind: u8 {
        /// From here on.
        BEGIN = 0, "begin";
        /// Keep what was done.
        COMMIT = 1, "commit";
        /// Limits of a checkpoint.
        QUERY = 2, "query";
        /// Take it back.
        ROLLBACK = 3, "rollback";
        /// Do this, which is a request inside of the request.
        EXECUTE = 4, "execute";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        assert_eq!(RequestId::PGREAD.name(), Some("pgread"));
        assert_eq!(RequestId(9).to_string(), "9");
        assert_eq!(format!("{:?}", ErrorCode::NOT_FOUND), "NotFound");
        assert_eq!(RequestId::KNOWN.len(), 33);
        assert!(RequestId::KNOWN.iter().all(|id| (3000..=3032).contains(&id.0)));
        assert!(ErrorCode::KNOWN.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1));
    }
}
