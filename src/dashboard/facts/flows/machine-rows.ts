import type {
  FlowFacts,
  MachineFacts,
  PlaceCounts,
  RunFacts,
  StateTimesFacts,
  StuckFacts,
} from "../../asks/flows.ts";

/** A state of a machine, with what stands there. */
export type MachineState = {
  /** As runs have it, and filters: `$end` for the last one; null before a run has begun. */
  readonly at: string | null;
  readonly name: string;
  readonly kind: MachineFacts["parts"][number]["kind"] | "start" | "end" | "unknown";
  readonly does: string;
  readonly counts: PlaceCounts;
  /** How many runs are there now. */
  readonly runs: number;
  readonly stuck: readonly StuckFacts[];
  readonly times: StateTimesFacts | undefined;
};

export type DrawnMachine = {
  /** In the order in which they run, if that is known. */
  readonly states: readonly MachineState[];
  /** False where only the states are known that runs are at. */
  readonly isDeclared: boolean;
  /** Where runs stand that the machine doesn't have: of another version, or set aside. */
  readonly elsewhere: readonly MachineState[];
};

const atEnd = "$end";

/** The states of a flow in one version, or where its runs of all versions stand. */
export function drawnMachine(
  flow: FlowFacts,
  times: readonly StateTimesFacts[],
  version: number | undefined,
): DrawnMachine {
  const places = version === undefined ? flow.places : (ownOf(flow.placesByVersion, version) ?? {});
  const timesAt = new Map(times.map((each) => [each.at, each]));
  const stuck = flow.stuck.filter((each) => version === undefined || each.version === version);
  const stateAt = (
    at: string | null,
    more: Pick<MachineState, "name" | "kind" | "does">,
  ): MachineState => {
    const counts = ownOf(places, at ?? "start") ?? {};
    const total = Object.values(counts).reduce<number>((sum, count) => sum + (count ?? 0), 0);
    return {
      at,
      ...more,
      counts,
      runs: total,
      stuck: stuck.filter((each) => each.at === at),
      times: at === null ? undefined : timesAt.get(at),
    };
  };
  const { machine } = flow;
  const isDeclared =
    machine !== null && (version === undefined || version === 0 || version === machine.version);
  const parts = isDeclared ? machine.parts : [];
  const start = stateAt(null, { name: "start", kind: "start", does: "hasn't begun" });
  const end = stateAt(atEnd, { name: "end", kind: "end", does: "is about to end" });
  const known = new Set([...parts.map(({ name }) => name), "start", atEnd]);
  const others = Object.keys(places)
    .filter((name) => !known.has(name))
    .toSorted()
    .map((name) => stateAt(name, { name, kind: "unknown", does: "" }));
  return {
    states: [
      start,
      ...parts.map(({ name, kind, does }) => stateAt(name, { name, kind, does })),
      ...(isDeclared ? [] : others),
      end,
    ],
    isDeclared,
    elsewhere: isDeclared ? others : [],
  };
}

/** A row of a drawn machine: a state, or states that nothing stands at, folded. */
export type MachineRow =
  | { readonly type: "state"; readonly state: MachineState }
  | { readonly type: "fold"; readonly key: string; readonly states: readonly MachineState[] };

// As many as a person reads from the top to the end.
const maxWithoutFolds = 40;
const leastFolded = 4;

/** Folds what is idle in a long machine. Opened folds are known by their first state. */
export function machineRows(
  states: readonly MachineState[],
  {
    opened,
    chosen,
  }: { readonly opened: ReadonlySet<string>; readonly chosen?: string | undefined },
): MachineRow[] {
  const isShort = states.length <= maxWithoutFolds;
  const isKept = (state: MachineState) =>
    isShort ||
    state.runs > 0 ||
    state.stuck.length > 0 ||
    state.kind === "start" ||
    state.kind === "end" ||
    state.at === chosen;
  const rows: MachineRow[] = [];
  for (let from = 0; from < states.length;) {
    let to = from;
    while (to < states.length && !isKept(states[to]!)) to++;
    const idle = states.slice(from, to);
    const isFolded = idle.length >= leastFolded && !opened.has(idle[0]!.name);
    if (isFolded) rows.push({ type: "fold", key: idle[0]!.name, states: idle });
    else for (const state of idle) rows.push({ type: "state", state });
    if (to < states.length) rows.push({ type: "state", state: states[to]! });
    from = to + 1;
  }
  return rows;
}

/** A run as it is drawn: in which row, and at which place there. */
export type RunDot = {
  readonly runId: string;
  readonly row: number;
  readonly place: number;
  readonly isWrong: boolean;
};

/** Where runs are drawn, the first few of each row. Those at states without a row aren't. */
export function runDots(
  rows: readonly MachineRow[],
  runs: readonly RunFacts[],
  maxPlaces: number,
): RunDot[] {
  const rowOf = new Map<string | null, number>();
  for (const [index, row] of rows.entries()) {
    for (const { at } of row.type === "state" ? [row.state] : row.states) rowOf.set(at, index);
  }
  const taken = new Map<number, number>();
  const byAge = runs.toSorted((one, other) => (one.runId < other.runId ? -1 : 1));
  const dots = byAge.flatMap((run): RunDot[] => {
    const row = rowOf.get(run.at);
    if (row === undefined) return [];
    const place = taken.get(row) ?? 0;
    taken.set(row, place + 1);
    if (place >= maxPlaces) return [];
    const isWrong = run.doing?.type === "set_aside" || run.noWorker;
    return [{ runId: run.runId, row, place, isWrong }];
  });
  // In an order that stays, so that what moves is drawn as the same element.
  return dots;
}

/** A field of an object that may have any names. */
function ownOf<Value>(
  values: Readonly<Record<string, Value>>,
  name: string | number,
): Value | undefined {
  return Object.hasOwn(values, name) ? values[name] : undefined;
}
