/** Beats between simulated pods: lost, late, doubled, and cut off. */
import type { Clock } from "../../../src/base/clock.ts";
import { between, fraction, type Random } from "../../../src/base/random.ts";
import type { BeatAnswer, BeatChannel } from "../../../src/bus/nats/beat-channel.ts";

export type BeatTroubles = {
  readonly lost: number;
  readonly doubled: number;
  /** How long a message takes at most. */
  readonly delayMs: number;
};

/** The end of a pod. */
export type ChannelEnd = {
  /** Whether it reaches no server now. */
  isCut(): boolean;
  /** Lets something happen in its process, once that isn't paused. */
  run(act: () => void): void;
};

export type Channels = {
  troubles: BeatTroubles;
  connect(end: ChannelEnd): BeatChannel;
};

export function createChannels({
  clock,
  random,
  count,
}: {
  clock: Clock;
  random: Random;
  count: (what: string) => void;
}): Channels {
  const listeners = new Set<{ end: ChannelEnd; onMessage: (data: Uint8Array) => void }>();
  const serving = new Map<string, { end: ChannelEnd; answer: () => Uint8Array }>();
  const happens = (likely: number, what: string): boolean => {
    if (likely === 0 || fraction(random) >= likely) return false;
    count(what);
    return true;
  };
  const way = (act: () => void): void => {
    const { lost, doubled, delayMs } = channels.troubles;
    if (happens(lost, "fault: beat lost")) return;
    clock.after(between(random, 0, delayMs), act);
    if (happens(doubled, "fault: beat doubled")) clock.after(between(random, 0, delayMs * 4), act);
  };
  const channels: Channels = {
    troubles: { lost: 0, doubled: 0, delayMs: 2 },
    connect: (end) => ({
      publish(data) {
        if (end.isCut()) return;
        for (const to of listeners) {
          way(() => {
            if (!to.end.isCut() && listeners.has(to)) to.end.run(() => to.onMessage(data));
          });
        }
      },
      subscribe(onMessage) {
        const listener = { end, onMessage };
        listeners.add(listener);
        return () => void listeners.delete(listener);
      },
      ask(podId, { limitMs }) {
        const { promise, resolve } = Promise.withResolvers<BeatAnswer>();
        clock.after(limitMs, () => end.run(() => resolve({ type: "silent" })));
        const settle = (answer: BeatAnswer) => end.run(() => resolve(answer));
        way(() => {
          if (end.isCut()) return;
          const found = serving.get(podId);
          if (!found || found.end.isCut()) {
            count("absent");
            return settle({ type: "absent" });
          }
          found.end.run(() => {
            const data = found.answer();
            way(() => settle({ type: "answered", data }));
          });
        });
        return promise;
      },
      serve(podId, answer) {
        serving.set(podId, { end, answer });
        return () => void serving.delete(podId);
      },
    }),
  };
  return channels;
}
