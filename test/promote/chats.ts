import { setTimeout as wait } from "node:timers/promises";
import { type Client, createClient, type SessionEvent } from "../../src/client/index.ts";

/** Sessions in use: one follower each, who keeps everything that it is told. */
export type Chats = {
  readonly ids: readonly string[];
  /** Says something in each session, and returns how many messages were acked. */
  sayInAll(): Promise<number>;
  /** Talks in some of them, one message after the other, until it is stopped. */
  talk(count: number): Talk;
  /** Waits until each follower has what was acked in its session. */
  caughtUp(): Promise<void>;
  /** What followers have seen that they shouldn't have: gaps, repeats, resets, messages that are missing. */
  faults(): readonly string[];
  close(): void;
};

export type Talk = {
  /** The longest time without an ack in one of the sessions, since the last call. */
  gapMs(): number;
  readonly acked: number;
  readonly errors: readonly string[];
  stop(): Promise<void>;
};

/** As many sessions as a connection follows. */
const perConnection = 100;
const atOnce = 20;
const limitMs = 180_000;

/** Makes sessions, each with a member of its own connection, and follows all of them. */
export async function openChats(urls: readonly string[], count: number): Promise<Chats> {
  const ids = Array.from({ length: count }, (_, nth) => `chat-${nth}`);
  const seen = new Map<string, { seqs: number[]; texts: string[]; resets: number }>(
    ids.map((id) => [id, { seqs: [], texts: [], resets: 0 }]),
  );
  const said = new Map<string, string[]>(ids.map((id) => [id, []]));
  const clients: Client[] = [];
  const clientOf = (nth: number) => clients[Math.floor(nth / perConnection)]!;
  const userOf = (nth: number) => `user-${Math.floor(nth / perConnection)}`;
  for (let nth = 0; nth < count; nth += perConnection) {
    clients.push(createClient({ url: urls[clients.length % urls.length]!, user: userOf(nth) }));
  }
  await inTurn(ids, async (sessionId, nth) => {
    await clientOf(nth).sessions.create({ sessionId, users: [userOf(nth)] });
    const found = seen.get(sessionId)!;
    clientOf(nth)
      .session(sessionId)
      .on((event: SessionEvent) => {
        if (event.type === "reset") found.resets++;
        if (event.type !== "entry") return;
        found.seqs.push(event.entry.seq);
        found.texts.push(String(event.entry.parts[0]?.["text"]));
      });
  });
  let words = 0;
  const say = async (nth: number): Promise<void> => {
    const text = `word ${++words}`;
    await clientOf(nth).session(ids[nth]!).send(text);
    said.get(ids[nth]!)!.push(text);
  };
  return {
    ids,
    async sayInAll() {
      await inTurn(ids, (_, nth) => say(nth));
      return ids.length;
    },
    talk(some) {
      let isOver = false;
      let acked = 0;
      const errors: string[] = [];
      let longestMs = 0;
      const lastMs = Array.from({ length: some }, () => performance.now());
      const talking = lastMs.map(async (_, nth) => {
        while (!isOver) {
          await say(nth).catch((error: unknown) => errors.push(String(error)));
          longestMs = Math.max(longestMs, performance.now() - lastMs[nth]!);
          lastMs[nth] = performance.now();
          acked++;
          await wait(20);
        }
      });
      return {
        gapMs() {
          const gapMs = longestMs;
          longestMs = 0;
          return gapMs;
        },
        get acked() {
          return acked;
        },
        errors,
        async stop() {
          isOver = true;
          await Promise.all(talking);
        },
      };
    },
    async caughtUp() {
      const endMs = performance.now() + limitMs;
      const isBehind = (id: string) => seen.get(id)!.seqs.length < said.get(id)!.length;
      while (ids.some(isBehind) && performance.now() < endMs) await wait(50);
    },
    faults() {
      return ids.flatMap((id) => {
        const { seqs, texts, resets } = seen.get(id)!;
        const words = said.get(id)!;
        const isWhole = seqs.every((seq, nth) => seq === nth + 1);
        const isSame = JSON.stringify(texts.toSorted()) === JSON.stringify(words.toSorted());
        return [
          ...(resets > 0 ? [`${id} was reset`] : []),
          ...(isWhole ? [] : [`${id} has a gap or a repeat: ${seqs.join(" ")}`]),
          ...(isSame ? [] : [`${id} has ${texts.length} messages, and ${words.length} were acked`]),
        ];
      });
    },
    close() {
      for (const client of clients) client.close();
    },
  };
}

async function inTurn<Item>(
  items: readonly Item[],
  each: (item: Item, nth: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  const work = async () => {
    while (next < items.length) {
      const nth = next++;
      await each(items[nth]!, nth);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
}
