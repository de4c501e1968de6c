//! Parts that tests over real sockets have in common.

/// Tests that run with records of our own, and again with those of rustls.
macro_rules! with_both {
    ($($name:ident)*) => {
        mod own_records {
            $(#[tokio::test]
            async fn $name() {
                super::$name(gridlane_net::tls::RecordLayer::Own).await;
            })*
        }

        mod rustls_alone {
            $(#[tokio::test]
            async fn $name() {
                super::$name(gridlane_net::tls::RecordLayer::Rustls).await;
            })*
        }
    };
}
