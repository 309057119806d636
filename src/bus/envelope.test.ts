import { expect, test } from "vitest";
import { decodeNotification, encodeNotification } from "./envelope.ts";

test.each(["alice", 'a "b"\n c', "1 2 \u2028 ✓"])(
  "envelopes of %j are read as they were written",
  (sender) => {
    const envelope = { sender, seq: 7, after: 5, body: '[{"topic":"note","body":"a\\nb"}]' };
    expect(decodeNotification(encodeNotification(envelope))).toEqual(envelope);
  },
);

test.each(["", "hello", "1 2", "1 2 alice\n[]", '-1 2 "a"\n[]', '1 2 "a\n[]', '1 2 "\\x"\n[]'])(
  "%j holds no envelopes, so that the receiver reads the store",
  (text) => {
    expect(decodeNotification(text)).toBeUndefined();
  },
);
