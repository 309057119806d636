import { describe, expect, test } from "vitest";
import { addressTrouble, conditionText, filterFields, parseFilter } from "./filter.ts";

const nowMs = Date.UTC(2026, 10, 17, 12);
const parse = (text: string) => {
  const written = parseFilter(text, nowMs);
  return written.type === "filter" ? written.filter : written.text;
};

describe("a filter that is written", () => {
  test("has a field and a value, as many as are wanted", () => {
    expect(parse("pod:pod-1 key=order-7")).toEqual({ pod: "pod-1", key: "order-7" });
    expect(parse('  key:"two words" tenant:"a \\"b\\" \\\\"  ')).toEqual({
      key: "two words",
      tenant: 'a "b" \\',
    });
    expect(parse("payload.order.id:7 payload.note=100%")).toEqual({
      "payload.order.id": "7",
      "payload.note": "100%",
    });
    expect(parse("scope:key/mail/a:b")).toEqual({ scope: "key/mail/a:b" });
    expect(parse("")).toEqual({});
  });

  test("has the words of the page for a status, and times as people write them", () => {
    expect(parse("status:running is:set-aside")).toEqual({ status: "claimed", setAside: "true" });
    expect(parse("status:claimed")).toEqual({ status: "claimed" });
    expect(parse("state:delayed")).toEqual({ state: "delayed" });
    expect(parse("since:2h")).toEqual({ sinceMs: String(nowMs - 7_200_000) });
    expect(parse("until:2026-11-17T09:30Z")).toEqual({
      untilMs: String(Date.UTC(2026, 10, 17, 9, 30)),
    });
    expect(parse("since:1763380800000")).toEqual({ sinceMs: "1763380800000" });
  });

  test("that can't be understood is answered with a sentence that says what to write", () => {
    expect(parse("nme:mail")).toContain("nme: is no filter: write a field and its value");
    expect(parse("mail")).toContain("such as pod:pod-1");
    expect(parse("pod:")).toBe("The filter pod needs a value after its colon.");
    expect(parse('pod:"open')).toContain("is no filter");
    expect(parse("status:red")).toContain("There is no status red: it is waiting, running");
    expect(parse("since:yesterday")).toContain("yesterday is no time");
    expect(parse("state:odd")).toContain("There is no state odd: it is ready, delayed");
    expect(parse("is:odd")).toContain("write is:set-aside");
    for (const long of ["x".repeat(10_000), `${"x".repeat(10_000)}:7`])
      expect(JSON.stringify(parse(long)).length).toBeLessThan(400);
  });

  test("is understood in time that grows with its length alone", () => {
    const hostile = `key:"${"\\".repeat(50_000)}`;
    expect(parse(hostile)).toContain("is no filter");
    expect(parse("a:".repeat(20_000))).toContain("is no filter");
  });

  test("leaves to the server what the server checks", () => {
    const deep = `payload.${Array.from({ length: 50 }, () => "a").join(".")}`;
    expect(parse(`payload.__proto__:1 ${deep}:1`)).toEqual({
      "payload.__proto__": "1",
      [deep]: "1",
    });
  });

  test("has an example for each field that is understood", () => {
    for (const { name, example } of filterFields) {
      const text = name === "payload." ? `payload.${example}` : `${name}:${example}`;
      expect([text, typeof parse(text)]).toEqual([text, "object"]);
    }
  });
});

describe("a filter of the address", () => {
  test("is written in words", () => {
    const timeText = (atMs: number) => `at ${atMs}`;
    expect(conditionText("pod", "pod-1", timeText)).toBe("pod pod-1");
    expect(conditionText("sinceMs", "7", timeText)).toBe("since at 7");
    expect(conditionText("untilMs", "never", timeText)).toBe("until never");
    expect(conditionText("setAside", "true", timeText)).toBe("set aside");
    expect(conditionText("state", "waiting", timeText)).toBe("after others");
    expect(conditionText("payload.order.id", "7", timeText)).toBe("payload.order.id 7");
  });

  test("is one that lists have, or says which field isn't", () => {
    for (const { name, example } of filterFields) {
      const text = name === "payload." ? `payload.${example}` : `${name}:${example}`;
      const written = parseFilter(text, nowMs);
      expect([name, written.type === "filter" && addressTrouble(written.filter)]).toEqual([
        name,
        undefined,
      ]);
    }
    const troubleOf = (query: object) => addressTrouble(query as never);
    expect(troubleOf({})).toBeUndefined();
    expect(troubleOf({ name: "mail", colour: "red" })).toEqual({
      field: "colour",
      text: "Tasks have no filter colour, so that it isn't known which are meant.",
    });
    for (const field of ["is", "since", "cursor", "limit", "__proto__x", "payload"])
      expect([field, troubleOf({ [field]: "1" })?.field]).toEqual([field, field]);
    expect(troubleOf({ status: "odd" })?.text).toContain("There is no status odd");
    expect(troubleOf({ state: "odd" })?.text).toContain("There is no state odd");
    expect(troubleOf({ sinceMs: "yesterday" })?.text).toContain("must be a whole number");
    expect(troubleOf({ version: "-1" })?.field).toBe("version");
    expect(troubleOf({ setAside: "yes" })?.field).toBe("setAside");
    expect(troubleOf({ ["x".repeat(10_000)]: "1" })!.text.length).toBeLessThan(200);
  });
});
