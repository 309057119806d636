import { test } from "vitest";
import { storeKinds } from "../harness.ts";
import { createSessionFleet } from "./harness.ts";
import { expectHeardOnce, missedWhenKilled } from "./steered.ts";

test.each(storeKinds)(
  "W11: on %s, a message during an answer is heard once by it, at the same step, though two pods that make it are killed",
  async (on) => {
    const fleet = await createSessionFleet({ on });
    await expectHeardOnce({
      fleet,
      start: () => fleet.startServer({ config: missedWhenKilled }),
      open: (session) => fleet.open(session, "steered"),
    });
  },
  180_000,
);
