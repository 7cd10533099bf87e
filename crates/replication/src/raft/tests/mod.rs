//! Tests of Raft mode over a commit log in memory.

mod group;
mod memory_log;
mod simulated_group;
mod simulation;
mod storage;
