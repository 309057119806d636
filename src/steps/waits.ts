import type { Clock } from "../base/clock.ts";
import { yearMs } from "../base/durations.ts";
import { FlotillaError, hasCode, messageOf } from "../base/errors.ts";
import { isJsonObject, type Json } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import { check } from "../base/schema.ts";
import { encodeError, encodeResult } from "./call.ts";
import type { StepLimits, StepPark, StepSignalOptions, StoredStep, WaitHost } from "./model.ts";
import { unreadable } from "./refusals.ts";
import { type Call, type Ended, leaveScope, type Scope } from "./scope.ts";

type Parking = ReturnType<typeof createParking>;

type WaitParts = {
  clock: Clock;
  log: () => Logger;
  limits: StepLimits;
  parking: Parking;
  find: (scope: Scope, name: string) => Promise<{ call: Call; row: StoredStep | undefined }>;
  answer: (row: StoredStep) => Promise<Json>;
  valueOf: (row: StoredStep) => Promise<Json>;
  store: (call: Call, ended: Ended) => Promise<void>;
  /** How long ago the rows of earlier attempts were read. */
  sinceReadMs: () => number;
  nextSignal: WaitHost["nextSignal"] | undefined;
};

const signalOptions = ["schema", "timeoutMs", "onTimeout"];

/**
 * Parks an attempt once no step runs: a wait that is asked for beside steps lets them end first. Then
 * all waits reject, and no step begins any more.
 */
export function createParking(clock: Clock, isIdle: () => boolean) {
  const waiting = new Map<(error: FlotillaError) => void, StepPark>();
  let parked: StepPark | undefined;
  let refusal: FlotillaError | undefined;
  let cancelCheck: (() => void) | undefined;

  const rejectAll = (): void => {
    refusal ??= new FlotillaError(
      "suspended",
      "the task waits, and goes on from its start when that is over: don't catch this",
    );
    for (const reject of waiting.keys()) reject(refusal);
    waiting.clear();
  };

  const parkIfIdle = (): void => {
    cancelCheck = undefined;
    if (waiting.size === 0 || !isIdle()) return;
    const parks = [...waiting.values()];
    const delays = parks.flatMap(({ delayMs }) => delayMs ?? []);
    parked = {
      delayMs: delays.length > 0 ? Math.min(...delays) : null,
      awaits: parks.find(({ awaits }) => awaits !== null)?.awaits ?? null,
    };
    rejectAll();
  };

  const check = (): void => {
    // Code that awaited the last step may call the next one in the same turn.
    if (waiting.size > 0) cancelCheck ??= clock.after(0, parkIfIdle);
  };

  return {
    check,
    /** What no step begins for any more. */
    get refusal() {
      return refusal;
    },
    get parked() {
      return parked;
    },
    wait: (park: StepPark): Promise<never> =>
      new Promise((_, reject) => {
        waiting.set(reject, park);
        if (refusal) rejectAll();
        else check();
      }),
    /** Ends all waits without parking, because the attempt ends otherwise. */
    giveUp(): void {
      cancelCheck?.();
      rejectAll();
    },
  };
}

/** What waits do. How long they last counts from when they were asked for first. */
export function createWaits(parts: WaitParts) {
  const { clock, parking, limits, store } = parts;

  /** Finds the row of a wait, and calls `wait` unless an earlier attempt has ended it. */
  const unlessOver = async <Result>(
    scope: Scope,
    name: string,
    wait: (call: Call, row: StoredStep | undefined) => Promise<Result>,
  ): Promise<Result> => {
    if (!scope.waits) throw cannotWait(name);
    const { call, row } = await parts.find(scope, name);
    try {
      if (row === undefined || row.kind === "wait") return await wait(call, row);
      if (row.kind === "done" || row.kind === "failed") return (await parts.answer(row)) as Result;
      throw unreadable(row.key, "is no wait");
    } finally {
      leaveScope(scope, { name, isStored: true });
    }
  };

  const leftOf = async (row: StoredStep): Promise<number> => {
    const value = await parts.valueOf(row);
    const ms = isJsonObject(value) ? value["ms"] : undefined;
    if (typeof ms !== "number") throw unreadable(row.key, "is no wait");
    return Math.ceil(ms - row.ageMs - parts.sinceReadMs());
  };

  const begin = (call: Call, ms: number, takes?: string): Promise<void> => {
    const startedMs = clock.monotonic();
    const value = JSON.stringify({ ms });
    return store(call, { kind: "wait", value, startedMs, ...(takes !== undefined && { takes }) });
  };

  const end = async (call: Call, result: unknown, takes?: string): Promise<Json> => {
    const value = encodeResult(call.path, result, limits.maxValueBytes);
    const startedMs = clock.monotonic();
    await store(call, { kind: "done", value, startedMs, ...(takes !== undefined && { takes }) });
    return JSON.parse(value) as Json;
  };

  /** The next signal that the schema takes, with its payload. Those that it refuses are dropped. */
  const take = async (
    call: Call,
    { schema }: StepSignalOptions<unknown>,
    left: () => number | undefined,
  ): Promise<{ payload: Json } | undefined> => {
    for (;;) {
      const seen = await parts.nextSignal!(call.name);
      if (seen === undefined) return undefined;
      try {
        const what = `the signal "${call.name}"`;
        const checked = await check(schema, seen.payload, what, "invalid_input");
        return { payload: await end(call, checked, seen.signalId) };
      } catch (error) {
        if (!hasCode(error, "invalid_input")) throw error;
        const fields = { step: call.path, signal: seen.signalId, error: messageOf(error) };
        parts.log().warn(fields, "signal refused by its schema, and dropped");
        await begin(call, left() ?? yearMs, seen.signalId);
      }
    }
  };

  return {
    sleep: (scope: Scope, name: string, ms: number): Promise<void> =>
      unlessOver(scope, name, async (call, row) => {
        checkNumber(`step "${name}": ms`, ms, { min: 0, max: yearMs, whole: false });
        if (row === undefined) await begin(call, ms);
        const leftMs = row ? await leftOf(row) : Math.ceil(ms);
        if (leftMs > 0) await parking.wait({ delayMs: leftMs, awaits: null });
      }),

    signal: (scope: Scope, name: string, options: StepSignalOptions<any> = {}): Promise<unknown> =>
      unlessOver(scope, name, async (call, row) => {
        checkOptions(`step "${name}"`, options, signalOptions);
        const { timeoutMs, onTimeout } = options;
        if (timeoutMs !== undefined) {
          checkNumber(`step "${name}": timeoutMs`, timeoutMs, { min: 1, max: yearMs });
        }
        const leftMs = timeoutMs === undefined ? undefined : row ? await leftOf(row) : timeoutMs;
        const taken = await take(call, options, () => leftMs);
        if (taken) return taken.payload;
        if (leftMs !== undefined && leftMs <= 0) {
          if (onTimeout) return end(call, onTimeout.value);
          const late = new FlotillaError("timeout", `no signal "${name}" came in ${timeoutMs} ms`);
          const value = encodeError(call.path, late);
          await store(call, { kind: "failed", value, startedMs: clock.monotonic() });
          throw late;
        }
        if (leftMs !== undefined && row === undefined) await begin(call, leftMs);
        return parking.wait({ delayMs: leftMs ?? null, awaits: name });
      }),
  };
}

function cannotWait(name: string): FlotillaError {
  return new FlotillaError(
    "invalid_option",
    `step "${name}" waits, which a step that runs can't: call it beside the step, or in a round of a loop`,
  );
}
