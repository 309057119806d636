import type { Bus } from "../../bus/bus.ts";
import type { LiveChunks } from "../runner.ts";
import type { Feed } from "./feed.ts";
import { asJson, fieldsOf, listOf, readLive, readReach, topics } from "./remote-protocol.ts";
import { turnOf, type View } from "./view.ts";

/** The gateway's side of live answers: those that runners elsewhere make. */
export type Listening = {
  /** The answer so far; from now on its runner tells of what comes after. */
  ask(address: string, sessionId: string): Promise<LiveChunks | undefined>;
  /** Says to every runner that it is still listened to, and sees whether all that it said was heard. */
  tick(feeds: Iterable<Feed>): void;
  close(): void;
};

const answerMs = 1_000;

export function createListening(
  bus: Bus,
  feedOf: (sessionId: string) => Feed | undefined,
): Listening {
  const unserve = bus.serve(topics.chunks, (body) => {
    for (const live of listOf(fieldsOf(body)["live"], readLive)) {
      feedOf(live.sessionId)?.chunks(live);
    }
    return null;
  });

  const request = async (address: string, sessions: object[]) => {
    const options = { timeoutMs: answerMs };
    const answer = await bus.request(address, topics.listen, asJson({ sessions }), options);
    return fieldsOf(answer)["sessions"];
  };

  const renew = async (address: string, feeds: readonly Feed[]): Promise<void> => {
    const answers = await request(
      address,
      feeds.map(({ sessionId }) => ({ sessionId })),
    );
    for (const reach of listOf(answers, readReach)) feedOf(reach.sessionId)?.heardOf(reach);
  };

  return {
    async ask(address, sessionId) {
      const answers = await request(address, [{ sessionId, snapshot: true }]);
      return listOf(answers, (each) => readLive(fieldsOf(each)["live"]))[0];
    },
    tick(feeds) {
      const byRunner = new Map<string, Feed[]>();
      for (const feed of feeds) {
        const address = feed.subscribers > 0 && feed.view && runnerElsewhere(feed.view, bus);
        if (!address) continue;
        const there = byRunner.get(address);
        if (there) there.push(feed);
        else byRunner.set(address, [feed]);
      }
      // Where none answers, the next second asks again, or the owner names another runner.
      for (const [address, theirs] of byRunner) renew(address, theirs).catch(() => {});
    },
    close: unserve,
  };
}

/** The address of the runner of the turn that goes on, if that isn't here. */
export function runnerElsewhere(view: View, { address }: Pick<Bus, "address">): string | undefined {
  return turnOf(view) && view.runner !== null && view.runner !== address ? view.runner : undefined;
}
