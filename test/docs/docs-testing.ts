import { flow, task } from "flotilla";

export { textOf } from "flotilla";
export { expect, test } from "vitest";
export const charge = task<{ cents: number }, { cents: number }, { charged: number }>("charge", {});
export const charger = charge.handle(({ input }) => ({ charged: input.cents }));
export declare const ledger: string[];
export const order = flow<{ item: string }>("order", { version: 1 })
  .to("reserve", () => ({ shelf: 4 }))
  .to("ship", () => ({ parcel: "p-17" }))
  .end();
