import { FlotillaError } from "../../base/errors.ts";
import { isAmount, toCallOutcome } from "../classify.ts";
import { type OutcomeKind, outcomeKinds } from "../learning/sample.ts";
import type { AcquireOptions, Priority } from "./wait-queue.ts";
import { zeroPerPriority } from "./admission.ts";
import { maxCallDurationMs, type LimiterSettings } from "./settings.ts";

/** How a call ended, as whoever made it can tell. */
export type CallOutcome = {
  readonly kind: OutcomeKind;
  /** How long the downstream asks everybody to stay away. */
  readonly retryAfterMs?: number;
  /** Whether it said which of its limits was met: of calls per time, or of calls at once. */
  readonly limitedBy?: "rate" | "concurrency";
  /** What the call cost in the bucket's unit. */
  readonly used?: number;
};

/** What a call is told, and may tell, while it runs. */
export type ThrottledCall = {
  /** Fires when the call's time is up, or when the caller's own signal does. */
  readonly signal: AbortSignal;
  /** Says what the call cost in the bucket's unit, such as tokens. The last word counts. */
  used(amount: number): void;
  /** Says that the first piece of a streamed answer is there. */
  firstToken(): void;
};

/** The right to one call at a time, from when it is given until it is given back. */
export type Permit = ThrottledCall & {
  /** Whether it was given back, by its holder or because its time was up. */
  readonly released: boolean;
  /** Gives it back, once; what comes later is ignored. */
  release(ending: OutcomeKind | CallOutcome): void;
};

/** What a permit needs of the limiter that gave it. */
type PermitHost = {
  nowMs(): number;
  /** It has another deadline now. */
  watchDeadline(deadlineMs: number): void;
  /** It was given back. */
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

/** A class, since there is one per call, and what they can do needn't be made anew each time. */
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
  released = false;
  /** Whoever it was given to has ended with it; calls made under it may go on. */
  over = false;
  /** Its call's time was up before it ended. */
  timedOut = false;
  /** The caller's own signal has fired. */
  givenUp = false;
  /** What that says about the downstream: nothing, unless the caller waited for as long as it could. */
  gaveUpAs: OutcomeKind = "ignored";
  firstTokenMs: number | undefined;
  usedAmount: number | undefined;
  /** The last failure of a call made under this permit, which was counted already. */
  told: OutcomeKind | undefined;
  /** What it counts as if it has to be taken back: whose fault it is that it takes so long. */
  late: OutcomeKind = "timeout";
  /** Told when it is given back because its time was up while its call still ran. */
  onTakenBack: ((why: unknown) => void) | undefined;
  /** How many calls are made under it. */
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

  // Most calls never ask for it, and making one costs as much as all the rest.
  get signal(): AbortSignal {
    if (!this.#abort) {
      this.#abort = new AbortController();
      if (this.timedOut || this.givenUp) this.#abort.abort(this.#reason);
    }
    return this.#abort.signal;
  }

  // Bound, since calls like to take what they are given apart.
  readonly used = (amount: number): void => {
    if (isAmount(amount)) this.usedAmount = amount;
  };

  readonly firstToken = (): void => {
    this.firstTokenMs ??= this.#host.nowMs() - this.beganMs;
  };

  release(ending: OutcomeKind | CallOutcome): void {
    if (this.over) return;
    this.over = true;
    // Whoever ended didn't wait for calls that it had begun, and those still reach the downstream.
    if (this.#under > 0) this.#ending = ending;
    else this.#free(ending);
  }

  /** A call begins under it. Gives what says, once, that this call has ended. */
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
    const told = toCallOutcome(ending);
    this.#host.onReleased(this, told ?? { kind: "ignored" });
    if (told) return;
    throw new FlotillaError(
      "invalid_option",
      `a permit is released with one of ${outcomeKinds.join(", ")}`,
    );
  }

  /** How it ends where all went well: an answer that came after its time was up is too late. */
  success(): CallOutcome {
    return this.timedOut ? tooLate : succeeded;
  }

  /** Begins anew, for a call that takes over a permit which was given some time ago. */
  begin(epoch: number, number: number, signal?: AbortSignal): void {
    this.epoch = epoch;
    this.number = number;
    this.beganMs = this.#host.nowMs();
    this.deadlineMs = this.beganMs + this.#timeoutMs;
    this.late = "timeout";
    if (signal) this.linkSignal(signal);
  }

  /** Ends the call when the caller's signal fires; what it then does is nobody's failure. */
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

  /** Its deadline has come: first the call is asked to end, then the permit is taken back. */
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

  /** How long the longest call has lasted, of those that ended and of those that haven't. */
  const longest = (): number => {
    for (const { beganMs } of inFlight) return Math.max(longestMs, host.nowMs() - beganMs);
    return longestMs;
  };

  return {
    /** How many there are, of each priority. */
    inFlightOf,
    get size() {
      return inFlight.size;
    },
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
        // Others wait for `callTimeoutMs` before they take over what a pod that is gone had granted.
        timeoutMs: Math.min(request.timeoutMs ?? Infinity, settings.callTimeoutMs),
        graceMs: settings.graceMs,
      };
      const permit = new HeldPermit(host, start, request.signal);
      inFlight.add(permit);
      inFlightOf[priority]++;
      return permit;
    },

    /** A call takes over a permit that was given for it some time ago. */
    takeOver(permit: HeldPermit, epoch: number, signal: AbortSignal | undefined): void {
      permit.begin(epoch, ++begun, signal);
      // They stand in the order in which their calls began.
      inFlight.delete(permit);
      inFlight.add(permit);
    },

    ended(permit: HeldPermit, kind: OutcomeKind, nowMs: number): void {
      inFlight.delete(permit);
      inFlightOf[permit.priority]--;
      longestMs = Math.max(longestMs, nowMs - permit.beganMs);
      if (kind === "success") succeeded++;
    },

    /** Ends those whose time is up, and gives when that of the next one will be. */
    expire(nowMs: number): number {
      let nextMs = Infinity;
      for (const permit of inFlight) {
        if (permit.deadlineMs <= nowMs) permit.expire();
        if (!permit.released) nextMs = Math.min(nextMs, permit.deadlineMs);
      }
      return nextMs;
    },

    longestMs: longest,

    /** How long those that are in flight now may still last, for those who can't ask any more. */
    maxDurationMs: (): number => maxCallDurationMs(settings, { succeeded, longestMs: longest() }),
  };
}
