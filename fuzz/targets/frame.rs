//! Frames and their headers, as a stranger may send them. What is understood must survive being written again.

#![no_main]

use ferromq_protocol::command::RemotingCommand;
use ferromq_protocol::frame::{self, HeaderEncoding};
use ferromq_protocol::header::HeaderScratch;
use ferromq_protocol::pull::PullHeader;
use ferromq_protocol::send::SendHeader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut scratch = HeaderScratch::default();
    let mut rest = bytes;
    while let Ok(Some((frame, length))) = frame::split(rest) {
        assert!(8 <= length && length <= rest.len());
        rest = &rest[length..];
        let Ok(request) = scratch.parse(&frame) else { continue };
        let _ = SendHeader::parse(&request);
        let _ = PullHeader::parse(&request);
        for (_, value) in request.fields.iter() {
            let _ = (value.text(), value.number(), value.boolean());
        }
        if let Ok(command) = RemotingCommand::from_request(&request) {
            for encoding in [HeaderEncoding::Json, HeaderEncoding::Binary] {
                survives(&command, encoding);
            }
        }
    }
});

fn survives(command: &RemotingCommand, encoding: HeaderEncoding) {
    let mut written = Vec::new();
    command.encode(encoding, &mut written);
    let (frame, length) = frame::split(&written).expect("our own frame").expect("all of it");
    assert_eq!(length, written.len());
    let read = RemotingCommand::decode(&frame).expect("our own header");
    // The binary form has 16 bits for a code.
    let code = if encoding == HeaderEncoding::Binary { i32::from(command.code as i16) } else { command.code };
    assert_eq!((read.code, read.opaque, read.flag), (code, command.opaque, command.flag));
    assert_eq!(read.body, command.body);
}
