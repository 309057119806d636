import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  type MovableClock,
  movableClock,
  eventLoopTurns,
  until,
} from "../base/contract/movable-clock.ts";
import { seededRandom } from "../base/random.ts";
import type { ThrottleOptions } from "./declaration.ts";
import { runInThrottleScope } from "./scope.ts";
import { declarationOf, type Throttle, throttle } from "./throttle.ts";
import { createThrottleRegistry, type ThrottleRegistry } from "./registry.ts";

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

let clock: MovableClock;
let throttles: ThrottleRegistry;
const closing: (() => Promise<void>)[] = [];

beforeEach(() => {
  clock = movableClock();
  throttles = createThrottleRegistry({ clock, random: seededRandom(1) });
});
afterEach(async () => {
  throttles.close();
  for (const close of closing.splice(0)) await close();
});

/** A real server on this machine, and a throttle for it. */
async function downstream(answer: Answer, options: ThrottleOptions = {}) {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closing.push(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1/chat`;
  const api = throttle("api", { initial: 4, ...options });
  return { url, api, fetch: inPod(api.fetch), server };
}

/** The same function, called as a handler of the pod under test would. */
function inPod<Args extends unknown[], Result>(fn: (...args: Args) => Promise<Result>) {
  return (...args: Args) => runInThrottleScope({ throttles }, () => fn(...args));
}

const limiterOf = (api: Throttle) => throttles.of(declarationOf(api).declared);
const inFlight = (api: Throttle) => limiterOf(api).demand().inFlight;
const outcomes = (api: Throttle) => limiterOf(api).snapshot().outcomes;
const hello: Answer = (_, response) => response.end("hello");
/** Says something, and goes on only when it is told to. */
const halfway: Answer = (_, response) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write("data: one\n\n");
};
const mebibyte = Buffer.alloc(1_048_576, "x");

describe("a throttle's fetch", () => {
  test("gives what fetch gives", async () => {
    const { url, fetch } = await downstream((request, response) => {
      response.writeHead(201, "Made", { "content-type": "application/json", "x-request-id": "7" });
      request.pipe(response);
    });
    const body = JSON.stringify({ model: "large" });
    const response = await fetch(url, { method: "POST", body });
    expect(response).toBeInstanceOf(Response);
    expect(response).toMatchObject({ status: 201, statusText: "Made", ok: true, url });
    expect(response.headers.get("x-request-id")).toBe("7");
    expect(await response.clone().json()).toEqual({ model: "large" });
    expect(await response.json()).toEqual({ model: "large" });
  });

  test("lets no more requests through at once than the limit", async () => {
    const inside: ServerResponse[] = [];
    let most = 0;
    let asked = 0;
    const { url, api, fetch } = await downstream(
      (_, response) => {
        asked++;
        most = Math.max(most, inside.push(response));
        // It answers only when as many are there as may be, or all have come.
        if (inside.length >= 3) inside.shift()!.end("ok");
        if (asked === 30) for (const left of inside) left.end("ok");
      },
      { initial: 3, max: 3 },
    );
    const texts = Array.from({ length: 30 }, async () => (await fetch(url)).text());
    expect(new Set(await Promise.all(texts))).toEqual(new Set(["ok"]));
    expect(most).toBe(3);
    expect(outcomes(api).success).toBe(30);
    expect(inFlight(api)).toBe(0);
  });

  test("holds its permit until a streamed body has ended, and knows when its first piece came", async () => {
    let finish: () => void = () => {};
    const { url, api, fetch } = await downstream((request, response) => {
      halfway(request, response);
      finish = () => response.end("data: two\n\n");
    });
    const response = await fetch(url);
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    expect((await reader.read()).value).toBe("data: one\n\n");
    expect(inFlight(api)).toBe(1);
    expect(outcomes(api).success).toBe(0);
    await clock.advance(300);
    finish();
    expect((await reader.read()).value).toBe("data: two\n\n");
    expect((await reader.read()).done).toBe(true);
    expect(inFlight(api)).toBe(0);
    const { latencyMs, firstTokenMs } = limiterOf(api).snapshot();
    expect(latencyMs.p95).toBeGreaterThanOrEqual(300);
    expect(firstTokenMs.p95).toBeLessThan(300);
  });

  test("gives it back when a body is cancelled, and ends the request", async () => {
    let closed = false;
    const { url, api, fetch } = await downstream((request, response) => {
      halfway(request, response);
      response.on("close", () => (closed = true));
    });
    const response = await fetch(url);
    const reader = response.body!.getReader();
    await reader.read();
    await reader.cancel();
    expect(inFlight(api)).toBe(0);
    expect(outcomes(api)).toMatchObject({ success: 1 });
    await until("the server sees it", () => closed);
  });

  test("gives it back when the caller aborts in the middle of a body", async () => {
    const { url, api, fetch } = await downstream(halfway);
    const stop = new AbortController();
    const response = await fetch(url, { signal: stop.signal });
    const reader = response.body!.getReader();
    await reader.read();
    const rest = reader.read();
    stop.abort(new Error("enough"));
    await expect(rest).rejects.toThrow("enough");
    expect(inFlight(api)).toBe(0);
  });

  test("gives it back when the connection is lost in the middle of a body, which is a failure", async () => {
    const { url, api, fetch } = await downstream((request, response) => {
      halfway(request, response);
      setImmediate(() => response.destroy());
    });
    const response = await fetch(url);
    await expect(response.text()).rejects.toThrow("terminated");
    expect(inFlight(api)).toBe(0);
    expect(outcomes(api)).toMatchObject({ server_error: 1, success: 0 });
  });

  test("gives it back for a short body that isn't read", async () => {
    const { url, api, fetch } = await downstream(hello);
    await fetch(url);
    await until("the permit is back", () => inFlight(api) === 0);
    expect(outcomes(api).success).toBe(1);
  });

  test("gives it back for a long body that isn't read when the call's time is up, as an ignored outcome", async () => {
    const { url, api, fetch } = await downstream((_, response) => response.end(mebibyte), {
      callTimeoutMs: 5_000,
      graceMs: 100,
    });
    const response = await fetch(url);
    // Read ahead as far as it will go, so that it is the reader who is waited for.
    for (let each = 0; each < 50; each++) await eventLoopTurns();
    expect(inFlight(api)).toBe(1);
    await clock.advance(5_100);
    expect(inFlight(api)).toBe(0);
    expect(outcomes(api)).toMatchObject({ ignored: 1, timeout: 0 });
    expect(response.bodyUsed).toBe(false);
  });

  test("gives it back for a long body that was dropped unread", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const { url, api, fetch } = await downstream((_, response) => response.end(mebibyte));
    await (async () => void (await fetch(url)))();
    await until("the permit is back", async () => {
      collect();
      await eventLoopTurns();
      return inFlight(api) === 0;
    });
    expect(outcomes(api)).toMatchObject({ success: 1, server_error: 0 });
  });

  test("gives it back at once where there is no body", async () => {
    const { url, api, fetch } = await downstream((_, response) => response.writeHead(204).end());
    expect((await fetch(url)).body).toBeNull();
    expect(inFlight(api)).toBe(0);
    const head = await downstream(hello);
    await inPod(head.api.fetch)(head.url, { method: "HEAD" });
    expect(inFlight(head.api)).toBe(0);
  });

  test("stays away for as long as a refusal demands, and lets its body be read", async () => {
    let refuse = true;
    const { url, api, fetch } = await downstream((_, response) => {
      if (refuse) response.writeHead(429, { "retry-after": "3" }).end("slow down");
      else response.end("welcome");
    });
    const refused = await fetch(url);
    expect(refused.status).toBe(429);
    expect(inFlight(api)).toBe(0);
    expect(await refused.text()).toBe("slow down");
    expect(outcomes(api).throttled).toBe(1);
    expect(limiterOf(api).findRefusal()).toMatchObject({ by: "hold" });

    refuse = false;
    const next = fetch(url);
    await clock.advance(2_900);
    expect(limiterOf(api).demand()).toMatchObject({ inFlight: 0, waiting: 1 });
    await clock.advance(500);
    expect(await (await next).text()).toBe("welcome");
  });

  test("distinguishes a server's fault from a mistake in the request", async () => {
    const { url, api, fetch } = await downstream((request, response) =>
      response.writeHead(Number(request.headers["x-answer"])).end(),
    );
    for (const status of ["500", "400", "529", "503"]) {
      await fetch(url, { headers: { "x-answer": status } });
    }
    expect(outcomes(api)).toMatchObject({ server_error: 2, ignored: 1, throttled: 1 });
  });

  test("fails as fetch does where no server answers", async () => {
    const { url, api, fetch, server } = await downstream(hello);
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await expect(fetch(url)).rejects.toThrow("fetch failed");
    expect(outcomes(api).server_error).toBe(1);
    expect(inFlight(api)).toBe(0);
  });

  test("ends a request that takes too long", async () => {
    let asked = 0;
    const { url, api, fetch } = await downstream(() => asked++, { callTimeoutMs: 2_000 });
    const late = fetch(url).catch((error: unknown) => error);
    await until("the server is asked", () => asked === 1);
    await clock.advance(2_000);
    expect(await late).toMatchObject({ code: "timeout" });
    expect(outcomes(api).timeout).toBe(1);
  });

  test("ends a body that takes too long", async () => {
    const { url, api, fetch } = await downstream(halfway, { callTimeoutMs: 2_000 });
    const response = await fetch(url);
    const text = response.text().catch((error: unknown) => error);
    await until("the first piece is there", () => limiterOf(api).demand().inFlight === 1);
    await clock.advance(2_000);
    expect(await text).toMatchObject({ code: "timeout" });
    expect(outcomes(api)).toMatchObject({ timeout: 1, success: 0 });
  });

  test("can be aborted while it waits for a permit, and then rejects as fetch does", async () => {
    const { url, api, fetch } = await downstream(halfway, { initial: 1, max: 1 });
    const first = await fetch(url);
    const stop = new AbortController();
    const viaInit = fetch(url, { signal: stop.signal });
    const viaRequest = fetch(new Request(url, { signal: stop.signal }));
    await eventLoopTurns();
    expect(limiterOf(api).demand().waiting).toBe(2);
    stop.abort();
    await expect(viaInit).rejects.toMatchObject({ name: "AbortError" });
    await expect(viaRequest).rejects.toMatchObject({ name: "AbortError" });
    await first.body!.cancel();
  });

  test("can be read into the reader's own buffer", async () => {
    const { url, fetch } = await downstream(hello);
    const response = await fetch(url);
    const reader = response.body!.getReader({ mode: "byob" });
    const read = await reader.read(new Uint8Array(16));
    expect(Buffer.from(read.value!).toString()).toBe("hello");
    expect((await reader.read(new Uint8Array(16))).done).toBe(true);
  });

  test("takes a key from the request, and another fetch to make it with", async () => {
    const api = throttle("api");
    const urls: string[] = [];
    const send = inPod(
      api.fetchWith({
        key: (input) => new URL(input as string).pathname,
        fetch: async (input) => {
          urls.push(input as string);
          return new Response("made up");
        },
      }),
    );
    expect(await (await send("http://127.0.0.1/large")).text()).toBe("made up");
    await (await send("http://127.0.0.1/small")).text();
    expect(urls).toEqual(["http://127.0.0.1/large", "http://127.0.0.1/small"]);
    expect(throttles.all().map(({ key }) => key)).toEqual(["/large", "/small"]);
  });

  test("holds the permit of a run around it until its body has ended, though the run hasn't waited", async () => {
    let finish = () => {};
    const { url, api } = await downstream((request, response) => {
      halfway(request, response);
      finish = () => response.end("data: two\n\n");
    });
    const response = await inPod(() => api.run(() => api.fetch(url)))();
    await eventLoopTurns();
    expect(inFlight(api)).toBe(1);
    finish();
    expect(await response.text()).toBe("data: one\n\ndata: two\n\n");
    await until("the permit", () => inFlight(api) === 0);
    expect(outcomes(api)).toMatchObject({ success: 1 });
  });

  test("passes under the permit of a run around it", async () => {
    const { url, api } = await downstream(hello, { initial: 1, max: 1 });
    const text = await inPod(() => api.run(async () => (await api.fetch(url)).text()))();
    expect(text).toBe("hello");
    expect(outcomes(api).success).toBe(1);
  });
});

describe("what answers state about limits, through fetch", () => {
  const stating = (remaining: number, status = 200): Answer => {
    return (_, response) => {
      response.writeHead(status, {
        "x-ratelimit-limit-requests": "600",
        "x-ratelimit-remaining-requests": String(remaining),
        "x-ratelimit-reset-requests": "20s",
      });
      response.end("{}");
    };
  };

  test.each([200, 404, 500])(
    "is heeded before anything is refused, with status %i",
    async (status) => {
      const { url, api, fetch } = await downstream(stating(0, status));
      await (await fetch(url)).text();
      expect(limiterOf(api).findRefusal()).toMatchObject({ by: "bucket" });
      await clock.advance(100);
      expect(limiterOf(api).findRefusal()).toBeUndefined();
    },
  );

  test("is heeded from when the answer begins, not from its end", async () => {
    const { url, api, fetch } = await downstream((request, response) => {
      response.setHeader("ratelimit", '"a";r=0;t=30');
      response.setHeader("ratelimit-policy", '"a";q=9;w=60');
      halfway(request, response);
    });
    const response = await fetch(url);
    expect(inFlight(api)).toBe(1);
    expect(limiterOf(api).findRefusal()).toMatchObject({ by: "bucket" });
    await response.body?.cancel();
  });
});
