import { describe, expect, test } from "vitest";
import type { StreamCopy } from "../../sessions/log/jetstream/engine.ts";
import { judgeCopies, type LogCopies } from "./copies.ts";

const copy = (server: string, state: StreamCopy["state"] = "current"): StreamCopy => ({
  server,
  state,
});
const three = [copy("n1"), copy("n2"), copy("n3")];
const log = (given: Partial<LogCopies> = {}): LogCopies => ({
  logId: 0,
  copies: three,
  sequence: 7,
  answers: ["a", "a", "a"],
  ...given,
});
const replicas = 3;

describe("the doctor on copies of logs", () => {
  test("is content where all servers have the same", () => {
    expect(judgeCopies([log(), log({ logId: 1, answers: [] })], { replicas })).toMatchObject({
      verdict: "ok",
      message: "3 servers have the same of each log",
    });
    const single = log({ copies: [], answers: [] });
    expect(judgeCopies([single], { replicas: 1 })).toMatchObject({ verdict: "ok" });
  });

  test("fails where two servers differ, whatever else is the matter", () => {
    const torn = log({ logId: 4, answers: ["a", "a", "b", "a"] });
    const late = log({ copies: [copy("n1"), copy("n2"), copy("n3", "behind")] });
    expect(judgeCopies([late, torn], { replicas })).toMatchObject({
      verdict: "fail",
      message: expect.stringContaining("different messages at 7 of log 4"),
    });
  });

  test("fails where a log has fewer copies than it should", () => {
    expect(judgeCopies([log({ copies: three.slice(1) })], { replicas })).toMatchObject({
      verdict: "fail",
      message: expect.stringContaining("log 0 is on 2 servers, not on 3"),
    });
  });

  test("names servers that are away or behind, once each", () => {
    const copies = [copy("n1"), copy("n2", "offline"), copy("n3", "behind")];
    expect(judgeCopies([log({ copies }), log({ logId: 1, copies })], { replicas })).toMatchObject({
      verdict: "warn",
      message: "n2 is offline, n3 is behind: end no other server before it has caught up",
    });
  });
});
