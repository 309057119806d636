import { playRole, sharedMs } from "../roles.ts";
import { loadSystem, type Payload, type Settings, type SystemName } from "../systems/system.ts";
import { countUsage, type Usage } from "../usage.ts";

/** A process that works for one system until it is told to stop. */
export type WorkerParams = {
  readonly system: SystemName;
  readonly settings: Settings;
  readonly url: string;
  /** How long each task takes, waiting. */
  readonly taskMs: number;
};

export type Worked = Usage & { readonly ran: number; readonly latenciesMs: readonly number[] };

// How often the bench hears how far this process has come.
const tellMs = 10;

playRole(
  async ({ system: name, settings, url, taskMs }: WorkerParams, bench) => {
    const system = await loadSystem(name);
    let ran = 0;
    let told = 0;
    let usage: (() => Usage) | undefined;
    const latenciesMs: number[] = [];
    const note = ({ sentMs }: Payload): void => {
      if (usage === undefined) {
        usage = countUsage();
        bench.tell("first", sharedMs());
      }
      if (sentMs !== undefined) latenciesMs.push(sharedMs() - sentMs);
    };
    const atOnce = (payload: Payload): undefined => {
      note(payload);
      ran++;
    };
    const waiting = async (payload: Payload): Promise<void> => {
      note(payload);
      await new Promise((resolve) => setTimeout(resolve, taskMs));
      ran++;
    };
    setInterval(() => {
      if (ran > told) bench.tell("ran", (told = ran));
    }, tellMs);
    await system.work(url, settings, taskMs > 0 ? waiting : atOnce);
    bench.tell("ready");
    await bench.heard("stop");
    const used = usage?.() ?? { cpuMs: 0, wallMs: 0, rssMib: 0 };
    return { ...used, ran, latenciesMs } satisfies Worked;
  },
  { ends: "at once" },
);
