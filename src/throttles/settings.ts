import { checkChoice, checkNumber, checkOptions } from "../base/options.ts";

export const algorithms = ["ceiling", "aimd", "gradient"] as const;

export type Algorithm = (typeof algorithms)[number];

/** The settings of a controller: plain JSON, stored beside its state. */
export type ControllerSettings = {
  readonly algorithm: Algorithm;
  /** The learned limit stays between `min` and `max`, and starts at `initial`. */
  readonly min: number;
  readonly max: number;
  readonly initial: number;
  /** A limit that was set by hand. Nothing is learned while there is one. */
  readonly pinned: number | null;
  readonly latency: LatencySettings | null;
  readonly errors: ErrorSettings;
  readonly breaker: BreakerSettings | null;
  readonly bucket: BucketSettings | null;
  /** The longest `Retry-After` that is honoured. */
  readonly maxHoldMs: number;
};

export type LatencySettings = {
  /** The multiple of its baseline that the 95th percentile may reach before growth pauses. */
  readonly tolerance: number;
  /** The time constant by which the baseline follows a latency that rises while the limit is used. */
  readonly baselineRiseMs: number;
};

export type ErrorSettings = {
  /** The weights of a timeout and of a server error; a throttled call counts for one. */
  readonly timeoutWeight: number;
  readonly serverErrorWeight: number;
  /** The weighted share of failed calls at which the limit is lowered. */
  readonly rate: number;
  /** How many calls are needed to compute the share. */
  readonly minCalls: number;
};

export type BreakerSettings = {
  /** The share of timeouts and server errors at which all calls are stopped. */
  readonly rate: number;
  readonly minCalls: number;
  /** How long calls are stopped at first, and at most after repeated failures. */
  readonly coolMs: number;
  readonly maxCoolMs: number;
  /** How many calls must succeed after that, at once, before the breaker closes. */
  readonly probes: number;
};

export type BucketSettings = {
  readonly unit: "requests" | "tokens";
  /** Units per second to begin with. Null: unbounded until the downstream reports a rate limit. */
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

/** More calls at once than one fleet makes to one downstream; keeps a runaway limit finite. */
const maxCalls = 100_000;
const hourMs = 3_600_000;
const maxRefillPerS = 1e9;

const defaultSettings: ControllerSettings = {
  algorithm: "ceiling",
  min: 1,
  max: 1_000,
  // Few enough for any downstream. Growth doubles from here, so that little time is lost.
  initial: 2,
  pinned: null,
  // The p95 of a healthy service varies by a third; half above the baseline is pressure.
  latency: { tolerance: 1.5, baselineRiseMs: 600_000 },
  // A tenth of timeouts, or a fifth of server errors, is more than the noise of a healthy service.
  errors: { timeoutWeight: 1, serverErrorWeight: 0.5, rate: 0.1, minCalls: 20 },
  // If half of all calls fail, it isn't load but an outage.
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
  // A single timeout halves the limit, as a throttled call does, and a small rise of the p95 pauses growth.
  aimd: {
    ...defaultSettings,
    algorithm: "aimd",
    latency: { tolerance: 1.2, baselineRiseMs: 600_000 },
  },
  // It also shrinks, so its baseline must follow sooner.
  gradient: {
    ...defaultSettings,
    algorithm: "gradient",
    latency: { tolerance: 1.3, baselineRiseMs: 300_000 },
  },
};

/** Checks the options, and fills in the defaults of the preset. Errors name the option. */
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
  options: Partial<T> | undefined,
  base: T | null,
  ranges: Readonly<Record<keyof T, Range>>,
): T {
  checkOptions(what, (options ?? {}) as Record<string, unknown>, Object.keys(ranges));
  const all = { ...base, ...options } as T;
  for (const name of Object.keys(ranges) as (keyof T)[]) {
    checkNumber(`${what}.${String(name)}`, all[name], ranges[name]);
  }
  return all;
}

function breakerOf(
  what: string,
  options: Partial<BreakerSettings> | undefined,
  base: BreakerSettings | null,
): BreakerSettings {
  const breaker = withDefaults(`${what}: breaker`, options, base, breakerRanges);
  const { coolMs } = breaker;
  const maxCoolMs = options?.maxCoolMs ?? Math.max(breaker.maxCoolMs, coolMs);
  checkNumber(`${what}: breaker.maxCoolMs`, maxCoolMs, { ...durationMs, min: coolMs });
  return { ...breaker, maxCoolMs };
}

function bucketOf(what: string, options: NonNullable<ControllerOptions["bucket"]>): BucketSettings {
  checkOptions(`${what}: bucket`, options, ["unit", "refillPerS", ...Object.keys(bucketRanges)]);
  const { unit = defaultBucket.unit, refillPerS, ...rest } = options;
  checkChoice(`${what}: bucket.unit`, unit, ["requests", "tokens"]);
  if (refillPerS !== undefined) checkNumber(`${what}: bucket.refillPerS`, refillPerS, perS);
  const { minPerS, maxPerS, burstS } = defaultBucket;
  // A `refillPerS` below the default minimum lowers the minimum.
  const base = { minPerS: Math.min(minPerS, refillPerS ?? minPerS), maxPerS, burstS };
  const numbers = withDefaults(`${what}: bucket`, rest, base, bucketRanges);
  checkNumber(`${what}: bucket.maxPerS`, numbers.maxPerS, { ...perS, min: numbers.minPerS });
  if (refillPerS !== undefined) {
    const within = { min: numbers.minPerS, max: numbers.maxPerS, whole: false };
    checkNumber(`${what}: bucket.refillPerS`, refillPerS, within);
  }
  return { unit, refillPerS: refillPerS ?? null, ...numbers };
}
