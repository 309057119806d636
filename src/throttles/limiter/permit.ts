import { FlotillaError } from "../../base/errors.ts";
import type { Origin } from "../../pods/unhandled-errors.ts";
import { type CallOutcome, isAmount, toCallOutcome } from "../classify.ts";
import { type OutcomeKind, outcomeKinds } from "../learning/sample.ts";
import type { HeadersLike } from "../rate-headers.ts";
import { type Priority, zeroPerPriority } from "./priority.ts";
import { maxCallDurationMs, type LimiterSettings } from "./settings.ts";

export type AcquireOptions = {
  /** Ends the wait, and aborts the call. */
  readonly signal?: AbortSignal | undefined;
  /** Default: the priority of the task or session that makes the call, else `batch`. */
  readonly priority?: Priority | undefined;
  /** What the call will probably cost in the bucket's unit. */
  readonly estimate?: number | undefined;
  /** How long the call may take, if that is less than `callTimeoutMs`. */
  readonly timeoutMs?: number | undefined;
  /** How long to wait for a permit at most. */
  readonly maxWaitMs?: number | undefined;
  /** Called with the position in the queue: after a quarter of a second, and then about every second. */
  readonly onWaiting?: ((at: QueuePosition) => void) | undefined;
};

/** The position of a call that waits for a permit on its pod. */
export type QueuePosition = {
  /** How many other calls of the same throttle and key wait on this pod and are served before it. */
  readonly ahead: number;
  /** About how long it will wait; absent where no call has ended yet. */
  readonly aboutMs?: number;
};

/** What a running call gets: its signal, and callbacks to report its cost and its first token. */
export type ThrottledCall = {
  /** Fires when the call's time is up, or when the caller's own signal does. */
  readonly signal: AbortSignal;
  /** Reports what the call cost in the bucket's unit, such as tokens. The last value counts. */
  used(amount: number): void;
  /** Reports that the first piece of a streamed answer has arrived. */
  firstToken(): void;
  /** Reports the answer's headers, which may state the downstream's limits. Needless where the call returns its `Response`. */
  headers(headers: HeadersLike): void;
};

/** The right to one call at a time, from when it is granted until it is released. */
export type Permit = ThrottledCall & {
  /** Whether it was released, by its holder or because its time was up. */
  readonly released: boolean;
  /** Releases the permit. Later calls are ignored. */
  release(ending: OutcomeKind | CallOutcome): void;
};

/** The task, run or turn whose code holds a permit. */
export type PermitWork = Pick<Origin, "from" | "fields">;

/** What a permit needs of its limiter. */
type PermitHost = {
  nowMs(): number;
  /** The permit has another deadline now. */
  watchDeadline(deadlineMs: number): void;
  /** The call was answered with these headers. */
  onHeaders(permit: HeldPermit, headers: HeadersLike): void;
  onReleased(permit: HeldPermit, ending: CallOutcome): void;
};

type PermitStart = {
  readonly priority: Priority;
  readonly estimate: number;
  readonly epoch: number;
  readonly number: number;
  readonly nowMs: number;
  readonly timeoutMs: number;
  readonly graceMs: number;
};

const succeeded: CallOutcome = { kind: "success" };
const tooLate: CallOutcome = { kind: "timeout" };
const nothingTried: readonly string[] = [];

