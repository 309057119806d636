import { describe, expect, test } from "vitest";
import { throttle } from "../../throttles/throttle.ts";
import { agent, factsOfSpec } from "./agent.ts";
import { checkAgentSettings, fromSettings } from "./stored-agents.ts";

const secret = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;
const answer = () => "hello";

describe("an agent", () => {
  test("is a function with defaults for everything", () => {
    const { source, ...rest } = agent("helper", {}, answer);
    expect(source).toEqual({ type: "function", run: answer });
    expect(rest).toEqual({
      name: "helper",
      during: "queue",
      debounceMs: 500,
      history: { mode: "tail", count: 50 },
      context: { skipParts: [], lastN: null },
      idleTimeoutMs: 30_000,
      deadlineMs: 300_000,
      retries: 3,
      backoff: {},
      attempts: 3,
      throttle: null,
      compaction: null,
    });
    expect(agent("helper", answer)).toEqual(agent("helper", {}, answer));
  });

  test("is a URL with headers and the secrets that sign its requests", () => {
    const { source } = agent("helper", {
      url: "https://agents.example/chat",
      headers: { authorization: "Bearer x" },
      secret,
    });
    expect(source).toEqual({
      type: "url",
      url: "https://agents.example/chat",
      headers: { authorization: "Bearer x" },
      secrets: [secret],
      allowPrivate: false,
    });
  });

  test("has a throttle with its key, and a compactor", () => {
    const model = throttle("model-of-agents");
    const fn = () => "short";
    const spec = agent("helper", { throttle: model.key("large"), compaction: { fn } }, answer);
    expect(spec.throttle).toMatchObject({ declared: { name: "model-of-agents" }, key: "large" });
    expect(spec.compaction).toEqual({
      when: "auto",
      tokenBudget: 50_000,
      triggerRatio: 0.7,
      deadlineMs: 60_000,
      source: { type: "function", run: fn },
    });
  });

  test.each([
    ["entire" as const, { mode: "entire" }],
    ["tail" as const, { mode: "tail", count: 50 }],
    ["last" as const, { mode: "last", count: 1 }],
    [{ tail: 7 }, { mode: "tail", count: 7 }],
    [{ last: 3 }, { mode: "last", count: 3 }],
  ])("gets as much of the history as %j allows", (history, mode) => {
    expect(agent("helper", { history }, answer).history).toEqual(mode);
  });

  test.each<[string, object, RegExp]>([
    ["a misspelt option", { duing: "queue" }, /did you mean `during`/],
    [
      "a policy that isn't one",
      { during: "wait" },
      /during must be one of queue, interrupt, merge/,
    ],
    ["no retries at all", { retries: 0 }, /retries must be a whole number from 1/],
    ["a history that isn't one", { history: "head" }, /history must be one of/],
    ["a history of two kinds", { history: { tail: 1, last: 1 } }, /history must be/],
    ["a history of none", { history: { tail: 0 } }, /history.tail must be/],
    ["a throttle that isn't one", { throttle: { name: "x" } }, /made by `throttle/],
    ["a compaction of nothing", { compaction: {} }, /needs a `url` or a `fn`/],
    ["a misspelt part of it", { compaction: { fn: answer, budget: 1 } }, /unknown option `budget`/],
    ["parts that are none", { context: { skipParts: [1] } }, /skipParts must be/],
    ["a URL beside a function", { url: "https://a.example" }, /unknown option `url`/],
  ])("refuses %s", (_, options, message) => {
    expect(() => agent("helper", options, answer)).toThrow(message);
  });

  test.each<[string, object, RegExp]>([
    ["no URL", {}, /needs a function or a `url`/],
    ["a secret without its prefix", { url: "https://a.example", secret: "abc" }, /whsec_/],
    ["a short secret", { url: "https://a.example", secret: "whsec_YWJj" }, /24 to 64 bytes/],
    ["a header of ours", { url: "https://a.example", headers: { Host: "b" } }, /Flotilla sets it/],
    ["a split header", { url: "https://a.example", headers: { a: "b\r\nc: d" } }, /cannot be sent/],
  ])("at a URL refuses %s", (_, options, message) => {
    expect(() => agent("helper", options as { url: string })).toThrow(message);
  });

  test.each(["", "a b", "ä", "a".repeat(201), undefined])("can't be named %j", (name) => {
    expect(() => agent(name as string, answer)).toThrow(/an agent's name is/);
  });

  test("shows the owner of a session only what it decides by", () => {
    expect(factsOfSpec(agent("helper", { during: "merge", attempts: 2 }, answer))).toEqual({
      during: "merge",
      debounceMs: 500,
      attempts: 2,
      compaction: null,
    });
    const compaction = { fn: answer, when: "manual", tokenBudget: 9 } as const;
    expect(factsOfSpec(agent("helper", { compaction }, answer)).compaction).toEqual({
      when: "manual",
      tokenBudget: 9,
      triggerRatio: 0.7,
    });
  });
});

describe("stored settings", () => {
  const settings = {
    url: "https://agents.example/chat",
    history: { last: 4 },
    compaction: { url: "https://agents.example/sum", tokenBudget: 1_000 },
  };

  test("give the same agent as the code would", () => {
    expect(fromSettings("helper", checkAgentSettings(settings), { secret })).toEqual(
      agent("helper", { ...settings, secret }),
    );
  });

  test.each<[string, unknown, RegExp]>([
    ["no object", null, /must be an object/],
    ["no URL", {}, /need a `url`/],
    ["private networks", { ...settings, allowPrivate: true }, /unknown option `allowPrivate`/],
    ["secrets among them", { ...settings, secret }, /unknown option `secret`/],
    ["a throttle", { ...settings, throttle: "x" }, /unknown option `throttle`/],
    ["this machine", { url: "http://localhost:3000" }, /https:\/\//],
    ["a private compactor", { ...settings, compaction: { url: "https://10.0.0.1" } }, /public/],
    ["a text for a number", { ...settings, deadlineMs: "1" }, /deadlineMs must be/],
    ["null for a number", { ...settings, deadlineMs: null }, /deadlineMs must be/],
    ["null for options", { ...settings, backoff: null }, /must be an object/],
    ["a list for headers", { ...settings, headers: ["a"] }, /headers must be/],
  ])("refuse %s", (_, json, message) => {
    expect(() => checkAgentSettings(json)).toThrow(message);
  });

  test("may name private networks where the operator allows it", () => {
    const local = { url: "http://localhost:3000/chat" };
    expect(checkAgentSettings(local, { allowPrivate: true })).toEqual(local);
  });
});
