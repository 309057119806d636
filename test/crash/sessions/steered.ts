import { expect } from "vitest";
import { until } from "../until.ts";
import type { ServerProcess, SessionFleet } from "./fleet.ts";

/** What is killed is missed at once. What is merely late for seconds isn't: that would be one more attempt. */
export const missedWhenKilled = { deadAfterMs: 10_000 };

type Steered = {
  readonly fleet: SessionFleet;
  readonly start: () => Promise<ServerProcess>;
  /** Makes a session of the agent `steered`. */
  readonly open: (session: string) => Promise<void>;
};

/**
 * A person says something in the first step of an answer and in its second. The pod that makes it is killed
 * once it has heard the first, and the next one before it hears the second.
 */
export async function expectHeardOnce({ fleet, start, open }: Steered): Promise<void> {
  await Promise.all([start(), start()]);
  const session = "trip";
  await open(session);
  const ada = fleet.client("ada", { silentMs: Infinity });
  ada.follow(session);
  await ada.say(session, "go");
  const steps = () =>
    fleet
      .calls(session)
      .filter(({ event }) => event === "step begun")
      .map(({ step, attempt }) => `${step} ${attempt}`);
  const begins = (step: string, attempt: number) =>
    until(`${step} begins in attempt ${attempt}`, () => steps().includes(`${step} ${attempt}`));
  const pass = (step: string) => {
    for (const each of fleet.servers) each.open(`${step}-go`);
  };
  const killRunner = async () => {
    await fleet.serverOf(fleet.calls(session).at(-1)!.where)!.kill();
  };

  await begins("one", 1);
  await ada.say(session, "by-train");
  pass("one");
  await begins("two", 1);
  await killRunner();
  await start();
  await begins("two", 2);
  await ada.say(session, "and-cheap");
  await killRunner();
  await start();
  await begins("two", 3);
  pass("two");
  await begins("three", 3);
  pass("three");
  await until("it is stored", () => ada.entries(session).length === 4);

  const one =
    "one by attempt 1. (by-train) two by attempt 3. (and-cheap) three by attempt 3.  re go";
  const entries = await until("the database has it", async () => {
    const stored = (await fleet.stored()).find((each) => each.session === session);
    return stored?.entries.length === 4 ? stored.entries : undefined;
  });
  expect(entries.map(({ text }) => text)).toEqual(["go", "by-train", "and-cheap", one]);
  expect(entries.at(-1)).toMatchObject({ outcome: "completed" });
  expect(steps()).toEqual(["one 1", "two 1", "two 2", "two 3", "three 3"]);
}