/** A class, because there is one per call, and methods on a prototype cost nothing to create. */
export class HeldPermit implements Permit {
  readonly priority: Priority;
  readonly estimate: number;
  readonly #host: PermitHost;
  readonly #timeoutMs: number;
  readonly #graceMs: number;
  epoch: number;
  number: number;
  beganMs: number;
  deadlineMs: number;
  /** Undefined for code outside of handlers and agents. */
  work: PermitWork | undefined;
  released = false;
  /** Its holder has released it; calls made under it may still run. */
  over = false;
  /** Its call's time was up before it ended. */
  timedOut = false;
  /** The caller's own signal has fired. */
  givenUp = false;
  /** What the abort counts as. It says nothing about the downstream, unless it was a timeout. */
  gaveUpAs: OutcomeKind = "ignored";
  firstTokenMs: number | undefined;
  usedAmount: number | undefined;
  /** The last failure of a call made under this permit, which was recorded already. */
  nestedFailure: OutcomeKind | undefined;
  /** The downstream's limits that the call tries although nothing remains of them. */
  tried: readonly string[] = nothingTried;
  /** Its answer stated that nothing remains of one of the downstream's limits. */
  sawNothingLeft = false;
  /** What the call counts as when its time is up: `ignored` while a slow reader holds up the stream. */
  late: OutcomeKind = "timeout";
  /** Called when the permit is taken back because its time was up while its call still ran. */
  onTakenBack: ((why: unknown) => void) | undefined;
  /** How many calls run under it. */
  #under = 0;
  #ending: OutcomeKind | CallOutcome | undefined;
  #abort: AbortController | undefined;
  #reason: unknown;
  #outer: AbortSignal | undefined;
  #onOuterAbort: (() => void) | undefined;

  constructor(host: PermitHost, start: PermitStart, signal?: AbortSignal) {
    this.#host = host;
    this.#timeoutMs = start.timeoutMs;
    this.#graceMs = start.graceMs;
    this.priority = start.priority;
    this.estimate = start.estimate;
    this.epoch = start.epoch;
    this.number = start.number;
    this.beganMs = start.nowMs;
    this.deadlineMs = this.beganMs + start.timeoutMs;
    if (signal) this.linkSignal(signal);
  }

  // Most calls never read it, and creating one costs as much as the rest of the permit.
  get signal(): AbortSignal {
    if (!this.#abort) {
      this.#abort = new AbortController();
      if (this.timedOut || this.givenUp) this.#abort.abort(this.#reason);
    }
    return this.#abort.signal;
  }

  // Bound, because callers destructure the call.
  readonly used = (amount: number): void => {
    if (isAmount(amount)) this.usedAmount = amount;
  };

  readonly firstToken = (): void => {
    this.firstTokenMs ??= this.#host.nowMs() - this.beganMs;
  };

  readonly headers = (headers: HeadersLike): void => {
    this.#host.onHeaders(this, headers);
  };

