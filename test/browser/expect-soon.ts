import { expect, vi } from "vitest";
import { patienceMs } from "./browser.ts";

/** Waits until what is asked says this, and shows the difference where it never does. */
export async function expectSoon<Value>(
  ask: () => Promise<Value>,
  wanted: Value | ((value: Value) => void),
): Promise<void> {
  await vi.waitFor(
    async () => {
      const value = await ask();
      if (typeof wanted === "function") (wanted as (value: Value) => void)(value);
      else expect(value).toEqual(wanted);
    },
    { timeout: patienceMs, interval: 50 },
  );
}
