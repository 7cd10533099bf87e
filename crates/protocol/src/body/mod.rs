//! Bodies of requests and answers (`docs/spec/01-remoting.md` 5.3).
