import { describe, expect, test } from "vitest";
import { commandOf, isPlaceFor, keyHelp, places } from "./places.ts";

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
      expect(commandOf(press(key, { isCommand: true, isTyping: true }), undefined)).toEqual({
        command: { type: "palette" },
      });
    expect(commandOf(press("c", { isCommand: true }), undefined)).toEqual({});
  });

  test("is text while a person types", () => {
    for (const key of ["?", "/", "g", "t"])
      expect(commandOf(press(key, { isTyping: true }), 999)).toEqual({});
  });

  test("leads to a page after a g, for a moment", () => {
    const { goAtMs } = commandOf(press("g"), undefined);
    expect(goAtMs).toBe(1_000);
    for (const { key, to } of places)
      expect(commandOf(press(key, { atMs: 2_000 }), goAtMs)).toEqual({
        command: { type: "go", to },
      });
    expect(commandOf(press("t", { atMs: 9_000 }), goAtMs)).toEqual({});
    expect(commandOf(press("?", { atMs: 2_000 }), goAtMs)).toEqual({ command: { type: "help" } });
  });

  test("is in the list of keys, whatever it does", () => {
    const listed = keyHelp.map(([keys]) => keys);
    for (const { key } of places) expect(listed).toContain(`g ${key}`);
    expect(new Set(places.map(({ key }) => key)).size).toBe(places.length);
  });
});

describe("a page", () => {
  const namesFor = (caller: Parameters<typeof isPlaceFor>[1]) =>
    places.filter((place) => isPlaceFor(place, caller)).map(({ name }) => name);

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
});
