import { type Flow, flow, snooze } from "flotilla";
import { z } from "zod";
import type { Interceptor } from "../../../src/flows/machine.ts";

const input = z.object({
  key: z.string(),
  /** The transition at which it waits for the second version. */
  waitsAt: z.string().optional(),
  /** Whether the signal is sent as soon as the run waits for it. */
  goes: z.boolean(),
});
export type OrderInput = z.infer<typeof input>;

type Context = { readonly input: OrderInput; readonly transition: string };

/** An order, which the second version pays under another name, and tells of where the first did nothing. */
export function order(version: number, interceptor: Interceptor): Flow {
  const options = { version, input, interceptors: [interceptor], backoff: { baseMs: 20 } };
  const done = ({ input: { waitsAt }, transition }: Context) => {
    if (waitsAt === transition) throw snooze(50, "not with this version");
    return { [transition]: version };
  };
  if (version === 1) {
    return flow("order", options)
      .to("reserve", done)
      .to("charge", done)
      .to("legacy", done)
      .signal("go")
      .to("ship", done)
      .finally("tidy", () => {})
      .end();
  }
  return flow("order", {
    ...options,
    renamed: { charge: "pay" },
    removed: { legacy: "notify" },
  })
    .to("reserve", done)
    .to("pay", done)
    .to("notify", done)
    .signal("go")
    .to("ship", done)
    .finally("tidy", () => {})
    .end();
}
