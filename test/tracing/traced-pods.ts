import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { trace } from "@opentelemetry/api";
import { connect } from "flotilla";
import { built } from "../built.ts";
import { until } from "../../src/base/contract/movable-clock.ts";
import { temporaryDatabase, temporaryFile } from "../../src/store/contract/kinds.ts";
import type { FromPod } from "./pod-process.ts";
import { registerSdk, type Told } from "./sdk.ts";

type Place = { readonly url: string; remove(): Promise<void> };

export const stores = [
  { name: "a SQLite file", place: (): Promise<Place> => Promise.resolve(placeOfFile()) },
  { name: "Postgres", place: (): Promise<Place> => temporaryDatabase() },
];

export type TracedPods = Awaited<ReturnType<typeof openTracedPods>>;

/** A program that traces, on a store of its own, with pods in other processes that trace as well. */
export async function openTracedPods(place: () => Promise<Place>, podFile: string) {
  const store = await place();
  const here: Told[] = [];
  const there: Told[] = [];
  const children: ChildProcess[] = [];
  let news: string[] = [];
  const unregister = registerSdk((span) => here.push(span));
  const flotilla = connect(store.url);

  const kill = async (child: ChildProcess): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
    news = [];
  };

  return {
    flotilla,
    /** The spans of this process. */
    here: here as readonly Told[],
    /** The spans of all pods. */
    there: there as readonly Told[],

    async startPod(): Promise<ChildProcess> {
      const file = built.program(fileURLToPath(new URL(podFile, import.meta.url)));
      const child = fork(file, [store.url], { execArgv: [] });
      children.push(child);
      child.on("message", (message: FromPod) => {
        if ("span" in message) there.push(message.span);
        else news.push(message.running);
      });
      await until("the pod's start", () => news.includes("pod"));
      return child;
    },
    kill,
    /** What a pod says while it runs something, until it is killed. */
    told: (what: string) => until(`a pod to say ${what}`, () => news.includes(what)),

    /** Does something within a span of the program's own, as a request would be. */
    request: <Answer>(act: () => Promise<Answer>): Promise<Answer> =>
      trace.getTracer("the program").startActiveSpan("request", async (span) => {
        const answer = await act();
        span.end();
        return answer;
      }),

    /** The spans of pods that have this name, once there are so many. */
    spans: (name: string, count: number) =>
      until(`${count} spans ${name}`, () => {
        const found = there.filter((span) => span.name === name);
        return found.length === count ? found : undefined;
      }),

    async close(): Promise<void> {
      unregister();
      for (const child of children) await kill(child);
      await flotilla.close();
      await store.remove();
    },
  };
}

function placeOfFile(): Place {
  const { path, remove } = temporaryFile();
  return { url: `sqlite:${path}`, remove };
}
