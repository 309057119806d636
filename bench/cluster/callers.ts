import { type BenchPod, post } from "./pods.ts";
import { pause } from "./appender.ts";

/** Callers over HTTP, one for each session, each with one message at a time under way. */
export type Callers = {
  /** Notes the longest time without an ack anew. */
  begin(): void;
  /** The longest time without an ack since then, of each session. */
  gapsMs(): readonly number[];
  /** Waits until each session has an ack of a message that was sent from now on. */
  allAcked(limitMs: number): Promise<void>;
  readonly acked: number;
  /** Calls that weren't answered with an ack, in their own words. */
  readonly errors: readonly string[];
  end(): Promise<void>;
};

const everyMs = 10;
const lookEveryMs = 20;
const failedMs = 100;

/**
 * `reachable` gives the pods that a balancer would choose from at this moment. A call that fails is counted,
 * and made again with the same id.
 */
export function startCallers(
  sessions: readonly string[],
  reachable: () => readonly BenchPod[],
): Callers {
  const errors: string[] = [];
  let acked = 0;
  let ended = false;
  const gaps = sessions.map(() => 0);
  const lastMs = sessions.map(() => performance.now());
  /** When the last message was sent that is acked. */
  const provenMs = sessions.map(() => -Infinity);

  const call = async (session: string, id: string, nth: number): Promise<string | undefined> => {
    const pods = reachable();
    const pod = pods[nth % pods.length];
    if (!pod) return "there is no pod to call";
    try {
      const message = { author: "ada", id, parts: [{ type: "text", text: id }] };
      const answer = await post(`${pod.url}/v1/sessions/${session}/messages`, message);
      const said = await answer.text();
      return answer.status < 300 ? undefined : `${answer.status}: ${said.slice(0, 300)}`;
    } catch (error) {
      const { message, cause } = error as Error;
      return `${message}${cause instanceof Error ? `: ${cause.message}` : ""}`;
    }
  };

  const keepCalling = async (session: string, at: number): Promise<void> => {
    for (let nth = at; !ended; nth++) {
      const sentMs = performance.now();
      for (let tries = 0; ; tries++) {
        const error = await call(session, `${session}-${nth}`, nth + tries);
        if (error === undefined) break;
        errors.push(`${session}: ${error}`);
        if (ended) return;
        await pause(failedMs);
      }
      const nowMs = performance.now();
      gaps[at] = Math.max(gaps[at]!, nowMs - lastMs[at]!);
      lastMs[at] = nowMs;
      provenMs[at] = sentMs;
      acked++;
      await pause(everyMs);
    }
  };
  const running = sessions.map(keepCalling);

  return {
    begin() {
      gaps.fill(0);
    },
    gapsMs: () => [...gaps],
    async allAcked(limitMs) {
      const fromMs = performance.now();
      while (!provenMs.every((ms) => ms >= fromMs)) {
        if (performance.now() - fromMs > limitMs) {
          const silent = sessions.filter((_, at) => provenMs[at]! < fromMs);
          throw new Error(`no ack within ${limitMs} ms in ${silent.join(", ")}`);
        }
        await pause(lookEveryMs);
      }
    },
    get acked() {
      return acked;
    },
    errors,
    async end() {
      ended = true;
      await Promise.all(running);
    },
  };
}
