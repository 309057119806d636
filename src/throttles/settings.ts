import { checkChoice, checkNumber, checkOptions } from "../base/options.ts";

export const algorithms = ["ceiling", "aimd", "gradient"] as const;

export type Algorithm = (typeof algorithms)[number];

/** What a controller goes by: plain JSON, so that whoever holds the state can hold it beside it. */
export type ControllerSettings = {
  readonly algorithm: Algorithm;
  /** The limit is never learned to be less than `min` or more than `max`, and starts at `initial`. */
  readonly min: number;
  readonly max: number;
  readonly initial: number;
  /** A limit that somebody has set by hand; nothing is learned while there is one. */
  readonly pinned: number | null;
  readonly latency: LatencySettings | null;
  readonly errors: ErrorSettings;
  readonly breaker: BreakerSettings | null;
  readonly bucket: BucketSettings | null;
  /** The longest that a downstream may ask us to stay away. */
  readonly maxHoldMs: number;
};

export type LatencySettings = {
  /** How many times its baseline the 95th percentile may be before growth pauses. */
  readonly tolerance: number;
  /** How fast the baseline follows a latency that has become longer while the limit is used. */
  readonly baselineRiseMs: number;
};

export type ErrorSettings = {
  /** How much a timeout and a server error count for beside a throttled call, which counts for one. */
  readonly timeoutWeight: number;
  readonly serverErrorWeight: number;
  /** From which weighted share of calls on the limit is lowered. */
  readonly rate: number;
  /** How many calls it takes to speak of a share. */
  readonly minCalls: number;
};

export type BreakerSettings = {
  /** From which share of timeouts and server errors on all calls are stopped. */
  readonly rate: number;
  readonly minCalls: number;
  /** How long they are stopped at first, and at most after it has failed again and again. */
  readonly coolMs: number;
  readonly maxCoolMs: number;
  /** How many calls must succeed after that, one beside the other, before all are let through. */
  readonly probes: number;
};

export type BucketSettings = {
  readonly unit: "requests" | "tokens";
  /** Units per second to begin with; null: no bound until the downstream speaks of its rate. */
  readonly refillPerS: number | null;
  readonly minPerS: number;
  readonly maxPerS: number;
  /** How many seconds' worth of refill may be saved up while idle. */
  readonly burstS: number;
};

export const presets = ["default", "aimd", "gradient"] as const;

export type Preset = (typeof presets)[number];

export type ControllerOptions = {
  readonly preset?: Preset;
  readonly min?: number;
  readonly max?: number;
  readonly initial?: number;
  readonly pinned?: number;
  readonly latency?: false | Partial<LatencySettings>;
  readonly errors?: Partial<ErrorSettings>;
  readonly breaker?: false | Partial<BreakerSettings>;
  readonly bucket?: Partial<Omit<BucketSettings, "refillPerS">> & { readonly refillPerS?: number };
  readonly maxHoldMs?: number;
};

export const controllerOptionNames = [
  "preset",
  "min",
  "max",
  "initial",
  "pinned",
  "latency",
  "errors",
  "breaker",
  "bucket",
  "maxHoldMs",
] as const satisfies readonly (keyof ControllerOptions)[];

/** More calls at once than any one downstream is given by one fleet; keeps a runaway limit finite. */
const maxCalls = 100_000;
const hourMs = 3_600_000;
const maxRefillPerS = 1e9;

const defaultSettings: ControllerSettings = {
  algorithm: "ceiling",
  min: 1,
  max: 1_000,
  // Few enough for any downstream; growth doubles from here, so that little time is lost by it.
  initial: 2,
  pinned: null,
  // The p95 of a healthy service wanders by a third; half above the usual is pressure.
  latency: { tolerance: 1.5, baselineRiseMs: 600_000 },
  // A tenth of timeouts, or a fifth of server errors, is more than the noise of a healthy service.
  errors: { timeoutWeight: 1, serverErrorWeight: 0.5, rate: 0.1, minCalls: 20 },
  // Half of all calls failing is no longer load but an outage.
  breaker: { rate: 0.5, minCalls: 20, coolMs: 2_000, maxCoolMs: 15_000, probes: 3 },
  bucket: null,
  maxHoldMs: 600_000,
};

const defaultBucket: BucketSettings = {
  unit: "requests",
  refillPerS: null,
  minPerS: 0.1,
  maxPerS: maxRefillPerS,
  burstS: 1,
};

const presetSettings: Record<Preset, ControllerSettings> = {
  default: defaultSettings,
  // A timeout alone halves it, as a throttled call does, and any rise of the p95 pauses it.
  aimd: {
    ...defaultSettings,
    algorithm: "aimd",
    latency: { tolerance: 1.2, baselineRiseMs: 600_000 },
  },
  // It shrinks as well, so it must forget sooner what was usual once.
  gradient: {
    ...defaultSettings,
    algorithm: "gradient",
    latency: { tolerance: 1.3, baselineRiseMs: 300_000 },
  },
};

