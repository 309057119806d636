import { expect, test } from "vitest";
import { decodeNotification, encodeNotification } from "./envelope.ts";

test.each(["alice", 'a "b"\n c', "1 2 \u2028 ✓"])(
  "letters of %j are read as they were written",
  (sender) => {
    const mail = { sender, seq: 7, after: 5, body: '[{"topic":"note","body":"a\\nb"}]' };
    expect(decodeNotification(encodeNotification(mail))).toEqual(mail);
  },
);

test.each(["", "hello", "1 2", "1 2 alice\n[]", '-1 2 "a"\n[]', '1 2 "a\n[]', '1 2 "\\x"\n[]'])(
  "%j is no mail, so that there is something to look for",
  (text) => {
    expect(decodeNotification(text)).toBeUndefined();
  },
);
