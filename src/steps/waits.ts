import type { Clock } from "../base/clock.ts";
import { yearMs } from "../base/durations.ts";
import { FlotillaError, hasCode, messageOf } from "../base/errors.ts";
import { isJsonObject, type Json } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import { checkChoice, checkNumber, checkOptions } from "../base/options.ts";
import { check } from "../base/schema.ts";
import { encodeError, encodeResult } from "./call.ts";
import {
  type StepChildState,
  maxStepChildren,
  type StepChild,
  type StepChildrenOptions,
  type StepLimits,
  type StepPark,
  type StepSignalOptions,
  type StoredStep,
  type WaitHost,
} from "./model.ts";
import { unreadable } from "./refusals.ts";
import { type Call, type Ended, isLeft, leaveScope, maxShown, type Scope } from "./scope.ts";

type Parking = ReturnType<typeof createParking>;

/** A key tells waits of one name apart that are asked for at the same time. */
type Place = { readonly name: string; readonly key?: string | undefined };

type WaitParts = {
  clock: Clock;
  log: () => Logger;
  limits: StepLimits;
  parking: Parking;
  find: (scope: Scope, step: Place) => Promise<{ call: Call; row: StoredStep | undefined }>;
  answer: (row: StoredStep) => Promise<Json>;
  valueOf: (row: StoredStep) => Promise<Json>;
  store: (call: Call, ended: Ended) => Promise<void>;
  /** How long ago the rows of earlier attempts were read. */
  sinceReadMs: () => number;
  /** Throws if no further row may be stored. */
  refuseIfFull: () => void;
  /** Called with 1 when a wait looks whether it is over, and with -1 when it knows. */
  looking: (change: 1 | -1) => void;
  host: WaitHost | undefined;
};

/** Waits until the attempt is parked. */
type Park = (park: Partial<StepPark>) => Promise<never>;

const signalOptions = ["schema", "timeoutMs", "onTimeout"];
const childOptions = ["priority", "tenant"];

type ParkingParts = { clock: Clock; log: () => Logger; isIdle: () => boolean };

type Waiting = { readonly call: Call; readonly park: StepPark };

/**
 * Parks an attempt once no step runs: a wait that is asked for beside steps lets them end first. Then
 * all waits reject, and no step begins any more.
 */
