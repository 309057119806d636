import { describe, expect, test } from "vitest";
import type { Part } from "../message.ts";
import { type RunPlace, runPlaceIn, runPlaceText } from "./place.ts";
import { type Advance, type AgUiEvent, createAnswerTeller } from "./to-events.ts";

/** A teller with what it tells, and the place of each event. */
function open(messageId: string, place?: string) {
  const events: { event: AgUiEvent; place: string }[] = [];
  const from = place === undefined ? undefined : (runPlaceIn(place) as RunPlace).answer;
  const teller = createAnswerTeller(
    messageId,
    (event, answer) =>
      events.push({ event, place: runPlaceText({ seq: 1, isOver: false, answer })! }),
    from,
  );
  return { teller, events };
}
type Opened = ReturnType<typeof open>;
const take = ({ events }: Opened) => events.splice(0).map(({ event }) => event);
/** The events of a step, undefined where the parts say something else. */
const advance = (opened: Opened, parts: readonly Part[], how: Advance) => {
  const isTold = opened.teller.advance(parts, how);
  const events = take(opened);
  return isTold ? events : undefined;
};
const close = (opened: Opened) => {
  opened.teller.close();
  return take(opened);
};

const text = (words: string, state = "streaming"): Part => ({ type: "text", text: words, state });
const call = (state: string, more: object = {}): Part => ({
  type: "tool-look",
  toolCallId: "c",
  state,
  input: { at: 1 },
  ...more,
});
const typesOf = (events: readonly { type: string }[] | undefined) =>
  events?.map(({ type }) => type.replace("TEXT_MESSAGE_", ""));

test("tells each word once, however often it is asked", () => {
  const writer = open("m");
  expect(typesOf(advance(writer, [text("Hel")], {}))).toEqual(["START", "CONTENT"]);
  expect(advance(writer, [text("Hel")], { grew: true })).toEqual([]);
  expect(advance(writer, [text("Hello", "done")], { whole: true })).toEqual([
    { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "lo" },
    { type: "TEXT_MESSAGE_END", messageId: "m" },
  ]);
  expect(advance(writer, [text("Hello", "done")], { whole: true })).toEqual([]);
});

test("waits for an attempt that has said less, and can't take back what another says", () => {
  const writer = open("m");
  advance(writer, [text("Hello")], {});
  expect(advance(writer, [text("He")], {})).toEqual([]);
  expect(typesOf(advance(writer, [text("Hello you")], {}))).toEqual(["CONTENT"]);
  expect(advance(writer, [text("Goodbye")], {})).toBeUndefined();
  expect(advance(writer, [text("Hello")], { whole: true })).toBeUndefined();
  expect(advance(writer, [], { whole: true })).toBeUndefined();
  expect(typesOf(close(writer))).toEqual(["END"]);
});

test("compares what an attempt says that is made again, until it has come as far", () => {
  const writer = open("m");
  advance(writer, [text("Hello world", "done"), text("Bye")], {});
  // Both begin alike, and from then on each piece only adds to the one before.
  expect(advance(writer, [text("Hel")], {})).toEqual([]);
  expect(advance(writer, [text("Hello w")], { grew: true })).toEqual([]);
  expect(advance(writer, [text("Hello world", "done")], { grew: true })).toEqual([]);
  expect(
    typesOf(advance(writer, [text("Hello world", "done"), text("Bye!")], { grew: true })),
  ).toEqual(["CONTENT"]);
  const other = open("m");
  advance(other, [text("Hello world")], {});
  expect(advance(other, [text("Hel")], {})).toEqual([]);
  expect(advance(other, [text("Help me out, please")], { grew: true })).toBeUndefined();
  const shorter = open("m");
  advance(shorter, [text("Hello", "done"), text("Bye")], {});
  expect(advance(shorter, [text("Hello", "done")], {})).toEqual([]);
  expect(advance(shorter, [text("Hello", "done"), text("Good")], { grew: true })).toBeUndefined();
});

