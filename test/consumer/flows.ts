import { flow } from "flotilla";
import { z } from "zod";

/** What a user's module exports of flows: the beginning as a contract, one half way, and whole ones. */
export const order = flow("order", {
  version: 1,
  input: z.object({ items: z.array(z.string()) }),
  output: z.object({ weights: z.array(z.number()) }),
});

export const parcel = flow("parcel", { version: 1, input: z.object({ item: z.string() }) })
  .to("weigh", ({ input }) => ({ weight: input.item.length, at: new Date(0) }))
  .end();

export const orders = order
  .init(() => ({ opened: new Map<string, number>() }))
  .to("check", ({ input, handoff }) =>
    input.items.length === 0 ? handoff({ weights: [] }) : undefined,
  )
  .signal("approval", { schema: z.object({ by: z.string() }) })
  .children("parcels", ({ input }) => input.items.map((item) => [parcel, { item }]))
  .to("sum", ({ state }) => ({ weights: state.parcels.map(({ weight }) => weight) }))
  .finally(({ env }) => env.opened.clear())
  .end();

export const half = flow("half", { version: 1 }).to("one", ({ attempt }) => ({ attempt }));
