import type { Clock } from "../../base/clock.ts";
import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { Json } from "../../base/json.ts";
import type { Bus } from "../../bus/bus.ts";
import { readMetadata } from "../../pods/pods.ts";
import type { StreamLog } from "../../sessions/log/jetstream/log.ts";
import {
  type PlaceAnswer,
  type PlaceQuestion,
  placeTopic,
} from "../../sessions/log/place-topic.ts";
import type { Database } from "../../store/database.ts";
import { type BeatingPods, watchPods } from "../source.ts";

export type AskPodsParts = {
  readonly database: Database;
  readonly stream: Pick<StreamLog, "heads">;
  readonly bus: Pick<Bus, "request">;
  readonly clock: Clock;
  readonly isGone: (host: string) => boolean;
};

/** What pods say of the place that logs leave. */
export type Leaving =
  | { readonly type: "left" | "waiting" }
  /** One of them has messages that servers have lost, and the database lacks. */
  | { readonly type: "keeps"; readonly podId: string };

const askMs = 5_000;
/** A pod opens streams as it does at its start. */
const prepareMs = 30_000;
/** As long as a pod that says nothing may answer from memory, and a margin. */
export const leaveMs = 2_500;

/** The pods that are up and serve sessions, as the database knows them. */
export async function beatingPods(parts: AskPodsParts): Promise<BeatingPods> {
  const pods = await watchPods(parts)();
  const metadata = await readMetadata(parts.database, pods);
  return pods.filter((podId) => metadata.get(podId)?.["sessions"] !== undefined);
}

/** The pods that own logs on streams. One that doesn't reach the database is known by nothing else. */
export async function ownersOf({
  stream,
  isGone,
}: Pick<AskPodsParts, "stream" | "isGone">): Promise<BeatingPods> {
  const heads = await stream.heads();
  return heads.flatMap(({ owner, host }) =>
    owner === null || (host !== null && isGone(host)) ? [] : [owner],
  );
}

/** Asks all pods, and throws if one of them would be left without its logs. Returns those that follow. */
export async function refusePods(
  parts: AskPodsParts,
  question: PlaceQuestion & { readonly step: "ask" | "prepare" },
): Promise<BeatingPods> {
  const beating = new Set(await beatingPods(parts));
  const owners = question.from === "nats" ? await ownersOf(parts) : [];
  const timeoutMs = question.step === "ask" ? askMs : prepareMs;
  const asked = await Promise.all(
    [...new Set([...beating, ...owners])].map(async (podId) => {
      try {
        await ask(parts, podId, question, timeoutMs);
        return [podId];
      } catch (error) {
        // An owner that doesn't beat any more was killed, and no pod has taken its logs since.
        if (!beating.has(podId) && hasCode(error, "unavailable")) return [];
        throw refusalOf(podId, error);
      }
    }),
  );
  return asked.flat();
}

/** Asks whether all pods serve nothing any more from the old place, these and those that the database knows. */
export async function haveAllLeft(
  parts: AskPodsParts,
  from: PlaceQuestion["from"],
  owners: BeatingPods,
): Promise<Leaving> {
  const pods = new Set([...(await beatingPods(parts)), ...owners]);
  const answers = await Promise.all(
    [...pods].map((podId) =>
      ask(parts, podId, { step: "leave", from }, leaveMs).then(
        ({ hasLeft }): Leaving => ({ type: hasLeft ? "left" : "waiting" }),
        (error: unknown): Leaving =>
          hasCode(error, "conflict") ? { type: "keeps", podId } : { type: "waiting" },
      ),
    ),
  );
  const keeps = answers.find(({ type }) => type === "keeps");
  return keeps ?? { type: answers.every(({ type }) => type === "left") ? "left" : "waiting" };
}

async function ask(
  { bus }: AskPodsParts,
  podId: string,
  question: PlaceQuestion,
  timeoutMs: number,
): Promise<PlaceAnswer> {
  const body = question as unknown as Json;
  return (await bus.request(podId, placeTopic, body, { timeoutMs })) as unknown as PlaceAnswer;
}

function refusalOf(podId: string, error: unknown): FlotillaError {
  const why =
    hasCode(error, "unsupported") && error.message.includes(`no handler for ${placeTopic}`)
      ? "is of an older release, which can't follow the logs: upgrade it first"
      : hasCode(error, "unavailable")
        ? "can't be reached over NATS: give all pods the same `nats`, or stop it; one that was killed counts as up for 65 s"
        : hasCode(error, "timeout")
          ? "doesn't answer over NATS: try again, or stop it"
          : hasCode(error, "conflict")
            ? `${messageOf(error)}: try again in a while`
            : `can't use these servers for logs: ${messageOf(error)}`;
  return new FlotillaError("conflict", `the pod ${podId} ${why}`, { details: { pod: podId } });
}
