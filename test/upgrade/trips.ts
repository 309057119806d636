import { flow, type Flow } from "../../src/flows/flow.ts";

/** What the functions of the flows ask of the program that runs them. */
export type TripHooks = {
  /** What a run does where it would be held up: throw, wait for ever, or nothing. */
  readonly at: (run: string, place: string) => unknown;
};

export type Trip = { readonly run: string };

const quick = { baseMs: 500, maxMs: 500, jitter: 0 };

export function legs({ at }: TripHooks): Flow<Trip> {
  return flow<Trip>("leg", { version: 1, backoff: quick })
    .to("ride", async ({ input }) => {
      await at(input.run, "ride");
      return { rode: input.run };
    })
    .end();
}

/** As the first release had it. What is kept of its runs must finish under every later one. */
export function trips(hooks: TripHooks): Flow<Trip> {
  const leg = legs(hooks);
  const { at } = hooks;
  return flow<Trip>("trip", { version: 1, backoff: quick, attempts: 1_000 })
    .to("book", async ({ input }) => {
      await at(input.run, "book");
      return { booked: `${input.run}, booked` };
    })
    .sleep("rest", 1_000)
    .signal("approval", { timeoutMs: 1_000_000_000 })
    .children("legs", ({ input }) => [
      [leg, { run: `${input.run}-1` }],
      [leg, { run: `${input.run}-2` }],
    ])
    .to("check", ({ input }) => at(input.run, "check") as undefined)
    .to("pay", async ({ input, state }) => {
      await at(input.run, "pay");
      return { paid: `${state.booked}, paid` };
    })
    .finally("report", ({ input }) => at(input.run, "report"))
    .end();
}

/** A later version: one transition has another name, one is gone, and two are new. */
export function laterTrips(hooks: TripHooks): Flow<Trip> {
  const leg = legs(hooks);
  const { at } = hooks;
  return flow<Trip>("trip", {
    version: 2,
    backoff: quick,
    renamed: { book: "reserve", report: "tell" },
    removed: { check: "pay" },
  })
    .to("reserve", async ({ input }) => {
      await at(input.run, "book");
      return { booked: `${input.run}, booked` };
    })
    .to("insure", () => ({ insured: true }))
    .sleep("rest", 1_000)
    .signal("approval", { timeoutMs: 1_000_000_000 })
    .children("legs", ({ input }) => [
      [leg, { run: `${input.run}-1` }],
      [leg, { run: `${input.run}-2` }],
    ])
    .to("pay", async ({ input, state }) => {
      await at(input.run, "pay");
      return { paid: `${state.booked}, paid` };
    })
    .to("thank", () => ({ thanked: true }))
    .finally("tell", ({ input }) => at(input.run, "report"))
    .end();
}

/** Where the kept runs stand, and how each ends when nothing holds it up any more. */
export const kept = {
  new: "completed",
  retrying: "completed",
  sleeping: "completed",
  asking: "completed",
  told: "completed",
  waiting: "completed",
  held: "completed",
  failing: "failed",
  cancelling: "cancelled",
  done: "completed",
  failed: "failed",
  cancelled: "cancelled",
} as const;

export type Kept = keyof typeof kept;