  release(ending: OutcomeKind | CallOutcome): void {
    if (this.over) return;
    this.over = true;
    // The holder didn't wait for calls that it began, and those still load the downstream.
    if (this.#under > 0) this.#ending = ending;
    else this.#free(ending);
  }

  /** A call begins under this permit. Returns a function that ends that call, once. */
  enter(): () => void {
    this.#under++;
    let left = false;
    return () => {
      if (left) return;
      left = true;
      this.#under--;
      if (this.#under === 0 && this.#ending !== undefined) this.#free(this.#ending);
    };
  }

  #free(ending: OutcomeKind | CallOutcome): void {
    if (this.released) return;
    this.released = true;
    this.over = true;
    if (this.#outer) this.#outer.removeEventListener("abort", this.#onOuterAbort!);
    const outcome = toCallOutcome(ending);
    this.#host.onReleased(this, outcome ?? { kind: "ignored" });
    if (outcome) return;
    throw new FlotillaError(
      "invalid_option",
      `a permit is released with one of ${outcomeKinds.join(", ")}`,
    );
  }

  /** The outcome of a call that returned: an answer that came after the timeout counts as one. */
  success(): CallOutcome {
    return this.timedOut ? tooLate : succeeded;
  }

  /** Restarts the permit for a call that takes it over from a claim. */
  begin(epoch: number, number: number, signal?: AbortSignal): void {
    this.epoch = epoch;
    this.number = number;
    this.beganMs = this.#host.nowMs();
    this.deadlineMs = this.beganMs + this.#timeoutMs;
    this.late = "timeout";
    if (signal) this.linkSignal(signal);
  }

  /** Aborts the call when the caller's signal fires. That counts as no failure, unless it is a timeout. */
  linkSignal(signal: AbortSignal): void {
    const onAbort = () => {
      if (this.released || this.timedOut) return;
      this.givenUp = true;
      if (isTimeout(signal.reason)) this.gaveUpAs = "timeout";
      this.#fire(signal.reason);
    };
    if (signal.aborted) return onAbort();
    this.#outer = signal;
    this.#onOuterAbort = onAbort;
    signal.addEventListener("abort", onAbort, { once: true });
  }

  /** The deadline has passed: first the call's signal fires, after the grace the permit is taken back. */
  expire(): void {
    if (this.timedOut || this.givenUp) {
      this.#free(this.#ending ?? (this.timedOut ? this.late : this.gaveUpAs));
      this.onTakenBack?.(this.#reason);
      return;
    }
    this.timedOut = true;
    this.#fire(this.timeoutError());
  }

  timeoutError(cause?: unknown): FlotillaError {
    return new FlotillaError(
      "timeout",
      `the call took longer than ${this.#timeoutMs} ms`,
      cause === undefined ? {} : { cause },
    );
  }

  #fire(reason: unknown): void {
    this.#reason = reason;
    this.deadlineMs = this.#host.nowMs() + this.#graceMs;
    this.#host.watchDeadline(this.deadlineMs);
    this.#abort?.abort(reason);
  }
}

function isTimeout(reason: unknown): boolean {
  return reason instanceof DOMException && reason.name === "TimeoutError";
}

/** The calls of one limiter that are in flight, and how long they last. */
export function createCallsInFlight(settings: LimiterSettings, host: PermitHost) {
  const inFlight = new Set<HeldPermit>();
  const inFlightOf = zeroPerPriority();
  let begun = 0;
  let longestMs = 0;
  let succeeded = 0;

  /** How long the longest call has lasted so far, ended or in flight. */
  const longest = (): number => {
    for (const { beganMs } of inFlight) return Math.max(longestMs, host.nowMs() - beganMs);
    return longestMs;
  };

  return {
    /** Calls in flight by priority. */
    inFlightOf,
    get size() {
      return inFlight.size;
    },
    all: (): HeldPermit[] => [...inFlight],
    /** How many have begun so far. */
    get begun() {
      return begun;
    },

    begin(request: AcquireOptions, estimate: number, epoch: number, nowMs: number): HeldPermit {
      const priority = request.priority ?? "batch";
      const start = {
        priority,
        estimate,
        epoch,
        number: ++begun,
        nowMs,
        // Other pods wait for `callTimeoutMs` before they take over the share of a pod that is gone.
        timeoutMs: Math.min(request.timeoutMs ?? Infinity, settings.callTimeoutMs),
        graceMs: settings.graceMs,
      };
      const permit = new HeldPermit(host, start, request.signal);
      inFlight.add(permit);
      inFlightOf[priority]++;
      return permit;
    },

    /** A call takes over the permit that its task was claimed with. */
    takeOver(permit: HeldPermit, epoch: number, signal: AbortSignal | undefined): void {
      permit.begin(epoch, ++begun, signal);
      // The set is in the order in which calls began.
      inFlight.delete(permit);
      inFlight.add(permit);
    },

    ended(permit: HeldPermit, kind: OutcomeKind, nowMs: number): void {
      inFlight.delete(permit);
      inFlightOf[permit.priority]--;
      longestMs = Math.max(longestMs, nowMs - permit.beganMs);
      if (kind === "success") succeeded++;
    },

    /** Expires permits whose deadline has passed, and returns the next deadline. */
    expire(nowMs: number): number {
      let nextMs = Infinity;
      for (const permit of inFlight) {
        if (permit.deadlineMs <= nowMs) permit.expire();
        if (!permit.released) nextMs = Math.min(nextMs, permit.deadlineMs);
      }
      return nextMs;
    },

    longestMs: longest,

    /** How long calls may last. Other pods wait that long when this pod has fallen silent. */
    maxDurationMs: (): number => maxCallDurationMs(settings, { succeeded, longestMs: longest() }),
  };
}
