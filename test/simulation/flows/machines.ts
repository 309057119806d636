/**
 * The flows that are simulated, in three versions. The second has renamed and removed transitions of the
 * first and has forgotten to say so of one; the third makes up for that.
 */
import { type Flow, flow } from "../../../src/flows/flow.ts";
import type { RunContext } from "../../../src/flows/drive/attempt.ts";
import type { Json } from "../../../src/base/json.ts";
import type { Schema } from "../../../src/base/schema.ts";

/** How the calls of one function go, up to a number of them. Later ones go well. */
export type Fate = {
  readonly kind:
    | "abort"
    | "cancel"
    | "flaky"
    | "handoff"
    | "patient"
    | "poison"
    | "polite"
    | "snooze"
    | "stuck"
    | "unrecoverable"
    | "well";
  readonly times: number;
  readonly workMs: number;
};

export type Input = {
  /** The request that made the run. */
  readonly op: number;
  /** By the first name that a transition had. */
  readonly fates: Readonly<Record<string, Fate>>;
  readonly sleepMs: number;
  readonly kids: readonly Kid[];
  /** The children of a step before that one, where there is such a step. */
  readonly scouts?: readonly Kid[];
  /** The runs that it waits for before it begins. */
  readonly after?: readonly string[];
};

/** A run that another one starts. */
export type Kid = { readonly flow: string; readonly input: Input };

export type Context = RunContext<Input, unknown> & {
  readonly state: unknown;
  readonly handoff?: (output: unknown) => unknown;
};

/** What every function of every flow does. */
export type Perform = (context: Context) => Promise<object | void>;

export const versions = [1, 2, 3] as const;
export type Version = (typeof versions)[number];

export const beltQueue = { name: "belt", limit: 2 } as const;
export const attempts = 3;
export const timeoutMs = 2_500;

/** What a transition or finalizer was called first. */
const firstNames: Readonly<Record<string, string>> = {
  bill: "charge",
  brood: "kids",
  notify: "report",
};
export const firstName = (name: string) => firstNames[name] ?? name;

/** The transitions of each flow in all its versions, by their first names, in order. */
export const orders: Readonly<Record<string, readonly string[]>> = {
  order: ["reserve", "check", "cool", "approval", "parcels", "charge", "legacy"],
  parcel: ["pack", "wrap", "send"],
  plain: ["one", "two", "three"],
  ask: ["go", "more"],
  parent: ["scouts", "kids", "sum"],
};
/** The children that each step of that kind starts. */
export const childrenSteps: Readonly<Record<string, (input: Input) => readonly Kid[]>> = {
  parcels: ({ kids }) => kids,
  scouts: ({ scouts = [] }) => scouts,
  kids: ({ kids }) => kids,
};
/** Steps that go on with the failures of their children. */
export const keptFailures: readonly string[] = ["parcels", "scouts"];
/** A task, among the runs. */
export const errand = "errand";
export const signalNames = ["approval", "go", "more"];
export const flowNames = Object.keys(orders);

/** A signal is good if it says so. */
const goodSignal: Schema<unknown, Json> = {
  "~standard": {
    version: 1,
    vendor: "simulation",
    validate: (value) =>
      (value as { good?: boolean } | null)?.good === true
        ? { value: value as Json }
        : { issues: [{ message: "isn't good" }] },
  },
};
/** Is taken as it comes. */
const given: Schema<Input, Input> = {
  "~standard": {
    version: 1,
    vendor: "simulation",
    validate: (value) => ({ value: value as Input }),
  },
};
const anything: Schema<unknown, unknown> = {
  "~standard": {
    version: 1,
    vendor: "simulation",
    validate: (value) => ({ value: { state: value } }),
  },
};

/** All flows of a version. */
export function flowsOf(version: Version, perform: Perform): Flow[] {
  const backoff = { baseMs: 200, factor: 2, maxMs: 1_000 };
  const usual = { version, input: given, attempts, timeoutMs, backoff };
  const sleepMs = async (context: Context) => {
    await perform(context);
    return context.input.sleepMs;
  };
  const byName = new Map<string, Flow>();
  const startedBy = (step: string) => async (context: Context) => {
    await perform(context);
    const started = childrenSteps[step]!(context.input);
    return started.map(({ flow: name, input }) => [byName.get(name)!, input] as const);
  };
  const approval = { timeoutMs: 3_000, onTimeout: { value: null } } as const;
  const begun = flow("order", {
    ...usual,
    ...(version > 1 && {
      renamed: { charge: "bill", report: "notify" },
      removed: { cool: "approval", legacy: "end" },
    }),
  })
    .init(() => ({}))
    .to("reserve", perform);
  const order =
    version === 1
      ? begun
          .sleep("cool", sleepMs)
          .signal("approval", approval)
          .children("parcels", { failures: "keep" }, startedBy("parcels"))
          .to("charge", perform)
          .to("legacy", perform)
          .finally("tidy", perform)
          .finally("report", perform)
          .end()
      : begun
          .to("check", perform)
          .signal("approval", approval)
          .children("parcels", { failures: "keep" }, startedBy("parcels"))
          .to("bill", perform)
          .finally("tidy", perform)
          .finally("notify", perform)
          .finally("audit", perform)
          .end();
  // The second version forgets to say that there is no wrapping any more.
  const packed = flow("parcel", {
    ...usual,
    queue: beltQueue,
    ...(version > 2 && { removed: { wrap: "send" } }),
  }).to("pack", perform);
  const parcel = (version === 1 ? packed.to("wrap", perform) : packed)
    .to("send", perform)
    .finally("stamp", perform)
    .end();
  const plainBegun = flow("plain", {
    ...usual,
    ...(version > 1 && { removed: { two: "three" } }),
  }).to("one", perform);
  const plain = (version === 1 ? plainBegun.to("two", perform) : plainBegun)
    .to("three", perform)
    .end();
  // Ends with a wait and has an output, so that it stops at its end to be concluded.
  const ask = flow("ask", { ...usual, output: anything })
    .signal("go", { schema: goodSignal })
    .signal("more", { timeoutMs: 2_000, onTimeout: { value: "none" } })
    .finally("close", perform)
    .end();
  const parent = flow("parent", {
    ...usual,
    queue: beltQueue,
    ...(version > 2 && { renamed: { kids: "brood" } }),
  })
    .children("scouts", { failures: "keep" }, startedBy("scouts"))
    .children(version > 2 ? "brood" : "kids", startedBy("kids"))
    .to("sum", perform)
    .finally("sweep", perform)
    .finally("lock", perform)
    .end();
  const all: Flow[] = [order, parcel, plain, ask, parent];
  for (const each of all) byName.set(each.name, each);
  return all;
}

/** The machines of each version, to read rows by. No pod runs them. */
export const machines = new Map(
  versions.map((version) => [
    version,
    new Map(flowsOf(version, async () => {}).map((each) => [each.name, each])),
  ]),
);
