import { type Clock, systemClock } from "../base/clock.ts";
import { backoffMs } from "../base/backoff.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import { createLines } from "../base/lines.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import { type Random, systemRandom } from "../base/random.ts";
import { type Fetch, networkFetch } from "./network.ts";

export type ResumingOptions = {
  /** How long to try while nothing comes. Default a minute. */
  timeoutMs?: number;
  /** Default: the network's. */
  fetch?: Fetch;
  clock?: Clock;
  random?: Random;
};

const timeoutByDefaultMs = 60_000;
// Servers send a comment every 15 seconds.
const silentMs = 45_000;
const maxEventBytes = 16 * 1024 * 1024;
/** The server is there again in a moment. */
const passing = new Set([408, 425, 429, 500, 502, 503, 504]);

/**
 * A `fetch` for runs of AG-UI, such as that of an `HttpAgent`. Where the connection is cut, it asks for the
 * same run from the event after the last one, so that its reader sees one answer, and no event twice.
 */
export function resumingFetch(options: ResumingOptions = {}): Fetch {
  checkOptions("resumingFetch", options, ["timeoutMs", "fetch", "clock", "random"]);
  const {
    timeoutMs = timeoutByDefaultMs,
    fetch: call = networkFetch,
    clock = systemClock,
    random = systemRandom,
  } = options;
  checkNumber("resumingFetch: timeoutMs", timeoutMs, { min: 0, max: 3_600_000 });

  return async (url, init = {}) => {
    const gone = new AbortController();
    const leave = () => gone.abort(init.signal?.reason);
    if (init.signal?.aborted) leave();
    else init.signal?.addEventListener("abort", leave, { once: true });
    const given = new Headers(init.headers);
    let lastId = given.get("last-event-id") ?? undefined;

    const ask = (signal: AbortSignal): Promise<Response> => {
      const headers = new Headers(given);
      if (lastId !== undefined) headers.set("last-event-id", lastId);
      return call(url, { ...init, headers: Object.fromEntries(headers), signal });
    };
    const pause = (failures: number, left: number) =>
      new Promise<void>((resolve) => {
        const waitMs = backoffMs(failures, random, { baseMs: 250, maxMs: 5_000, jitter: 0.5 });
        const cancel = clock.after(Math.min(waitMs, left), resolve);
        gone.signal.addEventListener("abort", () => (cancel(), resolve()), { once: true });
      });

    const first = await connected(ask);
    if (!first.response.ok || !isEvents(first.response)) return first.response;
    return new Response(bytesOf(events(first)), {
      status: first.response.status,
      headers: eventHeaders,
    });

    /** A connection that can be dropped without the others. */
    async function connected(how: typeof ask) {
      const own = new AbortController();
      const drop = () => own.abort(gone.signal.reason);
      if (gone.signal.aborted) drop();
      else gone.signal.addEventListener("abort", drop, { once: true });
      const response = await how(own.signal);
      return { response, drop };
    }

    async function* events(begun: Awaited<ReturnType<typeof connected>>): AsyncGenerator<string> {
      let connection: typeof begun | undefined = begun;
      let failures = 0;
      let silentSince = clock.monotonic();
      let hasTold = false;
      for (;;) {
        let cause: unknown = new Error("the answer ended before its run did");
        try {
          connection ??= await connected(ask);
          const { response } = connection;
          if (!response.ok) {
            const refusal = await refusalOf(response);
            if (!passing.has(response.status)) return yield told({ type: "RUN_ERROR", ...refusal });
            throw new Error(refusal.message);
          }
          for await (const event of blocksOf(connection)) {
            silentSince = clock.monotonic();
            failures = 0;
            if (event.data !== undefined) hasTold = true;
            if (event.id !== undefined) lastId = event.id;
            yield event.text;
            if (event.isEnd) return connection.drop();
          }
        } catch (error) {
          cause = error;
        }
        connection?.drop();
        connection = undefined;
        if (gone.signal.aborted) return;
        const left = timeoutMs - (clock.monotonic() - silentSince);
        // Without the place of an event, the next ones can't be told from it.
        if (left <= 0 || (hasTold && lastId === undefined)) throw cause;
        await pause(++failures, left);
        if (gone.signal.aborted) return;
      }
    }

    async function* blocksOf({ response, drop }: Awaited<ReturnType<typeof connected>>) {
      const lines = createLines({ maxLineBytes: maxEventBytes, returns: true });
      const reader = response.body!.getReader();
      let block: string[] = [];
      let bytes = 0;
      for (;;) {
        const cancel = clock.after(silentMs, drop);
        const { done, value } = await reader.read().finally(cancel);
        if (done) return;
        const batch = lines.push(value);
        bytes += value.length;
        if (batch.tooLong || bytes > maxEventBytes) throw tooLarge();
        for (const line of batch.lines) {
          if (line === undefined) throw tooLarge();
          if (line !== "") {
            block.push(line);
            continue;
          }
          const event = eventIn(block);
          block = [];
          bytes = 0;
          if (event) yield event;
        }
      }
    }

    function bytesOf(texts: AsyncGenerator<string>): ReadableStream<Uint8Array<ArrayBuffer>> {
      const encoder = new TextEncoder();
      return new ReadableStream(
        {
          async pull(controller) {
            const { done, value } = await texts.next();
            if (!done) return controller.enqueue(encoder.encode(value));
            if (gone.signal.aborted) controller.error(gone.signal.reason);
            else controller.close();
          },
          cancel: (reason) => gone.abort(reason),
        },
        { highWaterMark: 0 },
      );
    }
  };
}

const eventHeaders = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
};

type Event = { text: string; id?: string; data?: string; isEnd: boolean };

/** Undefined for what says nothing, and for what a server says of the stream and not of the run. */
function eventIn(block: readonly string[]): Event | undefined {
  const field = (name: string) => block.filter((line) => line.startsWith(`${name}:`)).map(valueOf);
  if (field("event").length > 0 || block.length === 0) return undefined;
  const text = `${block.join("\n")}\n\n`;
  const [id] = field("id");
  const data = field("data");
  if (data.length === 0) return { text, isEnd: false };
  const isEnd = endsRun(data.join("\n"));
  return { text, data: data.join("\n"), isEnd, ...(id !== undefined && { id }) };
}

function valueOf(line: string): string {
  const value = line.slice(line.indexOf(":") + 1);
  return value.startsWith(" ") ? value.slice(1) : value;
}

function endsRun(data: string): boolean {
  // Most events are pieces of text, which needn't be parsed.
  if (!data.includes("RUN_")) return false;
  try {
    const { type } = JSON.parse(data) as { type?: unknown };
    return type === "RUN_FINISHED" || type === "RUN_ERROR";
  } catch {
    return false;
  }
}

function told(event: object): string {
  return `data: ${JSON.stringify(event)}\n\n`;
}

function isEvents({ headers, body }: Response): boolean {
  return body !== null && (headers.get("content-type") ?? "").startsWith("text/event-stream");
}

async function refusalOf(response: Response): Promise<{ code: string; message: string }> {
  const unnamed = { code: "unavailable", message: `the server answers with ${response.status}` };
  try {
    const { error } = (await response.json()) as { error?: Partial<typeof unnamed> };
    const { code, message } = error ?? {};
    return typeof code === "string" && typeof message === "string" ? { code, message } : unnamed;
  } catch (error) {
    return { ...unnamed, message: `${unnamed.message}: ${messageOf(error, 200)}` };
  }
}

function tooLarge(): FlotillaError {
  return new FlotillaError(
    "payload_too_large",
    `an event of AG-UI has more than ${maxEventBytes} bytes`,
  );
}
