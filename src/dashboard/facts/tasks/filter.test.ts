import { describe, expect, test } from "vitest";
import { bulkFilterOf, conditionText, filterFields, parseFilter, possibleBulks } from "./filter.ts";

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
    expect(conditionText("payload.order.id", "7", timeText)).toBe("payload.order.id 7");
  });

  test("is the filter of an act on all that match", () => {
    expect(
      bulkFilterOf({
        name: "mail",
        status: undefined,
        sinceMs: "5",
        setAside: "true",
        "payload.order.id": "7",
        "payload.note": "it's",
        "payload.text": '"7"',
        "payload.whole": "{}",
      }),
    ).toEqual({
      name: "mail",
      sinceMs: 5,
      setAside: true,
      payload: { "order.id": 7, note: "it's", text: "7", whole: "{}" },
    });
    const hostile = bulkFilterOf({ name: "mail", "payload.__proto__": "1" });
    expect(Object.keys(hostile["payload"] as object)).toEqual(["__proto__"]);
  });

  test("says which acts are possible", () => {
    expect(possibleBulks({ name: "mail" })).toEqual(["cancel", "retry", "resume", "delete"]);
    expect(possibleBulks({ status: "failed" })).toEqual(["retry", "delete"]);
    expect(possibleBulks({ status: "claimed" })).toEqual(["cancel"]);
    expect(possibleBulks({ pod: "p" })).toEqual(["cancel"]);
    expect(possibleBulks({ group: "g" })).toEqual(["retry", "delete"]);
    expect(possibleBulks({ setAside: "true" })).toEqual(["cancel", "resume"]);
  });
});
