import { createHash } from "node:crypto";
import { abort, cancel, type Flow, flow, type Runs } from "flotilla";
import { z } from "zod";
import { sleep, systemClock } from "../../../src/base/clock.ts";
import type { Interceptor } from "../../../src/flows/machine.ts";

const input = z.object({
  key: z.string(),
  /** How often what fails at first fails. */
  failures: z.number(),
});
export type MachineInput = z.infer<typeof input>;

/** How each kind of run is started, by name; some are told something before they ask for it. */
export const scenarios = [
  "works",
  "naps",
  "asks",
  "asked",
  "family",
  "aborts",
  "exhausts",
  "gives-up",
  "cancels",
  "is-cancelled",
  "rebels",
  "hands-off",
  "cannot-tidy",
] as const;
export type Scenario = (typeof scenarios)[number];

/** The run that a key is of: `clean/family/kid-1` is a child of `clean/family`. */
export function scenarioOf(key: string): Scenario {
  return key.split("/")[1] as Scenario;
}

type Marked = { readonly state: object; readonly attempt: number };

/** Tells whether a function has seen the state that it was to see, but for where an error came from. */
export function markOf({ state, attempt }: Marked): string {
  const text = JSON.stringify([state, attempt], (name, value: unknown) =>
    name === "stack" ? undefined : value,
  );
  return createHash("sha256").update(text).digest("hex").slice(0, 8);
}

export type Surroundings = {
  readonly runs: () => Runs;
  /** Resolves when the test opens a gate on this pod. */
  readonly opened: (gate: string) => Promise<void>;
};

/** One flow for each way in which a run can go, wait and end. */
export function machines(interceptor: Interceptor, { runs, opened }: Surroundings): Flow[] {
  const options = {
    version: 1,
    input,
    interceptors: [interceptor],
    attempts: 3,
    backoff: { baseMs: 20, jitter: 0 },
  };
  const begun = (name: string) =>
    flow(name, options)
      .init(() => ({ made: "here" }))
      .to("first", (context) => ({ first: markOf(context) + context.env.made }));
  const failing = ({ input: { failures }, attempt }: { input: MachineInput; attempt: number }) => {
    if (attempt <= failures) throw new Error(`failure ${attempt}, as ordered`);
  };
  const tidy = () => {};

  const works = flow("works", {
    ...options,
    concurrency: { limit: 1, key: ({ key }: MachineInput) => key },
  })
    .to("first", (context) => ({ first: markOf(context) }))
    .to("fails-at-first", (context) => {
      failing(context);
      return { second: markOf(context) };
    })
    .to("says-nothing", () => {})
    .to("last", (context) => ({ last: markOf(context) }))
    .finally("tidy", tidy)
    .finally("tidy-more", tidy)
    .end();

  const naps = begun("naps")
    .sleep("nap", 30)
    .to("between", (context) => ({ between: markOf(context) }))
    .sleep("counted-nap", () => 20)
    .to("last", (context) => ({ last: markOf(context) }))
    .end();

  const asking = (name: string) =>
    begun(name)
      .signal("approve", { schema: z.object({ by: z.string() }) })
      .to("last", (context) => ({ last: markOf(context), by: context.state.approve.by }))
      .finally("tidy", tidy)
      .end();

  const kid = begun("kid")
    .to("fails-at-first", failing)
    .sleep("nap", 20)
    .to("last", (context) => ({ last: markOf(context) }))
    .finally("tidy", tidy)
    .end();

  const family = begun("family")
    .children("kids", ({ input: { key, failures } }) => [
      [kid, { key: `${key}/kid-1`, failures }],
      [kid, { key: `${key}/kid-2`, failures: 0 }],
    ])
    .to("between", (context) => ({ between: markOf(context) }))
    .children("late-kids", { failures: "keep" }, ({ input: { key } }) => [
      [aborts, { key: `${key}/kid-3`, failures: 0 }],
    ])
    .to("last", (context) => ({ last: markOf(context) }))
    .finally("tidy", tidy)
    .end();

  const aborts = begun("aborts")
    .to("never-works", () => {
      throw abort("aborted, as ordered");
    })
    .to("never", tidy)
    .finally("tidy", tidy)
    .finally("tidy-more", tidy)
    .end();

  const exhausts = begun("exhausts")
    .to("never-works", { attempts: 2 }, ({ attempt }) => {
      throw new Error(`failure ${attempt}, as ordered`);
    })
    .finally("tidy", tidy)
    .end();

  // The signal that it waits for never comes.
  const givesUp = begun("gives-up")
    .signal("never-sent", { timeoutMs: 30 })
    .finally("tidy", tidy)
    .end();

  const cancels = begun("cancels")
    .to("cancels", () => {
      throw cancel("cancelled, as ordered");
    })
    .finally("tidy", tidy)
    .end();

  const isCancelled = begun("is-cancelled")
    .to("is-told", async ({ runId, signal }) => {
      await runs().cancel(runId);
      await aborted(signal);
    })
    .to("never", tidy)
    .finally("tidy", tidy)
    .end();

  const rebel = begun("rebel")
    .to("cancels-its-parent", async ({ runId }) => {
      const { parentId } = (await runs().get(runId))!;
      await runs().cancel(parentId!);
    })
    // Its parent passes the cancel on.
    .signal("never-sent")
    .finally("tidy", tidy)
    .end();
  const patient = begun("patient").signal("never-sent").finally("tidy", tidy).end();

  const rebels = begun("rebels")
    .children("kids", ({ input: { key } }) => [
      [rebel, { key: `${key}/rebel`, failures: 0 }],
      [patient, { key: `${key}/patient`, failures: 0 }],
    ])
    .to("never", tidy)
    .finally("tidy", tidy)
    .end();

  const handsOff = begun("hands-off")
    .to("hands-off", (context) => context.handoff({ handed: markOf(context) }))
    .to("never", tidy)
    .finally("tidy", tidy)
    .end();

  const cannotTidy = begun("cannot-tidy")
    .finally("never-works", { attempts: 2 }, ({ attempt }) => {
      throw new Error(`failure ${attempt}, as ordered`);
    })
    .finally("tidy", tidy)
    .end();

  // It takes longer than a pod that stops will wait.
  const lasts = begun("lasts")
    .to("takes-long", ({ signal }) => sleep(systemClock, 2_000, signal))
    .to("last", (context) => ({ last: markOf(context) }))
    .finally("tidy", tidy)
    .end();

  // It hears nothing until the test lets it go.
  const held = begun("held")
    .to("held", () => opened("door"))
    .to("last", (context) => ({ last: markOf(context) }))
    .finally("tidy", tidy)
    .end();

  return [
    works,
    naps,
    asking("asks"),
    asking("asked"),
    kid,
    family,
    aborts,
    exhausts,
    givesUp,
    cancels,
    isCancelled,
    rebel,
    patient,
    rebels,
    handsOff,
    cannotTidy,
    lasts,
    held,
  ];
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve());
  });
}
