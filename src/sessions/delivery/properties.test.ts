import fc from "fast-check";
import { expect, test } from "vitest";
import { eventLoopTurns } from "../../base/contract/movable-clock.ts";
import type { Bus } from "../../bus/bus.ts";
import { type Header, sessionStateOf, permitWaitsOf } from "../conversation/header.ts";
import {
  type Client,
  createHubHarness,
  joinAs,
  type HubHarness,
  settled,
  upTo,
} from "../contract/delivery-harness.ts";

const pods = ["owner", "next", "runner", "second", "gateway"] as const;

const pod = fc.constantFrom(...pods);
const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ type: fc.constant("say"), count: fc.integer({ min: 1, max: 3 }) }),
  },
  { weight: 3, arbitrary: fc.record({ type: fc.constant("turn"), pod }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant("finish") }) },
  { weight: 2, arbitrary: fc.record({ type: fc.constant("permit") }) },
  {
    weight: 5,
    arbitrary: fc.record({ type: fc.constant("produce"), count: fc.integer({ min: 1, max: 3 }) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ type: fc.constant("prepare"), count: fc.integer({ min: 1, max: 3 }) }),
  },
  { weight: 2, arbitrary: fc.record({ type: fc.constant("flush") }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant("produceLate") }) },
  { weight: 4, arbitrary: fc.record({ type: fc.constant("join"), pod, back: fc.nat(6) }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant("leave"), which: fc.nat(9) }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant("own"), pod, isSeen: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant("die") }) },
  { weight: 1, arbitrary: fc.record({ type: fc.constant("see") }) },
  { weight: 3, arbitrary: fc.record({ type: fc.constant("wait"), ms: fc.nat(2_500) }) },
  {
    weight: 4,
    arbitrary: fc.record({ type: fc.constant("turns"), count: fc.integer({ min: 1, max: 4 }) }),
  },
  { weight: 2, arbitrary: fc.record({ type: fc.constant("mail") }) },
);
const fate = fc.constantFrom("now", "now", "now", "later", "lost", "twice");

test("every client gets every entry once and in order, and the answer as its runner made it, whatever becomes of envelopes and owners", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 5, maxLength: 60 }),
      fc.array(fate, { minLength: 1, maxLength: 40 }),
      fc.boolean(),
      async (steps, fates, isLoaded) => {
        const { scene, weather } = await scenedIn(fates);
        scene.isLoaded = isLoaded;
        const told = await play(scene, steps, weather);
        weather.clear();
        for (const at of pods) scene.runner(at).flush();
        if (scene.owner === undefined) scene.own("owner");
        scene.seenOwner = scene.owner;
        await scene.clock.advance(12_000);
        await settled();
        for (const each of told) judge(scene, each);
        await scene.close();
        expect(scene.clock.timers).toBe(0);
      },
    ),
    { numRuns: 300 },
  );
}, 240_000);

type Told = { readonly client: Client; readonly place: number; left: boolean };
type Step = typeof step extends fc.Arbitrary<infer Found> ? Found : never;

async function play(scene: HubHarness, steps: readonly Step[], weather: Weather): Promise<Told[]> {
  const told: Told[] = [];
  let before: Header | undefined;
  await scene.commit("s", { say: 1 });
  for (const each of steps) {
    const header = scene.header("s");
    const isOwned = scene.owner !== undefined;
    if (each.type === "say" && isOwned) await scene.commit("s", { say: each.count });
    if (each.type === "turn" && isOwned) {
      const attempt = (header.work?.attempt ?? 0) + 1;
      before = header;
      await scene.commit("s", { turn: { attempt, runner: each.pod } });
    }
    if (each.type === "finish" && isOwned) await scene.commit("s", { turn: null });
    if (each.type === "permit" && isOwned && header.work?.type === "turn") {
      const { attempt } = header.work;
      await scene.commit("s", {
        turn: { waits: { attempt, count: permitWaitsOf(header.work) + 1 } },
      });
    }
    if (each.type === "produce" && header.work) {
      scene.runner(header.work.runner!).produce(header, each.count);
    }
    if (each.type === "prepare" && header.work) {
      scene.runner(header.work.runner!).prepare(header, each.count);
    }
    if (each.type === "flush") for (const at of pods) scene.runner(at).flush();
    if (each.type === "produceLate" && before?.work && before.work.runner !== header.work?.runner) {
      scene.runner(before.work.runner!).produce(before, 1);
    }
    if (each.type === "join") {
      const place = Math.max(0, header.lastSeq - each.back);
      const client = joinAs(scene.hub(each.pod), "s", { lastSeq: place });
      told.push({ client, place, left: false });
    }
    if (each.type === "leave" && told[each.which]) {
      told[each.which]!.left = true;
      told[each.which]!.client.joined.leave();
    }
    if (each.type === "own") {
      scene.own(each.pod);
      if (each.isSeen) scene.seenOwner = each.pod;
    }
    if (each.type === "die" && isOwned) {
      // The owner has stored something, and no gateway learns of it.
      await scene.store("s", { say: 1 });
      scene.own(undefined);
    }
    if (each.type === "see") scene.seenOwner = scene.owner;
    if (each.type === "wait") await scene.clock.advance(each.ms);
    if (each.type === "turns") await eventLoopTurns(each.count);
    if (each.type === "mail") weather.bring();
  }
  return told;
}

function judge(scene: HubHarness, { client, place, left }: Told): void {
  const header = scene.header("s");
  expect(client.failed).toBeUndefined();
  if (left) return;
  expect(client.seqs).toEqual(upTo(header.lastSeq, place + 1));
  expect(client.state).toBe(JSON.stringify(sessionStateOf(header)));
  if (!header.work) return;
  const { epoch, attempt, runner } = header.work;
  const made = scene.runner(runner!).text("s");
  if (!made.startsWith(`${epoch}.${attempt}.`)) return;
  expect(client.answer).toMatchObject({ epoch, attempt, text: made });
}

type Weather = { bring(): void; clear(): void };

/** A harness whose envelopes have these fates, one after the other and from the start again. */
async function scenedIn(
  fates: readonly string[],
): Promise<{ scene: HubHarness; weather: Weather }> {
  let number = 0;
  let isClear = false;
  let late: (() => void)[] = [];
  const next = () => (isClear ? "now" : fates[number++ % fates.length]);
  const bring = () => {
    const all = late;
    late = [];
    for (const arrive of all) arrive();
  };
  const between = (bus: Bus): Bus => ({
    ...bus,
    serve: (topic, handle) =>
      bus.serve(topic, (body, from) => {
        if (next() === "twice") late.push(() => void handle(body, from));
        return handle(body, from);
      }),
  });
  const scene = await createHubHarness({
    limits: { pageEntries: 3, ringBytes: 600, lingerMs: 1_000 },
    between,
    carry(_envelope, arrive) {
      const what = next();
      if (what === "lost") return "lost";
      if (what === "later") late.push(arrive);
      else queueMicrotask(arrive);
      return undefined;
    },
  });
  return {
    scene,
    weather: {
      bring,
      clear() {
        isClear = true;
        bring();
      },
    },
  };
}