export function createParking({ clock, log, isIdle }: ParkingParts) {
  const waiting = new Map<(error: FlotillaError) => void, Waiting>();
  /** Whether a wait of this attempt is over: others may have been raced against it. */
  let hasWon = false;
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
    const parks = [...waiting.values()].map(({ park }) => park);
    const delays = parks.flatMap(({ delayMs }) => delayMs ?? []);
    parked = {
      delayMs: delays.length > 0 ? Math.min(...delays) : null,
      awaits: parks.find(({ awaits }) => awaits !== null)?.awaits ?? null,
      children: parks.flatMap(({ children }) => children),
    };
    rejectAll();
  };

  const check = (): void => {
    // Code that awaited the last step may call the next one in the same turn.
    if (waiting.size > 0) cancelCheck ??= clock.after(0, parkIfIdle);
  };

  /** Ends the waits of code that has returned or thrown: nothing that they lead to counts. */
  const dropLeft = (): void => {
    const dropped: string[] = [];
    for (const [reject, { call }] of waiting) {
      if (!isLeft(call.scope)) continue;
      waiting.delete(reject);
      reject(notOver(call.path));
      dropped.push(call.path);
    }
    if (dropped.length === 0) return;
    const shown = { steps: dropped.slice(0, maxShown), count: dropped.length };
    const message = "waits were not over when the code that asked for them ended, and are dropped";
    if (hasWon) log().debug(shown, message);
    else log().warn(shown, message);
  };

  return {
    check,
    dropLeft,
    /** A wait is over. */
    won: () => void (hasWon = true),
    /** What no step begins for any more. */
    get refusal() {
      return refusal;
    },
    get parked() {
      return parked;
    },
    wait: (call: Call, park: StepPark): Promise<never> =>
      new Promise((_, reject) => {
        waiting.set(reject, { call, park });
        if (refusal) return rejectAll();
        dropLeft();
        check();
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
  /** When the last wait of a signal has looked for it. */
  const turns = new Map<string, Promise<void>>();

  /**
   * Finds the row of a wait, and calls `wait` unless an earlier attempt has ended it. The attempt isn't
   * parked before each wait knows what it waits for, or nothing would wake it for that one.
   */
  const unlessOver = async <Result>(
    scope: Scope,
    { name, key }: Place,
    wait: (call: Call, row: StoredStep | undefined, park: Park) => Promise<Result>,
  ): Promise<Result> => {
    if (!scope.waits) throw cannotWait(name, parts.host !== undefined);
    let isLooking = true;
    const known = (): void => {
      if (isLooking) parts.looking(-1);
      isLooking = false;
    };
    parts.looking(1);
    try {
      const { call, row } = await parts.find(scope, { name, key });
      const park: Park = (what) => {
        const parked = parking.wait(call, { delayMs: null, awaits: null, children: [], ...what });
        known();
        return parked;
      };
      try {
        if (row === undefined) parts.refuseIfFull();
        if (row !== undefined && !["wait", "done", "failed"].includes(row.kind)) {
          throw unreadable(row.key, "is no wait");
        }
        const result =
          row === undefined || row.kind === "wait"
            ? await wait(call, row, park)
            : ((await parts.answer(row)) as Result);
        parking.won();
        return result;
      } finally {
        leaveScope(scope, { name, key, isStored: true });
      }
    } finally {
      known();
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

  const startChildren = async (call: Call, list: readonly StepChild[]): Promise<void> => {
    const startedMs = clock.monotonic();
    const storeAs = await parts.host!.prepareChildren(call.path, list);
    const value = JSON.stringify({ children: list.length });
    await store(call, { kind: "wait", value, startedMs, storeAs });
  };

  const countOf = async (row: StoredStep): Promise<number> => {
    const value = await parts.valueOf(row);
    const count = isJsonObject(value) ? value["children"] : undefined;
    if (typeof count !== "number") throw unreadable(row.key, "is no wait for children");
    return count;
  };

  const end = async (call: Call, result: unknown, takes?: string): Promise<Json> => {
    const value = encodeResult(call.path, result, limits.maxValueBytes);
    const startedMs = clock.monotonic();
    await store(call, { kind: "done", value, startedMs, ...(takes !== undefined && { takes }) });
    return JSON.parse(value) as Json;
  };

  const fail = async (call: Call, error: FlotillaError): Promise<never> => {
    const value = encodeError(call.path, error);
    await store(call, { kind: "failed", value, startedMs: clock.monotonic() });
    throw error;
  };

  /** The waits of one signal look for it one after the other: the first takes it, and no other the same. */
  const inTurn = <Found>(signal: string, look: () => Promise<Found>): Promise<Found> => {
    const found = (turns.get(signal) ?? Promise.resolve()).then(look);
    const ignored = () => {};
    turns.set(signal, found.then(ignored, ignored));
    return found;
  };

  /** The next signal that the schema takes, with its payload. Those that it refuses are dropped. */
  const take = async (
    call: Call,
    { schema }: StepSignalOptions<unknown>,
    left: () => number | undefined,
  ): Promise<{ payload: Json } | undefined> => {
    for (;;) {
      const seen = await parts.host!.nextSignal(call.name);
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
      unlessOver(scope, { name }, async (call, row, park) => {
        checkNumber(`step "${name}": ms`, ms, { min: 0, max: yearMs, whole: false });
        if (row === undefined) await begin(call, ms);
        const leftMs = row ? await leftOf(row) : Math.ceil(ms);
        if (leftMs > 0) await park({ delayMs: leftMs });
      }),

    signal: (
      scope: Scope,
      name: string,
      options: StepSignalOptions<any> = {},
      key?: string,
    ): Promise<unknown> =>
      unlessOver(scope, { name, key }, async (call, row, park) => {
        checkOptions(`step "${name}"`, options, signalOptions);
        const { timeoutMs, onTimeout } = options;
        if (timeoutMs !== undefined) {
          checkNumber(`step "${name}": timeoutMs`, timeoutMs, { min: 1, max: yearMs });
        }
        const leftMs = timeoutMs === undefined ? undefined : row ? await leftOf(row) : timeoutMs;
        const taken = await inTurn(name, () => take(call, options, () => leftMs));
        if (taken) return taken.payload;
        if (leftMs !== undefined && leftMs <= 0) {
          if (onTimeout) return end(call, onTimeout.value);
          const message = `no signal "${name}" came in ${timeoutMs} ms`;
          const details = { step: call.path, stored: true };
          return fail(call, new FlotillaError("timeout", message, { details }));
        }
        if (leftMs !== undefined && row === undefined) await begin(call, leftMs);
        return park({ delayMs: leftMs ?? null, awaits: name });
      }),

    children: (
      scope: Scope,
      name: string,
      list: readonly StepChild[],
      options: StepChildrenOptions<"fail" | "keep"> = {},
    ): Promise<unknown> =>
      unlessOver(scope, { name }, async (call, row, park) => {
        checkChildren(name, list, options);
        if (row === undefined && list.length === 0) return end(call, []);
        if (row === undefined) await startChildren(call, list);
        // Children that exist already, because the task was started over, may all have ended.
        const count = row ? await countOf(row) : list.length;
        const children = await parts.host!.readChildren(call.path, count);
        if (children.some(({ status }) => status === "open")) {
          const { timeoutMs } = options;
          if (timeoutMs === undefined) return park({ children: [call.path] });
          const passedMs = row ? row.ageMs + parts.sinceReadMs() : 0;
          const delayMs = Math.ceil(timeoutMs - passedMs);
          if (delayMs > 0) return park({ children: [call.path], delayMs });
          return fail(
            call,
            new FlotillaError("timeout", `the children of "${name}" took over ${timeoutMs} ms`),
          );
        }
        if (options.failures === "keep") return end(call, children.map(outcomeOf));
        const failed = children.find(({ status }) => status !== "completed");
        if (failed === undefined) return end(call, children.map(resultOf));
        return fail(call, childError(failed, call.path));
      }),
  };
}

/** Keeps the promise of a wait until it has settled. */
type Track = <Result>(scope: Scope, over: Promise<Result>) => Promise<Result>;

/** The waits that code calls on one level. */
export function waitsIn(scope: Scope, waits: ReturnType<typeof createWaits>, track: Track) {
  return {
    sleep: (name: string, ms: number) => track(scope, waits.sleep(scope, name, ms)),
    signal: (name: string, options?: StepSignalOptions<any>) =>
      track(scope, waits.signal(scope, name, options)),
    children: (...given: [string, readonly StepChild[], StepChildrenOptions<any>?]) =>
      track(scope, waits.children(scope, ...given)),
  };
}

function resultOf(child: StepChildState): Json {
  return child.status === "completed" ? child.result : null;
}

function outcomeOf(child: StepChildState): Json {
  switch (child.status) {
    case "completed":
      return { status: "completed", output: child.result };
    case "cancelled":
      return { status: "cancelled" };
    case "failed":
      return { status: "failed", error: child.error };
    case "open":
    case "gone": {
      const { code, message } = childError(child);
      return { status: "failed", error: { code, message } };
    }
  }
}

function childError(child: StepChildState, step?: string): FlotillaError {
  const became = {
    open: "hasn't ended",
    completed: "has completed",
    failed: `has failed: ${child.status === "failed" ? child.error.message : ""}`,
    cancelled: "was cancelled",
    gone: "was deleted",
  }[child.status];
  const { taskId } = child;
  return new FlotillaError("dependency_failed", `child ${taskId} (${child.name}) ${became}`, {
    details: { taskId, ...(step !== undefined && { step, stored: true }) },
  });
}

function checkChildren(
  name: string,
  list: readonly StepChild[],
  options: StepChildrenOptions<unknown>,
): void {
  const what = `step "${name}"`;
  checkOptions(what, options, ["failures", "timeoutMs"]);
  if (options.timeoutMs !== undefined) {
    checkNumber(`${what}: timeoutMs`, options.timeoutMs, { min: 1, max: yearMs });
  }
  if (options.failures !== undefined) {
    checkChoice(`${what}: failures`, options.failures, ["fail", "keep"]);
  }
  if (!Array.isArray(list) || list.length > maxStepChildren) {
    throw new FlotillaError(
      "invalid_option",
      `${what}: children takes a list of at most ${maxStepChildren} [task, input, options]`,
    );
  }
  for (const [place, row] of (list as readonly unknown[]).entries()) {
    const [contract, , more = {}] = Array.isArray(row) ? (row as unknown[]) : [];
    if (typeof (contract as Partial<StepChild[0]> | undefined)?.name !== "string") {
      throw new FlotillaError(
        "invalid_option",
        `${what}: child ${place} isn't [task, input, options]`,
      );
    }
    checkOptions(`${what}: child ${place}`, more as Record<string, unknown>, childOptions);
  }
}

/** What no code should see that still runs: it would have to be awaited for that. */
function notOver(path: string): FlotillaError {
  return new FlotillaError(
    "closed",
    `the wait "${path}" was not over when the code that asked for it ended: await it if it matters`,
  );
}

function cannotWait(name: string, isTask: boolean): FlotillaError {
  const why = isTask
    ? "which a step that runs can't: call it beside the step, or in a round of a loop"
    : "which only the steps of a task can: a flow has `.sleep`, `.signal` and `.children` beside its transitions, and a turn may enqueue a task that waits";
  return new FlotillaError("invalid_option", `step "${name}" waits, ${why}`);
}
