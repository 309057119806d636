import { matchesGlob } from "node:path";
import { describe, expect, test } from "vitest";
import { codeOnly } from "./code-only.ts";
import { importsOf, shippedSources, type Source } from "./sources.ts";

/** The files that may touch time, chance or the network, each with the reason why. */
const adapters: Record<string, string> = {
  "src/agent/network.ts": "is the network of a web backend or a page, unless it is given another",
  "src/base/clock.ts": "is the system clock that everything else is given",
  "src/base/random.ts": "is the system's randomness that everything else is given",
  "src/bus/nats/monitor.ts": "reads what servers of NATS say of themselves over HTTP",
  "src/client/environment.ts":
    "is the page or process that a client runs in, unless it is given another",
  "src/dashboard/browser.ts": "is the page that the dashboard runs in",
  "src/files/s3.ts": "is the way to a bucket, with its limit of time for each request",
  "src/server/serve.ts": "is the server's door to the network; its routes are tested without it",
  "src/server/tls.ts": "checks that a key and a certificate fit, which opens no connection",
  "src/sessions/turns/network.ts": "is the way to agents at URLs, which turns are given",
  "src/server/socket/sockets.ts":
    "ends a turn of the event loop, which is when sockets send what came up in it",
  "src/throttles/fetch.ts":
    "is the network that a throttle's fetch calls unless it is given another",
  "src/testing/clock.ts": "waits for handlers under test, which may await real things",
  "src/store/sqlite/*.ts": "run on threads of their own, where nothing can be handed in",
};

const forbidden: Record<string, RegExp> = {
  "the time": /\bDate\.now\b|\bnew Date(?:\(\s*\)|(?!\s*\())|(?<!new )\bDate\(\s*\)/,
  "the monotonic time": /\bperformance\.now\b|\bprocess\.hrtime\b/,
  "a timer": bare("(?:setTimeout|setInterval|setImmediate)\\b"),
  "a deadline": /\bAbortSignal\.timeout\b/,
  chance: /\bMath\.random\b|\b(?:randomUUID|randomBytes|randomInt|getRandomValues)\b/,
  "the network": bare("fetch\\("),
  "the network by default": /\bglobalThis\.fetch\b/,
};
const forbiddenModule =
  /^(?:node:)?(?:net|tls|http|https|http2|dgram|timers(?:\/promises)?|undici)$/;

describe("time, chance and the network", () => {
  test("come in through parameters everywhere under src but in the adapters", () => {
    const rest = shippedSources().filter(({ path }) => !adapterOf(path));
    expect(rest.flatMap(touches)).toEqual([]);
  });

  test("have no adapter listed that is gone or needs no listing", () => {
    const used = shippedSources()
      .filter((source) => touches(source).length > 0)
      .map(({ path }) => adapterOf(path));
    expect(Object.keys(adapters).filter((glob) => !used.includes(glob))).toEqual([]);
  });

  test.each([
    "const nowMs = Date.now();",
    "const now = new Date();",
    "const now = new Date;",
    "const startMs = performance.now();",
    "const start = process.hrtime.bigint();",
    "setTimeout(stop, 10);",
    "const { schedule = setInterval } = options;",
    "globalThis.setImmediate(stop);",
    `import { setTimeout as sleep } from "node:timers/promises";`,
    "const signal = AbortSignal.timeout(10);",
    "const share = Math.random();",
    "const id = crypto.randomUUID();",
    "const id = `task-${randomBytes(8)}`;",
    "const bytes = crypto.getRandomValues(buffer);",
    "const answer = await fetch(url);",
    "const { request = globalThis.fetch } = options;",
    `import net from "node:net";`,
    `const { request } = await import("https");`,
    `import { request } from "undici";`,
    "const quote = /[\"'`]/; Date.now();",
    "const half = total / 2; Date.now(); // a half /",
    "const text = `a ${`b ${Date.now()}`}`;",
  ])("are caught in: %s", (text) => {
    expect(touches({ path: "src/queue/planted.ts", text })).not.toEqual([]);
  });

  test.each([
    "// Date.now() is not ours to call.",
    "/** Unlike setTimeout, this can be moved by tests. */",
    `throw new Error("never call Date.now()");`,
    "const text = `Math.random() is ${no} good, nor is fetch(`;",
    "const pattern = /setTimeout/;",
    "const due = new Date(task.runAtMs);",
    "clock.setTimeout(wake, 10);",
    "const answer = await options.fetch(url);",
    `import type { Server } from "node:http";`,
  ])("are left alone in: %s", (text) => {
    expect(touches({ path: "src/queue/planted.ts", text })).toEqual([]);
  });
});

function touches({ path, text }: Source): string[] {
  const code = codeOnly(text);
  const inCode = Object.entries(forbidden)
    .filter(([, pattern]) => pattern.test(code))
    .map(([what]) => `${path} touches ${what}`);
  const inImports = importsOf(text)
    .filter(({ from, kind }) => kind !== "type" && forbiddenModule.test(from))
    .map(({ from }) => `${path} imports ${from}`);
  return [...inCode, ...inImports];
}

function adapterOf(path: string): string | undefined {
  return Object.keys(adapters).find((glob) => matchesGlob(path, glob));
}

/** The global itself, and not a property of that name on something we were given. */
function bare(pattern: string): RegExp {
  return new RegExp(String.raw`(?:\bglobalThis\.|(?<![.\w$#]))${pattern}`);
}
