import { type ActParts, beginAct, writeAct } from "../audit/act.ts";
import { FlotillaError } from "../base/errors.ts";
import { isJsonObject } from "../base/json.ts";
import type { Bus } from "../bus/bus.ts";
import { changeDrain, leaderAmong, storedPods, type StoredPod, toStoredPod } from "../pods/pods.ts";
import type { PodPulse } from "../pods/pulse.ts";
import { untilKnown } from "../store/retry.ts";
import type { DrainState, PodState } from "../tasks/run/pod-status.ts";

/** A pod as its row shows it. */
export type PodInfo = {
  readonly podId: string;
  readonly status: "up" | "down";
  readonly birthMs: number;
  readonly lastHeartbeatMs: number;
  readonly beat: number;
  /** Set while it is to take no more work: `drained` once nothing that it had begun is left. */
  readonly drain: DrainState | null;
  /** How many tasks it may hold and why no more, as it last reported; null before its first report. */
  readonly state: PodState | null;
  /** What it stored of itself with its last heartbeat; null where it stores nothing. */
  readonly pulse: PodPulse | null;
  readonly metadata: Readonly<Record<string, unknown>>;
  /** Whether it leads the fleet, as it said with its last heartbeat; of all pods, at most one does. */
  readonly leads?: boolean;
  /** The logs of sessions that it owns, for pages. */
  readonly logs?: readonly number[];
};

/** The pods of a store, and what operators do to them. */
export type PodActs = {
  pods(): Promise<PodInfo[]>;
  /**
   * Lets a pod take no more work: it claims nothing, lets what it has begun end, and hands its logs of
   * sessions on. Resolves when that is stored; the pod reads it with its next heartbeat.
   */
  drainPod(podId: string): Promise<PodInfo>;
  /** Lets it take work again. */
  undrainPod(podId: string): Promise<PodInfo>;
  /**
   * The machine of a flow, as a live pod declares it that has this version, or the latest. It is asked over
   * the bus, which may lose envelopes: undefined if no pod has it, or none answers.
   */
  machine(flow: string, version?: number): Promise<MachineView | undefined>;
};

/** What a flow is made of: its parts in the order in which they run. */
export type MachineView = {
  readonly version: number;
  readonly queue: { readonly name: string; readonly limit: number } | null;
  readonly parts: readonly {
    readonly name: string;
    readonly kind: "work" | "sleep" | "signal" | "children" | "finally";
    /** Such as `waits for a signal, fails after 1 d`. */
    readonly does: string;
  }[];
};

/** The topic by which pods are asked for a machine. */
export const machineTopic = "flows.machine";
// A pod whose bus is idle reads its envelopes after its next heartbeat.
const answerMs = 3_000;
// Pods of one version have the same machine, so one answer is enough, and the others are for lost envelopes.
const maxAsked = 3;

export type PodActsParts = ActParts & {
  /** Starts the bus of this process with the first call. Without one no pod can be asked. */
  bus?: () => Pick<Bus, "request">;
};

export function createPodActs(parts: PodActsParts): PodActs {
  const change = async (podId: string, drains: boolean): Promise<PodInfo> => {
    const action = drains ? "pods.drain" : "pods.undrain";
    const act = await beginAct(parts, { action, subject: podId });
    const { tables } = await writeAct(
      parts,
      act,
      { statements: (_, entry) => changeDrain(podId, drains, entry) },
      untilKnown,
    );
    const [row] = tables.at(-1)!;
    if (!row) throw new FlotillaError("not_found", `there is no pod ${podId.slice(0, 80)}`);
    const pod = toPodInfo(toStoredPod(row));
    if (pod.status === "up") return pod;
    throw new FlotillaError("conflict", `pod ${podId} is down: it takes no work anyway`);
  };

  return {
    async pods() {
      const stored = await storedPods(parts.database);
      const leader = leaderAmong(stored);
      return stored.map((pod) => ({ ...toPodInfo(pod), leads: pod.podId === leader }));
    },
    drainPod: (podId) => change(podId, true),
    undrainPod: (podId) => change(podId, false),
    async machine(flow, version) {
      const { bus } = parts;
      const having = (await storedPods(parts.database)).flatMap(({ podId, status, metadata }) => {
        const has = status === "up" ? versionIn(metadata["flows"], flow) : undefined;
        return has === undefined ? [] : [{ podId, has }];
      });
      const wanted = version ?? Math.max(...having.map(({ has }) => has));
      const asked = having.filter(({ has }) => has === wanted).slice(0, maxAsked);
      if (!bus || asked.length === 0) return undefined;
      const answers = asked.map(({ podId }) =>
        bus().request(podId, machineTopic, { flow, version: wanted }, { timeoutMs: answerMs }),
      );
      // A pod of an earlier release doesn't answer this.
      const answer = await Promise.any(answers).catch(() => undefined);
      return answer as MachineView | undefined;
    },
  };
}

/** The version of a flow in what a pod has stored of itself. */
function versionIn(flows: unknown, flow: string): number | undefined {
  const found = isJsonObject(flows) && Object.hasOwn(flows, flow) ? flows[flow] : undefined;
  return typeof found === "number" ? found : undefined;
}

function toPodInfo({ drains, state, ...pod }: StoredPod): PodInfo {
  return { ...pod, ...drainOf({ drains, state }) };
}

/** Whether a pod takes work, and what it has said of that. */
export function drainOf({
  drains,
  state: reported,
}: Pick<StoredPod, "drains" | "state">): Pick<PodInfo, "drain" | "state"> {
  const state = stateOf(reported);
  return { drain: drains ? (state?.drain ?? "draining") : null, state };
}

/** A row may hold anything; listing pods must still work. */
function stateOf(text: unknown): PodState | null {
  if (typeof text !== "string") return null;
  try {
    return JSON.parse(text) as PodState;
  } catch {
    return null;
  }
}
