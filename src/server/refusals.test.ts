import { Hono } from "hono";
import { describe, expect, test } from "vitest";
import { FlotillaError } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";
import { movableClock } from "../base/contract/movable-clock.ts";
import { sharedRedactor } from "../redaction/redactor.ts";
import { startTestServer } from "./contract/test-server.ts";
import { createErrorResponder } from "./errors.ts";
import { frameErrorOf } from "./socket/send-buffer.ts";
import { waitsInVain } from "../sessions/log/call-deadline.ts";

type Line = { level: string; message: string; fields: Record<string, unknown> };

function noting() {
  const lines: Line[] = [];
  const at = (level: string) => (fields: object, message: string) =>
    void lines.push({ level, message, fields: fields as Record<string, unknown> });
  const log: Logger = {
    debug: at("debug"),
    info: at("info"),
    warn: at("warn"),
    error: at("error"),
  };
  return { lines, log };
}

describe("a refusal", () => {
  const clock = movableClock();
  const answering = (thrown: () => unknown) => {
    const { lines, log } = noting();
    const refuse = createErrorResponder({ log, clock });
    const app = new Hono().get("/", () => {
      throw thrown();
    });
    app.onError((error, c) => refuse(c, error));
    return { lines, ask: () => app.request("/") };
  };

  test("for too much is a warning with a count, and a flood of them a line in ten seconds", async () => {
    const { lines, ask } = answering(() => new FlotillaError("overloaded", "too many requests"));
    for (let asked = 0; asked < 1_000; asked++) expect((await ask()).status).toBe(503);
    expect(lines).toMatchObject([{ level: "warn", fields: { code: "overloaded", refused: 1 } }]);
    await clock.advance(10_000);
    await ask();
    expect(lines).toHaveLength(2);
    expect(lines[1]).toMatchObject({
      level: "warn",
      fields: { code: "overloaded", refused: 1_000 },
    });
  });

  test("before the caller is known, because keys can't be checked, leaves no line", async () => {
    const thrown = new FlotillaError("unavailable", "keys can't be checked right now");
    const { lines, ask } = answering(() => thrown);
    const answer = await ask();
    expect([answer.status, answer.headers.get("retry-after"), lines]).toEqual([503, "1", []]);
  });

  test("because only a database that is away has what was asked for say when to ask again", async () => {
    const { ask } = answering(waitsInVain);
    const answer = await ask();
    expect([answer.status, answer.headers.get("retry-after")]).toEqual([503, "5"]);
    expect(await answer.text()).not.toContain("in vain");
  });

  test("for the store's trouble names the store in the log, and nowhere else", async () => {
    const where = "the database can't be reached: connect ECONNREFUSED 10.20.30.40:5432";
    for (const code of ["store_unavailable", "unknown_outcome", "internal"] as const) {
      const thrown = new FlotillaError(code, where, { details: { host: "10.20.30.40" } });
      const { lines, ask } = answering(() => thrown);
      const body = await (await ask()).text();
      expect(body).toContain(code);
      expect(body).not.toMatch(/10\.20|5432/);
      expect(lines).toMatchObject([{ level: "error", fields: { error: where } }]);
      const frames = noting();
      expect(JSON.stringify(frameErrorOf(thrown, frames.log))).not.toMatch(/10\.20|5432/);
      expect(frames.lines).toMatchObject([{ fields: { error: where } }]);
    }
  });
});

test("refusals hide what the config's `redact` hides, also where no pod runs beside the server", async () => {
  const server = await startTestServer({ redact: [/\bMINE-\d{6}\b/] });
  await server.pod.stop();
  const answer = await fetch(`${server.url}/v1/tasks/MINE-123456`);
  expect(await answer.json()).toMatchObject({ error: { message: "there is no task [redacted]" } });
  await server[Symbol.asyncDispose]();
  // The process is as it was before.
  expect(sharedRedactor.text("MINE-123456")).toBe("MINE-123456");
});
