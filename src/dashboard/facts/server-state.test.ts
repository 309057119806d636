import { describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import type { HomeFacts } from "../api.ts";
import { serverStateOf } from "./server-state.ts";

const known = { name: "flotilla", links: {}, caller: { kind: "local", verbs: [] } } as HomeFacts;
const stranger = { name: "flotilla", links: {} } as HomeFacts;
const away = new FlotillaError("unavailable", "no answer", { details: { away: true } });
const storeAway = new FlotillaError("store_unavailable", "the store is away");
const missing = new FlotillaError("not_found", "there is no task x");
const unauthorized = new FlotillaError("unauthorized", "the sign-in has ended");

describe("the server", () => {
  test("is there while reads succeed, or fail for reasons of their own", () => {
    expect(serverStateOf(known, [])).toEqual({ type: "online" });
    expect(serverStateOf(undefined, [])).toEqual({ type: "online" });
    const own = [missing, new FlotillaError("forbidden", "not yours"), new Error("a bug")];
    expect(serverStateOf(known, own)).toEqual({ type: "online" });
  });

  test("is away when nothing answers", () => {
    expect(serverStateOf(known, [missing, away, storeAway])).toEqual({ type: "away" });
  });

  test("is unable when it answers that its store is away, and says why", () => {
    expect(serverStateOf(known, [missing, storeAway])).toEqual({
      type: "unable",
      error: storeAway,
    });
    for (const code of ["overloaded", "closed", "store_read_only", "unavailable"] as const)
      expect(serverStateOf(known, [new FlotillaError(code, "later")]).type).toBe("unable");
  });

  test("has signed the caller out when it doesn't know it any more, whatever else fails", () => {
    expect(serverStateOf(stranger, [away])).toEqual({ type: "signed out" });
    expect(serverStateOf(known, [away, unauthorized])).toEqual({ type: "signed out" });
  });
});
