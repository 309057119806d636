import type { Clock } from "../../base/clock.ts";
import type { BeatAnswer, BeatChannel } from "../../bus/nats/beat-channel.ts";
import type { Beats } from "../log/beats/beats.ts";
import type { Presence } from "../log/journal.ts";

/** Channels of several pods in one process, with what can happen on their way. */
export type MemoryChannels = {
  connect(): MemoryChannel;
};

export type MemoryChannel = BeatChannel & {
  /** The process has ended, or lost its servers: nothing leaves or reaches it, and it is absent. */
  isCut: boolean;
  /** Its beats are lost. */
  isMute: boolean;
  /** Beats don't reach it. */
  isDeaf: boolean;
  /** What is asked of it gets no answer, although it is there. */
  isStuck: boolean;
  /** How late what it sends arrives. */
  delayMs: number;
  /** How often each of its beats arrives. */
  copies: number;
  /** How many questions have reached it. */
  readonly questions: number;
};

export function createMemoryChannels({ clock }: { clock: Clock }): MemoryChannels {
  const all = new Set<Listener>();
  type Listener = {
    readonly channel: MemoryChannel;
    readonly onMessage: (data: Uint8Array) => void;
  };
  type Serving = { readonly channel: MemoryChannel; readonly answer: () => Uint8Array };
  const serving = new Map<string, Serving>();
  const questions = new Map<MemoryChannel, number>();

  const later = (delayMs: number, act: () => void): void => {
    if (delayMs === 0) queueMicrotask(act);
    else clock.after(delayMs, act);
  };

  return {
    connect() {
      const channel: MemoryChannel = {
        isCut: false,
        isMute: false,
        isDeaf: false,
        isStuck: false,
        delayMs: 0,
        copies: 1,
        get questions() {
          return questions.get(channel) ?? 0;
        },
        publish(data) {
          if (channel.isCut || channel.isMute) return;
          const sent = data.slice();
          for (let copy = 0; copy < channel.copies; copy++) {
            later(channel.delayMs, () => {
              for (const { channel: to, onMessage } of all) {
                if (!to.isCut && !to.isDeaf) onMessage(sent);
              }
            });
          }
        },
        subscribe(onMessage) {
          const listener = { channel, onMessage };
          all.add(listener);
          return () => void all.delete(listener);
        },
        ask(podId, { limitMs }) {
          const { promise, resolve } = Promise.withResolvers<BeatAnswer>();
          const cancel = clock.after(limitMs, () => resolve({ type: "silent" }));
          const settle = (answer: BeatAnswer) => {
            cancel();
            resolve(answer);
          };
          if (channel.isCut) return promise;
          later(channel.delayMs, () => {
            const found = serving.get(podId);
            if (!found || found.channel.isCut) return settle({ type: "absent" });
            questions.set(found.channel, found.channel.questions + 1);
            if (found.channel.isStuck) return;
            const data = found.answer();
            later(found.channel.delayMs, () => settle({ type: "answered", data }));
          });
          return promise;
        },
        serve(podId, answer) {
          serving.set(podId, { channel, answer });
          return () => void serving.delete(podId);
        },
      };
      return channel;
    },
  };
}

/** The presence of several pods, each with beats of its own, as the suite of presence asks for it. */
export function presenceOfPods(start: (podId: string) => Beats): Presence & { close(): void } {
  const pods = new Map<string, Beats>();
  return {
    async beat(podId, heads) {
      const beats = pods.get(podId) ?? start(podId);
      pods.set(podId, beats);
      return beats.beat(podId, heads);
    },
    close() {
      for (const beats of pods.values()) beats.close();
    },
  };
}
