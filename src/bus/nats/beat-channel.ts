import crypto from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { type NatsConnection, subjectOf } from "./connection.ts";

/** What beats of pods are sent by. Messages may be lost, late or doubled. */
export type BeatChannel = {
  /** Sends to all that subscribe, this process among them. What can't be sent is lost. */
  publish(data: Uint8Array): void;
  /** The callback must not throw. */
  subscribe(onMessage: (data: Uint8Array) => void): () => void;
  /** Asks a pod for what it serves. Never rejects. */
  ask(podId: string, options: { limitMs: number }): Promise<BeatAnswer>;
  /** Answers other processes that ask this pod. The callback must not throw. */
  serve(podId: string, answer: () => Uint8Array): () => void;
};

export type BeatAnswer =
  | { readonly type: "answered"; readonly data: Uint8Array }
  /** No process listens there: it has ended, or its connection is being made again. */
  | { readonly type: "absent" }
  /** No answer came in time, or the question couldn't be sent. */
  | { readonly type: "silent" };

const replyForm = /^[0-9a-f]{32}\.\d{1,15}$/;

/** Beats over core NATS, which keeps nothing and tells at once where no process listens. */
export function createBeatChannel({
  nats,
  clock,
  origin,
}: {
  nats: NatsConnection;
  clock: Clock;
  /** An id of this process's own, new with every start. */
  origin: string;
}): BeatChannel {
  const { namespace } = nats;
  const beats = subjectOf(namespace, "beat");
  const questions = (podId: string) => subjectOf(namespace, "beat", "of", tokenOf(podId));
  const answers = (reply: string) => subjectOf(namespace, "beat", "answer", reply);
  let lastQuestion = 0;

  return {
    publish: (data) => void nats.publish(beats, [data]),
    subscribe: (onMessage) => nats.subscribe(beats, ({ data }) => onMessage(data)),
    ask(podId, { limitMs }) {
      const { promise, resolve } = Promise.withResolvers<BeatAnswer>();
      const reply = `${tokenOf(origin)}.${++lastQuestion}`;
      const settle = (answer: BeatAnswer) => {
        cancel();
        stop();
        resolve(answer);
      };
      const stop = nats.subscribe(answers(reply), ({ data, isNoResponders }) =>
        settle(isNoResponders ? { type: "absent" } : { type: "answered", data }),
      );
      const cancel = clock.after(limitMs, () => settle({ type: "silent" }));
      const question = Buffer.from(reply);
      const sent = nats.publish(questions(podId), [question], { reply: answers(reply) });
      if (sent !== "sent") settle({ type: "silent" });
      return promise;
    },
    serve: (podId, answer) =>
      nats.subscribe(questions(podId), ({ data }) => {
        const reply = Buffer.from(data.subarray(0, 64)).toString();
        if (replyForm.test(reply)) nats.publish(answers(reply), [answer()]);
      }),
  };
}

/** Ids are Flotilla's own; a subject holds them as a hash, so that any id will do. */
function tokenOf(id: string): string {
  return crypto.hash("sha256", id, "hex").slice(0, 32);
}
