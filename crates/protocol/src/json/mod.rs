//! JSON as fastjson 1.2.83 reads and writes it (`docs/spec/01-remoting.md` 5.2).