/** The settings that options amount to; refuses what makes no sense, with the name of the option. */
export function resolveControllerOptions(
  options: ControllerOptions = {},
  what = "throttle",
): ControllerSettings {
  checkOptions(what, options, controllerOptionNames);
  const { preset = "default" } = options;
  checkChoice(`${what}: preset`, preset, presets);
  const base = presetSettings[preset];
  const whole = (name: string, value: number, min: number, max: number): number =>
    checkNumber(`${what}: ${name}`, value, { min, max });

  const min = whole("min", options.min ?? base.min, 1, maxCalls);
  const max = whole("max", options.max ?? Math.max(base.max, min), min, maxCalls);
  const initial = Math.min(max, Math.max(min, base.initial));
  return {
    algorithm: base.algorithm,
    min,
    max,
    initial: whole("initial", options.initial ?? initial, min, max),
    pinned:
      options.pinned === undefined ? base.pinned : whole("pinned", options.pinned, 0, maxCalls),
    latency:
      options.latency === false
        ? null
        : withDefaults(`${what}: latency`, options.latency, base.latency, latencyRanges),
    errors: withDefaults(`${what}: errors`, options.errors, base.errors, errorRanges),
    breaker: options.breaker === false ? null : breakerOf(what, options.breaker, base.breaker),
    bucket: options.bucket === undefined ? base.bucket : bucketOf(what, options.bucket),
    maxHoldMs: whole("maxHoldMs", options.maxHoldMs ?? base.maxHoldMs, 0, 24 * hourMs),
  };
}

type Range = { readonly min: number; readonly max: number; readonly whole?: boolean };

const share: Range = { min: 0, max: 1, whole: false };
const calls: Range = { min: 1, max: 1_000_000 };
const durationMs: Range = { min: 1, max: 24 * hourMs };
const perS: Range = { min: 1e-6, max: maxRefillPerS, whole: false };

const latencyRanges = {
  tolerance: { min: 1, max: 100, whole: false },
  baselineRiseMs: durationMs,
};
const errorRanges = {
  timeoutWeight: share,
  serverErrorWeight: share,
  rate: share,
  minCalls: calls,
};
const breakerRanges = {
  rate: share,
  minCalls: calls,
  coolMs: durationMs,
  maxCoolMs: durationMs,
  probes: calls,
};
const bucketRanges = {
  minPerS: perS,
  maxPerS: perS,
  burstS: { min: 0.001, max: 3_600, whole: false },
};

function withDefaults<T extends object>(
  what: string,
  given: Partial<T> | undefined,
  base: T | null,
  ranges: Readonly<Record<keyof T, Range>>,
): T {
  checkOptions(what, (given ?? {}) as Record<string, unknown>, Object.keys(ranges));
  const all = { ...base, ...given } as T;
  for (const name of Object.keys(ranges) as (keyof T)[]) {
    checkNumber(`${what}.${String(name)}`, all[name], ranges[name]);
  }
  return all;
}

function breakerOf(
  what: string,
  given: Partial<BreakerSettings> | undefined,
  base: BreakerSettings | null,
): BreakerSettings {
  const breaker = withDefaults(`${what}: breaker`, given, base, breakerRanges);
  const { coolMs } = breaker;
  const maxCoolMs = given?.maxCoolMs ?? Math.max(breaker.maxCoolMs, coolMs);
  checkNumber(`${what}: breaker.maxCoolMs`, maxCoolMs, { ...durationMs, min: coolMs });
  return { ...breaker, maxCoolMs };
}

function bucketOf(what: string, given: NonNullable<ControllerOptions["bucket"]>): BucketSettings {
  checkOptions(`${what}: bucket`, given, ["unit", "refillPerS", ...Object.keys(bucketRanges)]);
  const { unit = defaultBucket.unit, refillPerS, ...rest } = given;
  checkChoice(`${what}: bucket.unit`, unit, ["requests", "tokens"]);
  if (refillPerS !== undefined) checkNumber(`${what}: bucket.refillPerS`, refillPerS, perS);
  const { minPerS, maxPerS, burstS } = defaultBucket;
  // Whoever begins below the usual least means it.
  const base = { minPerS: Math.min(minPerS, refillPerS ?? minPerS), maxPerS, burstS };
  const numbers = withDefaults(`${what}: bucket`, rest, base, bucketRanges);
  checkNumber(`${what}: bucket.maxPerS`, numbers.maxPerS, { ...perS, min: numbers.minPerS });
  if (refillPerS !== undefined) {
    const within = { min: numbers.minPerS, max: numbers.maxPerS, whole: false };
    checkNumber(`${what}: bucket.refillPerS`, refillPerS, within);
  }
  return { unit, refillPerS: refillPerS ?? null, ...numbers };
}
