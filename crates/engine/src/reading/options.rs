//! The options of a file that is read.

use gridlane_read::Settings;
use gridlane_store::sparse::SparseCache;

/// The way in which a remote file is read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The planner's settings: policy, memory, budget, connections, patience.
    pub settings: Settings,
    /// Every byte that comes over XRootD's protocol in clear is compared with the checksum of its page, small scattered ones too:
    /// then they come by as many reads as there are ranges, since vectors have no checksums. Without it ranges that are
    /// alone and those that fill the page map are compared.
    pub checks_every_page: bool,
    /// Where what is read is kept on the disk, and looked for first.
    pub cache: Option<ReadCache>,
    /// The file's checksum is not asked for when all of its bytes are there.
    pub skips_proof: bool,
}

/// Where what is read is kept.
#[derive(Clone, Debug)]
pub struct ReadCache {
    /// The directory.
    pub cache: SparseCache,
    /// The user as servers know it, without secrets; empty for nobody in particular. What one user has read is not looked for
    /// by another.
    pub user: String,
}
