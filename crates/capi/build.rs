//! Gives the shared library the name that programs look for, and has it stay where it was loaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The number is GRIDLANE_ABI_MAJOR of include/gridlane.h, and that of scripts/install.sh.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgridlane.so.1");
    // Its threads run on when dlclose is called.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
