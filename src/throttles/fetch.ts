import { checkOptions } from "../base/options.ts";
import type { ThrottleDeclaration } from "./declaration.ts";
import type { Limiter } from "./limiter/limiter.ts";
import type { HeldPermit } from "./limiter/permit.ts";
import type { Priority } from "./limiter/wait-queue.ts";
import { runUnderPermit } from "./run.ts";
import { watchBytes } from "./stream.ts";

export type Fetch = typeof fetch;

export type FetchOptions = {
  /** Which of the throttle's limits a request counts against. */
  readonly key?: string | ((input: Parameters<Fetch>[0], init?: RequestInit) => string);
  readonly priority?: Priority;
  /** What a request will probably cost in the bucket's unit. */
  readonly estimate?: number | ((input: Parameters<Fetch>[0], init?: RequestInit) => number);
  /** How long a request may take, its body included, if that is less than `callTimeoutMs`. */
  readonly timeoutMs?: number;
  readonly maxWaitMs?: number;
  /** What really makes the request. The process's own `fetch` by default. */
  readonly fetch?: Fetch;
};

const optionNames = ["key", "priority", "estimate", "timeoutMs", "maxWaitMs", "fetch"];

/**
 * A `fetch` under a throttle. A request waits for a permit, and holds it until its body has come to an
 * end, whether it was read, cancelled, dropped or cut off. What it gives back is what `fetch` gives.
 */
export function throttledFetch(
  declared: ThrottleDeclaration,
  ownKey: string,
  options: FetchOptions = {},
): Fetch {
  checkOptions(`throttle "${declared.name}": fetchWith`, options, optionNames);
  const { fetch: send = network } = options;
  // Asynchronous, so that whatever goes wrong in here rejects, as it does with `fetch`.
  return async (input, init) => {
    const key = typeof options.key === "function" ? options.key(input, init) : options.key;
    const { estimate } = options;
    const signal = signalOf(input, init);
    return runUnderPermit<Response>(
      declared,
      key ?? ownKey,
      (call) => {
        // The caller's own is added, as the permit follows it only for as long as it is held.
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
      // Whoever stops in the middle of an answer was served until then.
      if (end.how === "read" || (begun && (permit.givenUp || end.how === "cancelled"))) {
        permit.release(outcome);
      } else if (end.how === "cancelled") permit.release("ignored");
      else permit.release(limiter.outcomeOf(permit, end.error));
    },
  });
  return asReceived(new Response(body, response), response);
}

/** The permit around it is held on to by the body, also where nobody around waits for that. */
function untilNestedBodyEnds(response: Response, ended: () => void): Response {
  if (!response.body) {
    ended();
    return response;
  }
  const body = watchBytes(response.body, { onChunk() {}, onIdle() {}, onEnd: ended });
  return asReceived(new Response(body, response), response);
}

/** What a response that was made here doesn't know of the one that came in. */
function asReceived(made: Response, received: Response): Response {
  for (const name of ["url", "redirected", "type"] as const) {
    Object.defineProperty(made, name, { value: received[name] });
  }
  return made;
}

/** The network as this process reaches it, looked up anew each time, as tools replace it to watch it. */
export const network: typeof fetch = (input, init) => globalThis.fetch(input, init);