test("tells a call when its input is there, and its result once", () => {
  const writer = open("m");
  expect(advance(writer, [call("input-streaming")], {})).toEqual([]);
  const called = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"];
  expect(typesOf(advance(writer, [call("input-available")], {}))).toEqual(called);
  const done = call("output-available", { output: { degrees: 21 } });
  expect(advance(writer, [done, text("It is 21.")], {})).toMatchObject([
    { type: "TOOL_CALL_RESULT", toolCallId: "c", content: '{"degrees":21}' },
    { type: "TEXT_MESSAGE_START", messageId: "m#1" },
    { delta: "It is 21." },
  ]);
  expect(advance(writer, [done, text("It is 21.")], {})).toEqual([]);
  expect(advance(writer, [call("input-available", { input: 2 })], {})).toBeUndefined();
});

test("ends a reasoning before the text that follows it, and tells other parts by their names", () => {
  const writer = open("m");
  const thinking = { type: "reasoning", text: "Hm." };
  expect(typesOf(advance(writer, [thinking], {}))).toEqual([
    "REASONING_START",
    "REASONING_MESSAGE_START",
    "REASONING_MESSAGE_CONTENT",
  ]);
  const found = { type: "data-found", data: { count: 1 } };
  expect(advance(writer, [thinking, found, text("Yes")], {})).toMatchObject([
    { type: "REASONING_MESSAGE_END" },
    { type: "REASONING_END" },
    { type: "CUSTOM", name: "data-found", value: { count: 1 } },
    { type: "TEXT_MESSAGE_START" },
    { type: "TEXT_MESSAGE_CONTENT" },
  ]);
});

test("writes what didn't change once, however many chunks follow", () => {
  let written = 0;
  const value = { toJSON: () => `written ${++written}` };
  const parts = (words: string): Part[] => [
    call("output-available", { input: value, output: 1 }),
    { type: "data-chart", id: "d", data: value },
    { type: "custom", kind: "k", providerMetadata: value },
    text(words),
  ];
  const writer = open("m");
  expect(advance(writer, parts("I"), { grew: true })).not.toEqual([]);
  const before = written;
  for (const words of ["I s", "I se", "I see"])
    expect(typesOf(advance(writer, parts(words), { grew: true }))).toEqual(["CONTENT"]);
  expect(written).toBe(before);
  // Another value is told, whatever is there at the same place.
  const [first, ...others] = parts("I see");
  const changed = [first!, { ...others[0]!, data: 2 }, ...others.slice(1)];
  expect(advance(writer, changed, { grew: true })).toEqual([
    { type: "CUSTOM", name: "data-chart", value: 2 },
  ]);
});

