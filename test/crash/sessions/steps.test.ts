import { describe, expect, test } from "vitest";
import { storeKinds } from "../harness.ts";
import { until } from "../until.ts";
import { createSessionFleet } from "./harness.ts";
import { missedWhenKilled } from "./steered.ts";

describe.each(storeKinds)("a turn in steps, on %s", (on) => {
  /** Two servers, and a turn that has searched and is about to order on one of them. */
  const cast = async (config: object = missedWhenKilled) => {
    const fleet = await createSessionFleet({ on });
    await Promise.all([fleet.startServer({ config }), fleet.startServer({ config })]);
    const session = "orders";
    await fleet.open(session, "stepping");
    const ada = fleet.client("ada", { silentMs: Infinity });
    ada.follow(session);
    await ada.say(session, "book");
    const steps = () =>
      fleet
        .calls(session)
        .filter(({ step }) => step !== undefined)
        .map(({ event, step, attempt }) => `${event} ${step} ${attempt}`);
    const begins = (step: string, attempt: number) =>
      until(`${step} begins in attempt ${attempt}`, () =>
        steps().includes(`step begun ${step} ${attempt}`),
      );
    const seen = (text: string) =>
      until(`${text} is seen`, () => ada.answers(session).at(-1)?.text.includes(text));
    await begins("order", 1);
    await seen("search by attempt 1. ");
    const runner = fleet.serverOf(fleet.calls(session)[0]!.where)!;
    const open = (gate: string) => {
      for (const each of fleet.servers) each.open(`${gate}-book`);
    };
    const stored = async () =>
      (await fleet.stored()).find((each) => each.session === session)!.entries.slice(1);
    const ended = () => until("it is stored", () => ada.entries(session).length === 2);
    const journal = async () =>
      (await fleet.sql("select key from flotilla_step_journal order by seq")).map(
        (row) => row["key"] as string,
      );
    return { fleet, ada, session, steps, begins, seen, runner, open, stored, ended, journal };
  };

  const begun = (steps: readonly string[], step: string) =>
    steps.filter((each) => each.startsWith(`step begun ${step} `)).length;

  test("goes on behind its last stored step when its pod is killed within the next, and again before its end", async () => {
    const { fleet, ada, session, steps, begins, seen, runner, open, stored, ended, journal } =
      await cast();
    expect(await journal()).toEqual(["search"]);
    await runner.kill();
    await begins("order", 2);
    open("order");
    await seen("order by attempt 2. ");
    expect(await journal()).toEqual(["search", "order"]);

    const second = fleet.serverOf(fleet.calls(session).at(-1)!.where)!;
    await fleet.startServer({ config: missedWhenKilled });
    await second.kill();
    open("pause");
    open("ship");
    await ended();
    expect(begun(steps(), "search")).toBe(1);
    expect(begun(steps(), "order")).toBe(2);
    expect(begun(steps(), "ship")).toBe(1);
    const text = "search by attempt 1. order by attempt 2. ship by attempt 3.  re book";
    expect(await stored()).toMatchObject([{ text, outcome: "completed" }]);
    expect(await journal()).toEqual([]);
    // What was stored is in all that any page has seen of later attempts.
    for (const answer of ada.answers(session))
      expect(answer.text).toContain("search by attempt 1. ");
  });

  test("is handed over at its next step when its pod is told to stop", async () => {
    // None is killed, so that none has to be found dead.
    const config = { deadAfterMs: 60_000 };
    const { fleet, ada, session, steps, begins, runner, open, stored, ended } = await cast(config);
    const stopping = runner.terminate();
    open("pause");
    open("ship");
    // It is told before the step that runs may end.
    await until("it is told", () =>
      fleet.logged("pod stopping").some(({ pod }) => pod === runner.podId),
    );
    runner.open("order-book");
    await stopping;
    await begins("ship", 2);
    await ended();
    expect(steps()).toEqual([
      "step begun search 1",
      "step ended search 1",
      "step begun order 1",
      "step ended order 1",
      "step begun ship 2",
      "step ended ship 2",
    ]);
    const text = "search by attempt 1. order by attempt 1. ship by attempt 2.  re book";
    expect(await stored()).toMatchObject([{ text, outcome: "completed" }]);
    for (const answer of ada.answers(session))
      expect(answer.text).toContain("search by attempt 1. ");
  });
});
