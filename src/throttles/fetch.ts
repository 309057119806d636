import { checkOptions } from "../base/options.ts";
import type { ThrottleDeclaration } from "./declaration.ts";
import type { Limiter } from "./limiter/limiter.ts";
import type { HeldPermit } from "./limiter/permit.ts";
import { runUnderPermit } from "./run.ts";
import { watchBytes } from "./stream.ts";
import type { Priority } from "./limiter/priority.ts";

export type Fetch = typeof fetch;

export type FetchOptions = {
  /** The key whose limit a request counts against. */
  readonly key?: string | ((input: Parameters<Fetch>[0], init?: RequestInit) => string);
  readonly priority?: Priority;
  /** What a request will probably cost in the bucket's unit. */
  readonly estimate?: number | ((input: Parameters<Fetch>[0], init?: RequestInit) => number);
  /** How long a request may take, its body included, if that is less than `callTimeoutMs`. */
  readonly timeoutMs?: number;
  readonly maxWaitMs?: number;
  /** The `fetch` that makes the request. The global one by default. */
  readonly fetch?: Fetch;
};

const optionNames = ["key", "priority", "estimate", "timeoutMs", "maxWaitMs", "fetch"];

/**
 * A `fetch` under a throttle. A request waits for a permit, and holds it until its body has ended,
 * whether it was read, cancelled, dropped or cut off. It returns what `fetch` returns.
 */
export function throttledFetch(
  declared: ThrottleDeclaration,
  ownKey: string,
  options: FetchOptions = {},
): Fetch {
  checkOptions(`throttle "${declared.name}": fetchWith`, options, optionNames);
  const { fetch: send = network } = options;
  // Asynchronous, so that all errors reject, as they do with `fetch`.
  return async (input, init) => {
    const key = typeof options.key === "function" ? options.key(input, init) : options.key;
    const { estimate } = options;
    const signal = signalOf(input, init);
    return runUnderPermit<Response>(
      declared,
      key ?? ownKey,
      (call) => {
        // The caller's signal is added, because the permit follows it only while it is held.
        const both = signal ? AbortSignal.any([call.signal, signal]) : call.signal;
        return send(input, { ...init, signal: both });
      },
      {
        signal,
        priority: options.priority,
        estimate: typeof estimate === "function" ? estimate(input, init) : estimate,
        timeoutMs: options.timeoutMs,
        maxWaitMs: options.maxWaitMs,
      },
      untilBodyEnds,
      untilNestedBodyEnds,
    );
  };
}

function signalOf(input: Parameters<Fetch>[0], init?: RequestInit): AbortSignal | undefined {
  if (init?.signal !== undefined) return init.signal ?? undefined;
  return input instanceof Request ? input.signal : undefined;
}

function untilBodyEnds(response: Response, permit: HeldPermit, limiter: Limiter): Response {
  const outcome = limiter.outcomeOf(permit, response);
  if (outcome.kind !== "success" || !response.body) {
    permit.release(outcome);
    return response;
  }
  let begun = false;
  const body = watchBytes(response.body, {
    onChunk() {
      begun = true;
      permit.firstToken();
    },
    onIdle(idle) {
      permit.late = idle ? "ignored" : "timeout";
    },
    onEnd(end) {
      // A reader that stops in the middle of an answer was served until then.
      if (end.how === "read" || (begun && (permit.givenUp || end.how === "cancelled"))) {
        permit.release(outcome);
      } else if (end.how === "cancelled") permit.release("ignored");
      else permit.release(limiter.outcomeOf(permit, end.error));
    },
  });
  return asReceived(new Response(body, response), response);
}

/** The body holds the outer permit, even where the outer call doesn't wait for the body. */
function untilNestedBodyEnds(response: Response, ended: () => void): Response {
  if (!response.body) {
    ended();
    return response;
  }
  const body = watchBytes(response.body, { onChunk() {}, onIdle() {}, onEnd: ended });
  return asReceived(new Response(body, response), response);
}

/** Copies the properties that the `Response` constructor doesn't take over. */
function asReceived(made: Response, received: Response): Response {
  for (const name of ["url", "redirected", "type"] as const) {
    Object.defineProperty(made, name, { value: received[name] });
  }
  return made;
}

/** The global `fetch`, looked up on every call, because test and tracing tools replace it. */
export const network: typeof fetch = (input, init) => globalThis.fetch(input, init);