describe("a reader that was cut off", () => {
  /** An answer as it grows, with parts of each kind, in which calls end out of order. */
  const states = (): Part[][] => {
    const thinking = { type: "reasoning", text: "Hm, well." };
    const first = { ...call("input-available"), toolCallId: "c/1" };
    const second = call("input-streaming", { toolCallId: "c.2" });
    const data = (value: number) => ({ type: "data-note", id: "n", data: value });
    const steps: Part[][] = [
      [{ type: "step-start" }],
      [{ type: "step-start" }, { type: "reasoning", text: "Hm" }],
      [{ type: "step-start" }, thinking],
      [{ type: "step-start" }, thinking, text("Let ")],
      [{ type: "step-start" }, thinking, text("Let me 🚢 see")],
      [{ type: "step-start" }, thinking, text("Let me 🚢 see"), second, first],
    ];
    const open = steps.at(-1)!.slice(0, 3);
    const called = { ...second, state: "input-available" };
    const done = { ...first, state: "output-available", output: { ok: true } };
    steps.push([...open, called, first, data(1)], [...open, called, done, data(1)]);
    steps.push([...open, called, done, data(2), { type: "source-url", url: "u" }, text("It")]);
    steps.push([
      ...open,
      { ...called, state: "output-error", errorText: "no" },
      done,
      data(2),
      { type: "source-url", url: "u" },
      text("It is.", "done"),
    ]);
    return steps;
  };
  const told = (events: readonly AgUiEvent[]) =>
    events.reduce<AgUiEvent[]>((all, event) => {
      const last = all.at(-1);
      const isMore = last && event["delta"] !== undefined && last.type === event.type;
      if (!isMore || last["messageId"] !== event["messageId"]) return [...all, event];
      return [
        ...all.slice(0, -1),
        { ...last, delta: String(last["delta"]) + String(event["delta"]) },
      ];
    }, []);

  test.each(["as it grows", "when it is whole"])(
    "after any event is told what follows it %s, and nothing twice",
    (when) => {
      const all = states();
      const writer = open("m");
      const cuts: { at: number; place: string; before: number }[] = [];
      const events: AgUiEvent[] = [];
      for (const [at, parts] of all.entries()) {
        expect(writer.teller.advance(parts, { grew: true })).toBe(true);
        for (const { event, place } of writer.events.splice(0)) {
          events.push(event);
          cuts.push({ at, place, before: events.length });
        }
      }
      const whole = [...events, ...advance(writer, all.at(-1)!, { whole: true })!];
      expect(cuts.length).toBeGreaterThan(20);
      for (const { at, place, before } of cuts) {
        const again = open("m", place);
        const rest = when === "as it grows" ? all.slice(at) : [];
        const more = rest.flatMap(
          (parts) => advance(again, parts, { grew: false }) ?? [{ type: "-" }],
        );
        more.push(...(advance(again, all.at(-1)!, { whole: true }) ?? [{ type: "-" }]));
        const seen = [...events.slice(0, before), ...more];
        // What has another value now is told as it is now.
        const isOld = (event: AgUiEvent) => event["name"] === "data-note" && event["value"] === 1;
        const kept = (list: AgUiEvent[]) => byPart(list.filter((event) => !isOld(event)));
        expect([place, kept(seen)]).toEqual([place, kept(whole)]);
      }
    },
  );
  /** A result that came meanwhile is told before what comes after it. */
  const byPart = (events: AgUiEvent[]) => {
    const parts = new Map<string, AgUiEvent[]>();
    for (const each of events) {
      const id = String(each["toolCallId"] ?? each["name"] ?? each["messageId"]);
      parts.set(id, [...(parts.get(id) ?? []), each]);
    }
    return new Map([...parts].map(([id, list]) => [id, told(list)]));
  };

  test("waits for an attempt that was made again, and forgets what it doesn't say", () => {
    const writer = open("m");
    writer.teller.advance([{ type: "reasoning", text: "Hm" }, text("Hello")], {});
    const { place } = writer.events.at(-1)!;
    const again = open("m", place);
    expect(advance(again, [{ type: "reasoning", text: "Hm" }], {})).toEqual([]);
    expect(advance(again, [{ type: "reasoning", text: "Hm" }, text("Hel")], {})).toEqual([]);
    const more = [{ type: "reasoning", text: "Hm" }, text("Hello you")];
    expect(advance(again, more, {})).toMatchObject([{ delta: " you" }]);

    const other = open("m", place);
    expect(
      advance(other, [{ type: "reasoning", text: "Ah" }, text("Hello you")], {}),
    ).toBeUndefined();
    expect(close(other)).toEqual([{ type: "TEXT_MESSAGE_END", messageId: "m#1" }]);
    expect(close(other)).toEqual([]);
    const short = open("m", place);
    expect(
      advance(short, [{ type: "reasoning", text: "Hm" }, text("Hel")], { whole: true }),
    ).toBeUndefined();
  });

  test("is told anew where more is unfinished than a place names, and what is open is ended", () => {
    const kept = Array.from({ length: 40 }, (_, at) => ({ type: "data-x", id: `${at}`, data: at }));
    const writer = open("m");
    const parts = [...kept, text("Hel")];
    writer.teller.advance(parts, {});
    const { place } = writer.events.at(-1)!;
    expect(place.length).toBeLessThan(200);
    const again = open("m", place);
    expect(advance(again, parts, {})).toBeUndefined();
    expect(close(again)).toEqual([{ type: "TEXT_MESSAGE_END", messageId: "m#40" }]);
  });

  test.each([
    "",
    "x",
    "-1",
    "1:2",
    "1:0:1::",
    "1:0:1:zz::m",
    "1:0:1::0.t.9.1.0:m",
    "1:0:1::5.t.1.1.0000000000000000:m",
    "1:0:1:::%",
    "1:0:1:::m:n",
  ])("has no place %j", (place) => expect(runPlaceIn(place)).toBeUndefined());
});
