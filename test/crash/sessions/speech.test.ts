import { describe, expect, test } from "vitest";
import { storeKinds } from "../harness.ts";
import { until } from "../until.ts";
import { createSessionFleet } from "./harness.ts";
import { speechWords } from "./speech-words.ts";
import { missedWhenKilled } from "./steered.ts";

const config = missedWhenKilled;

describe.each(storeKinds)("a call to a model, on %s", (on) => {
  test("goes on with what it had said, though its pod is killed within it again and again", async () => {
    const fleet = await createSessionFleet({ on });
    await Promise.all([fleet.startServer({ config }), fleet.startServer({ config })]);
    const session = "speech";
    await fleet.open(session, "speaking");
    const ada = fleet.client("ada", { silentMs: Infinity });
    ada.follow(session);
    await ada.say(session, "speak");

    const killAfter = async (word: string) => {
      await until(`${word} is seen`, () => ada.answers(session).at(-1)?.text.includes(word));
      await until(`${word} is kept`, async () => {
        const rows = await fleet.sql("select body from flotilla_turn_checkpoint");
        return rows.some((row) => String(row["body"]).includes(word));
      });
      await fleet.serverOf(fleet.calls(session).at(-1)!.where)!.kill();
      await fleet.startServer({ config });
    };
    await killAfter("1-150 ");
    await killAfter("2-170 ");
    await until("it is stored", () => ada.entries(session).length === 2);

    const attemptOf = (word: number) => (word <= 150 ? 1 : word <= 170 ? 2 : 3);
    const words = Array.from({ length: speechWords }, (_, at) => `${attemptOf(at + 1)}-${at + 1} `);
    const stored = (await fleet.stored()).find((each) => each.session === session)!;
    expect(stored.entries.slice(1)).toMatchObject([{ text: words.join(""), outcome: "completed" }]);
    expect(fleet.calls(session).map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
    expect(await fleet.sql("select body from flotilla_turn_checkpoint")).toEqual([]);
    // Nothing of what was kept is missing in what any page has seen of later attempts.
    const later = ada.answers(session).filter(({ attempt }) => attempt > 1);
    expect(later.length).toBeGreaterThan(0);
    for (const { text } of later) expect(text).toContain(words.slice(0, 150).join(""));
  });
});
