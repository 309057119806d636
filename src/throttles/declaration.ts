import { FlotillaError } from "../base/errors.ts";
import { checkChoice, checkNumber, checkOptions, isStorable } from "../base/options.ts";
import type { Classify } from "./classify.ts";
import { type LimiterSettings, type ThrottleMode, throttleModes } from "./limiter/settings.ts";
import {
  type ControllerOptions,
  controllerOptionNames,
  resolveControllerOptions,
} from "./settings.ts";
import type { Reserve } from "./limiter/priority.ts";

export type ThrottleOptions = ControllerOptions & {
  /** Who decides the limit: each pod for itself, the fleet's leader, or both (default). */
  readonly mode?: ThrottleMode;
  /** How many permits are reserved for calls of these priorities. None by default. */
  readonly reserve?: Omit<Reserve, "batch">;
  /** Decides how a call ended. Where it returns undefined, the default decides. */
  readonly classify?: Classify;
  /** How long a call may take before its signal fires. 10 minutes by default. */
  readonly callTimeoutMs?: number;
  /** How long it may still run after that, before its permit is taken back. 5 s by default. */
  readonly graceMs?: number;
  /** How many calls may wait, of each priority. 10,000 by default. */
  readonly maxWaiting?: number;
  /** Whether calls wait while the breaker is open (default), or fail at once with `throttle_open`. */
  readonly whenOpen?: "wait" | "fail";
  /** The cost of a call without an estimate, in the bucket's unit. Default: 1 request, or 1,000 tokens. */
  readonly estimate?: number;
  /** For how long a pod may use its share without renewing it. A minute by default. */
  readonly leaseMs?: number;
};

/** A throttle as declared: its name and its settings. It has no state. */
export type ThrottleDeclaration = {
  readonly name: string;
  readonly settings: LimiterSettings;
  readonly classify: Classify | undefined;
};

export const ownOptionNames = [
  "mode",
  "reserve",
  "classify",
  "callTimeoutMs",
  "graceMs",
  "maxWaiting",
  "whenOpen",
  "estimate",
  "leaseMs",
] as const satisfies readonly (keyof ThrottleOptions)[];

const maxNameChars = 200;
const dayMs = 86_400_000;
// Longer than most SDKs wait for an answer.
const defaultCallTimeoutMs = 600_000;
const defaultGraceMs = 5_000;
// Callers often start all calls of a large batch at once.
const defaultMaxWaiting = 10_000;
// Long enough to survive a short outage of the store.
const defaultLeaseMs = 60_000;

/** Checks the options of a throttle, and fills in the defaults. */
export function declareThrottle(name: string, options: ThrottleOptions = {}): ThrottleDeclaration {
  if (typeof name !== "string" || name === "" || name.length > maxNameChars || !isStorable(name)) {
    throw new FlotillaError(
      "invalid_option",
      `a throttle's name must be a string of 1 to ${maxNameChars} characters that a database can store (no NUL, no lone surrogates)`,
    );
  }
  const what = `throttle "${name}"`;
  checkOptions(what, options, [...ownOptionNames, ...controllerOptionNames]);
  const {
    mode = "hybrid",
    reserve = {},
    classify,
    callTimeoutMs = defaultCallTimeoutMs,
    graceMs = defaultGraceMs,
    maxWaiting = defaultMaxWaiting,
    whenOpen = "wait",
    estimate,
    leaseMs = defaultLeaseMs,
    ...rest
  } = options;
  const controller = resolveControllerOptions(rest, what);
  const whole = (option: string, value: number, min: number, max: number): number =>
    checkNumber(`${what}: ${option}`, value, { min, max });

  checkChoice(`${what}: mode`, mode, throttleModes);
  checkChoice(`${what}: whenOpen`, whenOpen, ["wait", "fail"]);
  checkOptions(`${what}: reserve`, reserve, ["control", "interactive", "retry"]);
  for (const [priority, count] of Object.entries(reserve)) {
    whole(`reserve.${priority}`, count, 0, 100_000);
  }
  if (classify !== undefined && typeof classify !== "function") {
    throw new FlotillaError("invalid_option", `${what}: classify must be a function`);
  }
  const settings: LimiterSettings = {
    mode,
    controller,
    callTimeoutMs: whole("callTimeoutMs", callTimeoutMs, 1, dayMs),
    graceMs: whole("graceMs", graceMs, 0, dayMs),
    maxWaiting: whole("maxWaiting", maxWaiting, 0, 1_000_000),
    reserve,
    whenOpen,
    estimate: whole("estimate", estimate ?? defaultEstimate(controller.bucket?.unit), 0, 1e9),
    leaseMs: whole("leaseMs", leaseMs, 1_000, dayMs),
  };
  return { name, settings, classify };
}

function defaultEstimate(unit: "requests" | "tokens" | undefined): number {
  return unit === "tokens" ? 1_000 : 1;
}

/** A key is stored and shown, so its length is bounded. */
export function checkKey(name: string, key: string): string {
  if (typeof key === "string" && key.length <= maxNameChars && isStorable(key)) return key;
  throw new FlotillaError(
    "invalid_option",
    `throttle "${name}": a key must be a string of at most ${maxNameChars} characters that a database can store (no NUL, no lone surrogates)`,
  );
}
