//! HTTP status codes.

/// A status code and its reason phrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpStatus(pub u16, pub &'static str);

#[allow(missing_docs)]
impl HttpStatus {
    pub const OK: Self = Self(200, "OK");
    pub const PARTIAL: Self = Self(206, "Partial Content");
    pub const FOUND: Self = Self(302, "Found");
    pub const NOT_MODIFIED: Self = Self(304, "Not Modified");
    pub const BAD_REQUEST: Self = Self(400, "Bad Request");
    pub const FORBIDDEN: Self = Self(403, "Forbidden");
    pub const NOT_FOUND: Self = Self(404, "Not Found");
    pub const NOT_ALLOWED: Self = Self(405, "Method Not Allowed");
    pub const TIMEOUT: Self = Self(408, "Request Timeout");
    pub const CONDITION_FAILED: Self = Self(412, "Precondition Failed");
    pub const TARGET_TOO_LONG: Self = Self(414, "URI Too Long");
    pub const RANGE_UNSATISFIABLE: Self = Self(416, "Range Not Satisfiable");
    pub const EXPECTATION_FAILED: Self = Self(417, "Expectation Failed");
    pub const HEAD_TOO_LARGE: Self = Self(431, "Request Header Fields Too Large");
    pub const ERROR: Self = Self(500, "Internal Server Error");
    pub const NOT_IMPLEMENTED: Self = Self(501, "Not Implemented");
    pub const UNAVAILABLE: Self = Self(503, "Service Unavailable");
    pub const VERSION: Self = Self(505, "HTTP Version Not Supported");
}
