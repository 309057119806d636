import { describe, expect, test } from "vitest";
import { commandOf, keyHelp, places, placesFor } from "./places.ts";

const press = (key: string, more: object = {}) => ({
  key,
  atMs: 1_000,
  isCommand: false,
  isTyping: false,
  ...more,
});

describe("a key", () => {
  test("opens the palette with the command key, also while a person types", () => {
    for (const key of ["k", "K"])
      expect(commandOf(press(key, { isCommand: true, isTyping: true }), undefined, places)).toEqual(
        {
          command: { type: "palette" },
        },
      );
    expect(commandOf(press("c", { isCommand: true }), undefined, places)).toEqual({});
  });

  test("is text while a person types", () => {
    for (const key of ["?", "/", "g", "t"])
      expect(commandOf(press(key, { isTyping: true }), 999, places)).toEqual({});
  });

  test("leads to a page after a g, for a moment", () => {
    const { goAtMs } = commandOf(press("g"), undefined, places);
    expect(goAtMs).toBe(1_000);
    const after = (key: string, atMs: number) => commandOf(press(key, { atMs }), goAtMs, places);
    for (const { key, to } of places)
      expect(after(key, 2_000)).toEqual({ command: { type: "go", to } });
    expect(after("t", 9_000)).toEqual({});
    expect(after("?", 2_000)).toEqual({ command: { type: "help" } });
  });

  test("is in the list of keys, whatever it does", () => {
    const listed = keyHelp(places).map(([keys]) => keys);
    for (const { key } of places) expect(listed).toContain(`g ${key}`);
    expect(new Set(places.map(({ key }) => key)).size).toBe(places.length);
  });
});

describe("a page", () => {
  const namesFor = (caller: Parameters<typeof placesFor>[0]) =>
    placesFor(caller).map(({ name }) => name);

  test("is shown to callers that see something there", () => {
    const admin = namesFor({ verbs: ["fleet:read", "admin"] });
    expect(admin).toEqual(places.map(({ name }) => name));
    const viewer = namesFor({ verbs: ["fleet:read"] });
    expect(viewer).toContain("Queues");
    expect(viewer).not.toContain("Audit");
    const ofTenant = namesFor({ verbs: ["fleet:read", "admin"], tenant: "acme" });
    expect(ofTenant).toContain("Tasks");
    for (const name of ["Queues", "Schedules", "Pods", "Audit"])
      expect(ofTenant).not.toContain(name);
  });

  test("that a caller has no use for has no key, and isn't in the list of keys", () => {
    const shown = placesFor({ verbs: ["fleet:read"], tenant: "acme" });
    for (const key of ["p", "q", "u"])
      expect(commandOf(press(key, { atMs: 2_000 }), 1_000, shown)).toEqual({});
    expect(commandOf(press("t", { atMs: 2_000 }), 1_000, shown)).toEqual({
      command: { type: "go", to: "/tasks" },
    });
    const listed = keyHelp(shown).map(([keys]) => keys);
    expect(listed).toContain("g t");
    for (const keys of ["g p", "g q", "g u"]) expect(listed).not.toContain(keys);
  });
});
