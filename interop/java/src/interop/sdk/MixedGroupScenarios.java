package interop.sdk;

import static interop.sdk.Peer.Language.JAVA;
import static interop.sdk.Peer.Language.RUST;

import interop.Scenario;

/** Rust and Java consumers in one group. */
final class MixedGroupScenarios {
    private MixedGroupScenarios() { }

    static void concurrent(Scenario s) throws Exception {
        try (MixedGroup group = new MixedGroup(s, "consume")) {
            Member rust = group.join("rust-1", RUST);
            Member java = group.join("java-1", JAVA);
            group.settle();
            Member otherRust = group.join("rust-2", RUST);
            group.settle();
            Member otherJava = group.join("java-2", JAVA);
            group.settle();
            group.leave(java);
            group.settle();
            group.kill(rust);
            group.settle();
            group.join("java-3", JAVA);
            group.join("rust-3", RUST);
            group.settle();
            group.kill(otherJava);
            group.settle();
            group.leave(otherRust);
            group.settle();
            group.finish();
        }
    }

    static void orderly(Scenario s) throws Exception {
        try (MixedGroup group = new MixedGroup(s, "orderly")) {
            Member rust = group.join("rust-1", RUST);
            Member java = group.join("java-1", JAVA);
            group.settle();
            Member otherRust = group.join("rust-2", RUST);
            Member otherJava = group.join("java-2", JAVA);
            group.settle();
            group.leave(otherRust);
            group.settle();
            group.leave(otherJava);
            group.settle();
            group.join("rust-3", RUST);
            group.join("java-3", JAVA);
            group.settle();
            // Their locks live for another minute.
            group.kill(rust, java);
            group.settle();
            group.finish();
            group.checkOrder();
        }
    }
}
