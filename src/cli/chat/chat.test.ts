import { expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { uuidv7 } from "../../base/ids.ts";
import { seededRandom } from "../../base/random.ts";
import type { Person } from "../../protocol/frames.ts";
import type { SessionView } from "../../sessions/service.ts";
import { type ChatService, startTerminalChat } from "./chat.ts";
import { createTranscript } from "./transcript.ts";

test("who else is there is shown between answers, and the user is there until it leaves", async () => {
  const clock = movableClock();
  const random = seededRandom(1);
  const lines: string[] = [];
  let sink: Parameters<ChatService["join"]>[3];
  let onPeople: ((people: readonly Person[]) => void) | undefined;
  let attended = 0;
  const service = {
    join(_: string, __: string, ___: object, to: typeof sink) {
      sink = to;
      return { ready: Promise.resolve(), leave() {} };
    },
    attend(_: string, __: string, ___: string, to: typeof onPeople) {
      attended++;
      onPeople = to;
      return () => {
        attended--;
      };
    },
  } as unknown as ChatService;
  const output = { line: (text: string) => void lines.push(text), more() {}, end() {} };
  const chat = startTerminalChat({
    service,
    session: { tenant: "t", sessionId: "s" } as SessionView,
    user: "ada",
    transcript: createTranscript({ output, form: "live" }),
    clock,
    random,
    ids: uuidv7(clock, random),
    onEntry() {},
    hasPeople: true,
  });
  const joined = {
    type: "joined",
    incarnation: "i",
    lastSeq: 0,
    state: { state: "idle" },
  } as const;
  sink!.push(joined);
  const people = [
    { user: "ada", typing: false },
    { user: "eve", typing: true },
  ];
  onPeople!(people);
  expect(lines).toEqual(["(here: ada, eve)", "(eve writing…)"]);
  const turn = { state: "answering", agent: "a", messageId: "m", epoch: 1, attempt: 1, upToSeq: 1 };
  sink!.push({ type: "state", state: turn } as never);
  onPeople!([{ user: "ada", typing: false }]);
  expect(lines).toHaveLength(2);
  sink!.push({ type: "state", state: { state: "idle" } } as never);
  expect(lines.at(-1)).toBe("(here: ada)");
  // A connection that was lost is another one to be there by.
  sink!.push(joined);
  expect(attended).toBe(1);
  chat.leave();
  expect(attended).toBe(0);
  await chat.ended;
});
