import { expect, onTestFinished, test, vi } from "vitest";
import { openConnection } from "./connection.ts";
import { DatabaseSync } from "./driver.ts";

test("a statement that is used again and again is prepared once, whatever is run beside it", () => {
  const prepare = vi.spyOn(DatabaseSync.prototype, "prepare");
  onTestFinished(() => prepare.mockRestore());
  const connection = openConnection({ path: ":memory:" });
  onTestFinished(() => connection.close());
  const usual = { text: "select ? as usual", values: ["same"] };
  for (let round = 0; round < 20; round++) {
    expect(connection.read(usual)).toEqual({ columns: ["usual"], rows: [["same"]] });
    for (let at = 0; at < 100; at++) {
      const once = connection.read({ text: `select ${at} as once, ${round} as round`, values: [] });
      expect(once).toEqual({ columns: ["once", "round"], rows: [[at, round]] });
    }
  }
  expect(prepare.mock.calls.filter(([text]) => text === usual.text)).toHaveLength(1);
});
