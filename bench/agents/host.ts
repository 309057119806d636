import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { generateText, isStepCount, tool } from "ai";
import { z } from "zod";
import { hasCode, transientCodes } from "../../src/base/errors.ts";
import { silentLogger } from "../../src/base/log.ts";
import { between, seededRandom } from "../../src/base/random.ts";
import { durable } from "../../src/durable/index.ts";
import { type Chat, type Entry, type Pod, startPod, task } from "../../src/index.ts";
import { openStore } from "../../src/store/open.ts";
import { sql } from "../../src/store/sql.ts";
import { simulatedModel } from "../../src/testing/simulated-model.ts";
import { playRole } from "../roles.ts";
import { median } from "../statistics.ts";
import { countUsage, type Usage } from "../usage.ts";
import { callsOfTurn, clerk } from "./clerk.ts";

/** One pod with the same agent twice: with `durable` and without. */
export type HostParams = { readonly url: string } & (
  | { readonly work: "alone"; readonly warmUps: number; readonly turns: number }
  | ({ readonly work: "load"; readonly durable: boolean } & LoadSize)
  | { readonly work: "bytes"; readonly calls: number; readonly promptTokens: number }
);

export type LoadSize = {
  /** How many turns are under way at any moment. */
  readonly atOnce: number;
  readonly warmMs: number;
  readonly runMs: number;
};

/** Milliseconds of a turn, the median of each agent. */
export type Alone = { readonly durableMs: number; readonly plainMs: number };
export type Loaded = Usage & { readonly turns: number };
export type Stored = { readonly storedBytes: number; readonly saidBytes: number };

const charsPerToken = 4;
const charsPerAnswer = 1_000;

type Of<Work extends HostParams["work"]> = HostParams & { readonly work: Work };

playRole(
  async (params: HostParams): Promise<Alone | Loaded | Stored> => {
    if (params.work === "bytes") return bytes(params);
    let calls = 0;
    const onCall = () => void calls++;
    const use = [
      clerk({ name: "durable", durable: true, onCall }),
      clerk({ name: "plain", durable: false, onCall }),
    ];
    await using pod = await startPod({
      store: params.url,
      use,
      log: silentLogger,
      dataDir: false,
    });
    return await (params.work === "alone" ? alone(pod, params) : load(pod, params, () => calls));
  },
  { ends: "at once" },
);

/** One turn after the other, by turns with `durable` and without. */
async function alone(pod: Pod, { warmUps, turns }: Of<"alone">): Promise<Alone> {
  const chats = { durable: await open(pod, "durable"), plain: await open(pod, "plain") };
  const times = { durable: [] as number[], plain: [] as number[] };
  for (let at = 0; at < warmUps + turns; at++) {
    const order = at % 2 === 0 ? (["durable", "plain"] as const) : (["plain", "durable"] as const);
    for (const name of order) {
      const startedMs = performance.now();
      await take(chats[name]);
      if (at >= warmUps) times[name].push(performance.now() - startedMs);
    }
  }
  return { durableMs: median(times.durable), plainMs: median(times.plain) };
}

/** So many sessions, each asking again when its last question is answered. A call counts as its part of a turn. */
async function load(
  pod: Pod,
  { durable: isDurable, atOnce, warmMs, runMs }: Of<"load">,
  calls: () => number,
): Promise<Loaded> {
  let over = false;
  const lane = async () => {
    const chat = await open(pod, isDurable ? "durable" : "plain");
    while (!over) await take(chat);
  };
  const lanes = Promise.all(Array.from({ length: atOnce }, lane));
  const during = (ms: number) => Promise.race([wait(ms), lanes]);
  await during(warmMs);
  // Where it takes long to start them all, the beginning isn't what is asked for either.
  while (calls() < atOnce * callsOfTurn) await during(10);
  const before = calls();
  const used = countUsage();
  await during(runMs);
  const loaded = { turns: (calls() - before) / callsOfTurn, ...used() };
  over = true;
  await lanes;
  return loaded;
}

function open(pod: Pod, name: string): Promise<Chat> {
  return pod.sessions.create(name, { user: "ada" });
}

async function take(chat: Chat): Promise<void> {
  const id = randomUUID();
  // A hundred turns of models without latency leave a question unanswered for long. It counts once.
  const ask = (): Promise<Entry> =>
    chat.ask("go", { id }).catch((error: unknown) => {
      if (hasCode(error, "unknown_outcome", "timeout", ...transientCodes)) return ask();
      throw error;
    });
  const { outcome } = await ask();
  if (outcome !== "completed") throw new Error(`an answer has ended as ${outcome}`);
}

/** What the journal of an agent takes, beside what its model and its tools have said. */
async function bytes({ url, calls, promptTokens }: Of<"bytes">): Promise<Stored> {
  const random = seededRandom(1);
  // Databases compress what repeats itself, and no model does that.
  const text = () => {
    let words = "";
    while (words.length < charsPerAnswer) {
      words += `${between(random, 0, 2 ** 31).toString(36)} `;
    }
    return words.slice(0, charsPerAnswer);
  };
  let saidBytes = 0;
  const said = (what: unknown) => void (saidBytes += Buffer.byteLength(JSON.stringify(what)));
  const model = simulatedModel({
    answers({ toolResults }) {
      const answer = { text: text(), tools: [["look", { nth: toolResults + 1 }]] as const };
      said(answer);
      return answer;
    },
  });
  const look = tool({
    inputSchema: z.object({ nth: z.number() }),
    execute: async () => {
      const output = text();
      said(output);
      return output;
    },
  });
  const settings = { model, tools: { look }, stopWhen: isStepCount(calls) };
  const system = "long ".repeat((promptTokens * charsPerToken) / "long ".length);
  const long = task<null, null, void>("long", {}, async (context) => {
    await generateText({ ...durable(context, settings), system, prompt: "go" });
  });
  await using pod = await startPod({ store: url, use: [long], log: silentLogger, dataDir: false });
  await pod.waitFor(await pod.enqueue(long, null));
  const store = await openStore(url);
  const size = url.startsWith("sqlite:")
    ? sql`select sum(pgsize) as bytes from dbstat where name like '%step_journal%'`
    : sql`select pg_total_relation_size('flotilla.step_journal') as bytes`;
  const [row] = await store.read(size);
  await store.close();
  return { storedBytes: Number(row!["bytes"]), saidBytes };
}
